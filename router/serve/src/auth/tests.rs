use super::*;

const LOOPBACK: &str = "127.0.0.1:40000";
const ELSEWHERE: &str = "10.1.2.3:40000";

fn tenant(name: &str, rate_rps: Option<f64>) -> Tenant {
    let keys = vec![KeyHash::of(format!("{name}-key").as_bytes())];
    Tenant { name: name.to_owned(), keys, rate_rps, max_in_flight: None, share: 1.0 }
}

fn key(name: &str, scopes: &[Scope]) -> Key {
    Key { name: name.to_owned(), keys: vec![KeyHash::of(name.as_bytes())], scopes: scopes.to_vec() }
}

fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
}

fn with_key(key: &str) -> HeaderMap {
    headers(&[(header::AUTHORIZATION, &format!("Bearer {key}"))])
}

fn status<T: std::fmt::Debug>(result: Result<T, InferError>) -> u16 {
    result.unwrap_err().status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn without_tenants_inference_is_open() {
    let access = Access::new(&[], &[key("ops", &[Scope::Admin])]);
    let admitted = access.admit(&HeaderMap::new(), Instant::now()).unwrap();
    assert_eq!(admitted.caller, Caller { tenant: NO_TENANT });
}

#[tokio::test(start_paused = true)]
async fn with_tenants_inference_needs_the_key_of_one() {
    let access = Access::new(&[tenant("a", None), tenant("b", None)], &[]);
    let now = Instant::now();
    assert_eq!(access.admit(&with_key("b-key"), now).unwrap().caller, Caller { tenant: 2 });
    assert_eq!(status(access.admit(&with_key("c-key"), now)), 401);
    assert_eq!(status(access.admit(&HeaderMap::new(), now)), 401);
    let basic = headers(&[(header::AUTHORIZATION, "Basic a-key")]);
    assert_eq!(status(access.admit(&basic, now)), 401);
}

#[tokio::test(start_paused = true)]
async fn a_key_infers_only_if_it_has_the_infer_scope() {
    let keys = [key("ops", &[Scope::Admin]), key("probe", &[Scope::Infer])];
    let access = Access::new(&[tenant("a", None)], &keys);
    let now = Instant::now();
    assert_eq!(access.admit(&with_key("probe"), now).unwrap().caller, Caller { tenant: NO_TENANT });
    assert_eq!(status(access.admit(&with_key("ops"), now)), 403);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_over_its_rate_waits_and_the_others_do_not() {
    let access = Access::new(&[tenant("a", Some(2.0)), tenant("b", Some(2.0))], &[]);
    let now = Instant::now();
    for _ in 0..2 {
        access.admit(&with_key("a-key"), now).unwrap();
    }
    let refused = access.admit(&with_key("a-key"), now).unwrap_err();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(500)));
    access.admit(&with_key("b-key"), now).unwrap();
    access.admit(&with_key("a-key"), now + Duration::from_millis(500)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn rows_count_against_the_rate_however_they_are_packed() {
    let access = Access::new(&[tenant("a", Some(4.0))], &[]);
    let now = Instant::now();
    let Admitted { caller, .. } = access.admit(&with_key("a-key"), now).unwrap();
    access.charge_rows(caller, 8);
    let refused = access.admit(&with_key("a-key"), now).unwrap_err();
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(1_250)));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_too_many_under_way_is_refused_and_its_rate_is_not_charged() {
    let narrow = Tenant { max_in_flight: Some(2), ..tenant("a", Some(3.0)) };
    let access = Access::new(&[narrow, tenant("b", None)], &[]);
    let now = Instant::now();
    let ask = || access.admit(&with_key("a-key"), now);
    let (first, _second) = (ask().unwrap(), ask().unwrap());
    for _ in 0..5 {
        let refused = ask().unwrap_err();
        assert_eq!((refused.status().as_u16(), refused.reason()), (429, "quota"));
        assert_eq!(
            refused.to_string(),
            "tenant a has 2 requests in flight; its max_in_flight is 2"
        );
    }
    access.admit(&with_key("b-key"), now).unwrap();
    let view = access.tenants(now)[0].clone();
    assert_eq!((view.in_flight, view.left, view.totals.quota), (Some(2), Some(1), 5));
    drop(first);
    let _third = ask().unwrap();
    assert_eq!(access.tenants(now)[0].left, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_request_refused_for_its_rate_is_not_under_way() {
    let narrow = Tenant { max_in_flight: Some(5), ..tenant("a", Some(1.0)) };
    let access = Access::new(&[narrow], &[]);
    let now = Instant::now();
    let _first = access.admit(&with_key("a-key"), now).unwrap();
    assert_eq!(status(access.admit(&with_key("a-key"), now)), 429);
    assert_eq!(access.tenants(now)[0].in_flight, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_reload_counts_what_was_under_way_before_it() {
    let now = Instant::now();
    let before = Access::new(&[tenant("a", None)], &[]);
    let passes = [(); 3].map(|()| before.admit(&with_key("a-key"), now).unwrap());
    let narrow = Tenant { max_in_flight: Some(2), ..tenant("a", None) };
    let access = before.renewed(&[narrow], &[]);
    assert_eq!(status(access.admit(&with_key("a-key"), now)), 429);
    let [first, second, _third] = passes;
    drop(first);
    assert_eq!(status(access.admit(&with_key("a-key"), now)), 429);
    drop(second);
    access.admit(&with_key("a-key"), now).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reload_does_not_refill_a_rate_that_did_not_change() {
    let now = Instant::now();
    let access = Access::new(&[tenant("a", Some(1.0)), tenant("b", Some(1.0))], &[]);
    access.admit(&with_key("a-key"), now).unwrap();
    access.admit(&with_key("b-key"), now).unwrap();
    let access = access.renewed(&[tenant("b", Some(3.0)), tenant("a", Some(1.0))], &[]);
    assert_eq!(status(access.admit(&with_key("a-key"), now)), 429);
    let tenants = access.tenants(now);
    let left: Vec<_> = tenants.iter().map(|view| (&*view.name, view.left)).collect();
    assert_eq!(left, [("b", Some(3)), ("a", Some(0)), ("other", None)]);
}

#[tokio::test(start_paused = true)]
async fn a_reload_does_not_forget_what_became_of_a_tenants_requests() {
    let now = Instant::now();
    let access = Access::new(&[tenant("a", Some(1.0))], &[]);
    let Admitted { caller, .. } = access.admit(&with_key("a-key"), now).unwrap();
    access.charge_rows(caller, 4);
    access.metrics(caller).begin().told(None);
    drop(access.metrics(caller).begin());
    assert_eq!(status(access.admit(&with_key("a-key"), now)), 429);
    let access = access.renewed(&[tenant("b", None), tenant("a", Some(2.0))], &[]);
    let [b, a, other] = [0, 1, 2].map(|place| access.tenants(now)[place].totals);
    let counted =
        TenantTotals { served: 1, abandoned: 1, quota: 1, rows: 4, ..TenantTotals::default() };
    assert_eq!([b, a, other], [TenantTotals::default(), counted, TenantTotals::default()]);
}

#[tokio::test(start_paused = true)]
async fn without_keys_admin_answers_this_machine_only() {
    let access = Access::new(&[], &[]);
    let ask =
        |peer: &str| access.require(Scope::Admin, &with_key("anything"), peer.parse().unwrap());
    ask(LOOPBACK).unwrap();
    ask("[::1]:9").unwrap();
    ask("[::ffff:127.0.0.1]:9").unwrap();
    assert_eq!(status(ask(ELSEWHERE)), 403);
}

#[tokio::test(start_paused = true)]
async fn with_keys_admin_needs_one_with_the_scope_even_on_this_machine() {
    let keys = [key("ops", &[Scope::Admin]), key("lab", &[Scope::Jobs])];
    let access = Access::new(&[tenant("a", None)], &keys);
    let ask = |key: &str| access.require(Scope::Admin, &with_key(key), LOOPBACK.parse().unwrap());
    ask("ops").unwrap();
    assert_eq!(status(ask("lab")), 403);
    assert_eq!(status(ask("a-key")), 403);
    assert_eq!(status(ask("guess")), 401);
    access.require(Scope::Admin, &with_key("ops"), ELSEWHERE.parse().unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_web_page_in_a_browser_on_this_machine_cannot_administer() {
    let access = Access::new(&[], &[]);
    let ask = |host: &str, origin: Option<&str>| {
        let mut pairs = vec![(header::HOST, host)];
        pairs.extend(origin.map(|origin| (header::ORIGIN, origin)));
        access.require(Scope::Admin, &headers(&pairs), LOOPBACK.parse().unwrap()).is_ok()
    };
    assert!(ask("localhost:8002", None));
    assert!(ask("127.0.0.1:8002", Some("http://127.0.0.1:8002")));
    assert!(ask("[::1]:8002", None));
    assert!(ask("[::1]", None));
    assert!(!ask("127.0.0.1:8002", Some("http://elsewhere.example")));
    assert!(!ask("127.0.0.1:8002", Some("null")));
    assert!(!ask("rebound.example:8002", None));
    assert!(!ask("rebound.example:8002", Some("http://rebound.example:8002")));
}
