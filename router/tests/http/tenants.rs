//! Who may call, and how often.

use config::{Key, KeyHash, Scope, Tenant};

use crate::{
    client::{INFER, numbers},
    server::{Server, settings, soon},
};

async fn guarded(rate_rps: Option<f64>) -> Server {
    held(rate_rps, None).await
}

async fn held(rate_rps: Option<f64>, max_in_flight: Option<u32>) -> Server {
    let tenant = Tenant {
        name: "search".to_owned(),
        keys: vec![KeyHash::of(b"search-key")],
        rate_rps,
        max_in_flight,
        share: 1.0,
    };
    let key = |name: &str, scope| Key {
        name: name.to_owned(),
        keys: vec![KeyHash::of(name.as_bytes())],
        scopes: vec![scope],
    };
    let keys = [key("ops", Scope::Admin), key("lab", Scope::Jobs)];
    Server::with(settings(), &[tenant], &keys).await
}

#[tokio::test]
async fn a_tenants_key_is_needed_and_its_index_reaches_the_model() {
    let server = guarded(None).await;
    let mut client = server.client().await;
    let body = numbers(&[1.0; 4]).to_string();
    let none = client.post(INFER, &[], body.clone()).await;
    assert_eq!(none.status, 401);
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let wrong = [("authorization", "Bearer guess")];
    assert_eq!(client.post(INFER, &wrong, body.clone()).await.status, 401);
    let right = [("authorization", "Bearer search-key")];
    assert_eq!(client.post(INFER, &right, body).await.status, 200);
    assert_eq!(server.model("echo").last().tenant, 1);
    assert_eq!(client.get("/v2/health/ready").await.status, 200, "health needs no key");
}

#[tokio::test]
async fn a_tenant_over_its_rate_is_429_with_when_to_come_back() {
    let server = guarded(Some(0.001)).await;
    let mut client = server.client().await;
    let body = numbers(&[1.0; 4]).to_string();
    let key = [("authorization", "Bearer search-key")];
    assert_eq!(client.post(INFER, &key, body.clone()).await.status, 200);
    let refused = client.post(INFER, &key, body).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["reason"], "quota");
    assert_eq!(refused.json()["tenant"], "search");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((999..=1_252).contains(&wait), "{wait}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"tenant\";q=1;w=1"));
    assert!(refused.header("ratelimit").unwrap().starts_with("\"tenant\";r=0;t="));
    assert_eq!(server.state.backend.refused_for("echo", "quota"), 1);
}

#[tokio::test]
async fn a_tenant_with_too_many_under_way_is_429_until_one_of_them_ends_or_hangs_up() {
    let server = held(None, Some(1)).await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let (mut started, mut dropped) = (model.started.subscribe(), model.dropped.subscribe());
    let body = numbers(&[1.0; 4]).to_string();
    let key = [("authorization", "Bearer search-key")];
    let mut first = server.client().await;
    let connection = first.connection.take().unwrap();
    let asking = tokio::spawn({
        let body = body.clone();
        async move { first.post(INFER, &key, body).await }
    });
    soon("the first is under way", started.wait_for(|count| *count == 1)).await.unwrap();

    let mut client = server.client().await;
    let refused = client.post(INFER, &key, body.clone()).await;
    assert_eq!(refused.status, 429);
    let told = refused.json();
    let numbers = (&told["reason"], &told["tenant"], &told["in_flight"], &told["max_in_flight"]);
    assert_eq!(numbers, (&"quota".into(), &"search".into(), &1.into(), &1.into()), "{told}");
    assert!(refused.header("retry-after").is_some() && refused.header("ratelimit").is_none());
    assert_eq!(server.state.backend.refused_for("echo", "quota"), 1);

    asking.abort();
    connection.abort();
    soon("its work is dropped", dropped.wait_for(|count| *count == 1)).await.unwrap();
    model.open.send_replace(true);
    for _ in 0..2 {
        assert_eq!(client.post(INFER, &key, body.clone()).await.status, 200);
    }
}

#[tokio::test]
async fn loading_and_unloading_need_the_admin_scope() {
    let server = guarded(None).await;
    let mut client = server.client().await;
    let path = "/v2/repository/models/echo/unload";
    for (key, status) in [
        ("Bearer search-key", 403),
        ("Bearer lab", 403),
        ("Bearer guess", 401),
        ("Bearer ops", 200),
    ] {
        let replied = client.post(path, &[("authorization", key)], "").await;
        assert_eq!(replied.status, status, "{key}");
    }
    assert_eq!(client.post(path, &[], "").await.status, 401);
}

#[tokio::test]
async fn admin_needs_the_admin_scope_and_health_and_metrics_do_not() {
    let server = guarded(None).await;
    let mut client = server.admin_client().await;
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    assert_eq!(client.get("/admin/v1/state").await.status, 401);
    for (key, status) in [("Bearer lab", 403), ("Bearer ops", 200)] {
        let replied = client.post("/admin/v1/reload", &[("authorization", key)], "").await;
        assert_eq!(replied.status, status, "{key}");
    }
}

#[tokio::test]
async fn jobs_need_the_jobs_scope_or_that_of_admin() {
    let server = guarded(None).await;
    let mut client = server.admin_client().await;
    for (key, status, reason) in [
        ("Bearer lab", 403, "no_loans"),
        ("Bearer ops", 403, "no_loans"),
        ("Bearer search-key", 403, "forbidden"),
        ("Bearer guess", 401, "unauthorized"),
    ] {
        let key = [("authorization", key)];
        let replied = client.post("/admin/v1/jobs", &key, "{}").await;
        let seen = (replied.status.as_u16(), replied.json()["reason"].clone());
        assert_eq!(seen, (status, reason.into()), "{key:?}");
    }
}

#[tokio::test]
async fn a_stranger_does_not_learn_what_there_is_to_administer() {
    let server = guarded(None).await;
    let mut client = server.admin_client().await;
    for path in ["/admin", "/admin/", "/admin/v1/nothing", "/admin/v1/plan", "/admin/v1/drain"] {
        let replied = client.get(path).await;
        assert_eq!((replied.status.as_u16(), replied.header("allow")), (401, None), "{path}");
        assert_eq!(replied.header("www-authenticate"), Some("Bearer"), "{path}");
    }
    assert_eq!(client.get("/administration").await.status, 404);
}
