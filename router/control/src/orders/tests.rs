use std::path::PathBuf;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sluice-orders-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn open(&self) -> Arc<Orders> {
        Orders::open(Some(&self.0)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn seat(gpu: u32) -> SliceId {
    SliceId { worker: "east".to_owned(), gpu, position: "3g.40gb@0".to_owned() }
}

fn pin(gpu: u32, from: Option<u32>) -> Pin {
    let (model, by) = ("digits".to_owned(), "ada".to_owned());
    Pin { model, at: seat(gpu), from: from.map(seat), by, since_ms: u64::from(gpu) }
}

#[test]
fn orders_stand_until_they_are_taken_back_whatever_becomes_of_the_process() {
    let folder = Folder::new("stand");
    let orders = folder.open();
    let drain = Drain { by: "ada".to_owned(), since_ms: 7 };
    orders.drain("east", drain.clone()).unwrap();
    orders.drain("east", Drain { by: "bob".to_owned(), since_ms: 9 }).unwrap();
    orders.pin(pin(1, None)).unwrap();
    orders.pin(pin(0, None)).unwrap();
    drop(orders);
    let again = folder.open();
    let standing = again.standing();
    assert_eq!(standing.drains, [("east".to_owned(), drain)].into());
    assert_eq!(standing.pins, [pin(0, None), pin(1, None)]);
    again.give_back("east").unwrap();
    again.unpin("digits", &seat(0)).unwrap();
    drop(again);
    let standing = folder.open().standing();
    assert_eq!(*standing, StandingOrders { pins: vec![pin(1, None)], ..StandingOrders::default() });
}

#[test]
fn a_pin_moves_with_its_replica() {
    let folder = Folder::new("move");
    let orders = folder.open();
    orders.pin(pin(0, None)).unwrap();
    orders.pin(pin(1, Some(0))).unwrap();
    assert_eq!(orders.standing().pins, [pin(1, Some(0))]);
    orders.left(&[pin(1, Some(0))]).unwrap();
    drop(orders);
    assert_eq!(folder.open().standing().pins, [pin(1, None)]);
}

#[test]
fn an_operator_may_give_a_name_and_nothing_that_breaks_a_line() {
    let by = |body: &str| match Order::drain("east".to_owned(), body.as_bytes(), None) {
        Ok(Order::Drain { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    assert_eq!(by(""), "admin");
    assert_eq!(by(r#"{"by": "Ada L."}"#), "Ada L.");
    let by_key = Order::drain("east".to_owned(), b"", Some("nights")).unwrap();
    assert!(matches!(by_key, Order::Drain { by, .. } if by == "nights"));
    for body in [r#"{"by": ""}"#, r#"{"by": "a\nb"}"#, r#"{"to": "ada"}"#, "[]"] {
        let refused = Order::drain("east".to_owned(), body.as_bytes(), None).unwrap_err();
        assert_eq!(refused.reason(), "invalid", "{body}: {refused}");
    }
    let query = "worker=east&gpu=1&position=3g.40gb%400&by=Ada+L.";
    let order = Order::unpin("digits".to_owned(), query, None).unwrap();
    let at = SliceId { gpu: 1, ..seat(0) };
    assert_eq!(order, Order::Unpin { model: "digits".to_owned(), at, by: "Ada L.".to_owned() });
    let refused = Order::unpin("digits".to_owned(), "worker=east&gpu=one", None).unwrap_err();
    assert_eq!(refused.to_string(), "gpu is \"one\"; give its index");
}

#[test]
fn what_another_router_changed_is_taken_in_and_other_records_are_let_be() {
    let orders = Orders::open(None).unwrap();
    let drain = Drain { by: "ada".to_owned(), since_ms: 7 };
    let aim = Aim { slo_ms: Some(40.0), slo_target: None };
    let put = |key: String, value: Value| Change::default().put(key, value);
    orders.learn(put("drain/east".to_owned(), value(&drain)));
    orders.learn(put(key(&pin(1, Some(0))), value(&pin(1, Some(0)))));
    orders.learn(put(key(&pin(1, None)), value(&pin(1, None))));
    orders.learn(put("objective/digits".to_owned(), value(&aim)));
    let unload = Unload { by: "bob".to_owned(), since_ms: 8 };
    orders.learn(put("unload/digits".to_owned(), value(&unload)));
    orders.learn(put("job/1".to_owned(), serde_json::json!({"id": 1})));
    let all = StandingOrders {
        drains: [("east".to_owned(), drain)].into(),
        pins: vec![pin(1, None)],
        unloads: [("digits".to_owned(), unload)].into(),
        objectives: [("digits".to_owned(), aim)].into(),
    };
    assert_eq!(*orders.standing(), all);
    let keys =
        ["drain/east", &key(&pin(1, None)), "objective/digits", "unload/digits", "account/ada"];
    for key in keys {
        orders.learn(Change::default().delete(key));
    }
    assert_eq!(*orders.standing(), StandingOrders::default());
}

#[test]
fn a_model_stays_unloaded_until_it_is_loaded() {
    let folder = Folder::new("unload");
    let orders = folder.open();
    let unload = |by: &str| Unload { by: by.to_owned(), since_ms: 7 };
    orders.unload("digits", unload("ada")).unwrap();
    orders.unload("digits", unload("bob")).unwrap();
    drop(orders);
    let again = folder.open();
    assert_eq!(again.standing().unloads, [("digits".to_owned(), unload("ada"))].into());
    again.load("digits").unwrap();
    again.load("digits").unwrap();
    drop(again);
    assert_eq!(*folder.open().standing(), StandingOrders::default());
}
