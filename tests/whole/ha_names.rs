//! Routers that were given one name between them.

use rustix::process::Signal;

use crate::{
    client::{Body, count_from},
    etcd::Etcd,
    ha::{lead, leads, router, worker},
    program::Program,
    wait::eventually,
};

fn readiness(router: &Program) -> (u16, String) {
    let reply = router.ask_admin("/readyz?verbose");
    (reply.status, reply.text())
}

#[test]
fn second_router_of_one_name_leads_only_after_the_first() {
    let etcd = Etcd::start();
    let (mut first, door) = router(&etcd, "same");
    let term = eventually("the first leads", || leads(&first));
    let (second, other) = router(&etcd, "same");
    let _worker = worker(&[door, other]);
    first.wait_word("ready");
    let (status, why) = eventually("the second router reports it", || {
        let told = readiness(&second);
        told.1.contains("[-]own name failed").then_some(told)
    });
    assert_eq!(status, 503);
    assert!(why.contains(&first.admin().to_string()), "{why}");
    assert!(lead(&second)["problem"].as_str().unwrap().contains("has the same name"));
    assert_eq!(second.log().matches("router name already in use").count(), 1);
    assert_eq!((leads(&first), leads(&second)), (Some(term), None));
    assert_eq!(readiness(&first).0, 200, "{}", readiness(&first).1);
    eventually("the second serves those who ask it all the same", || {
        let reply = second.client().infer("m", &Body::row());
        (reply.status == 200).then(|| assert_eq!(reply.numbers(), count_from(1.0, 1)))
    });

    first.signal(Signal::KILL);
    first.wait_end();
    let after = eventually("the second leads", || leads(&second));
    assert!(after > term, "{after} after {term}");
    assert_eq!(readiness(&second).0, 200, "{}", readiness(&second).1);
    assert!(lead(&second)["problem"].is_null());
}

#[test]
fn restarted_router_has_its_name_and_leads_again() {
    let etcd = Etcd::start();
    let (mut killed, _) = router(&etcd, "same");
    let term = eventually("it leads", || leads(&killed));
    killed.signal(Signal::KILL);
    killed.wait_end();
    let config = killed.folder().path().join("sluice.toml");
    let mut again = killed.again(&["router", "--config", config.to_str().unwrap()]);
    again.wait_listening();
    let after = eventually("it leads again", || leads(&again));
    assert!(after > term, "{after} after {term}");
    assert!(!again.log().contains("router name already in use"), "{}", again.log());
}
