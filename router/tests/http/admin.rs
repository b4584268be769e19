//! What an operator sees and does.

use bytes::Bytes;
use http::Method;
use router::reload::ReloadError;
use serde_json::json;
use serve::drain::{Ended, StopSignal};

use crate::{
    client::{Client, Raw},
    server::{Server, soon},
};

#[tokio::test]
async fn health_and_metrics_answer_on_the_admin_port() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    assert_eq!(client.get("/livez").await.body, "ok\n");
    assert_eq!(client.get("/v2/health/live").await.status, 200);
    assert_eq!(client.get("/v2/health/ready").await.status, 200);
    assert_eq!(client.get("/readyz").await.status, 200);
    let metrics = client.get("/metrics").await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.body, "every metric\n");
}

#[tokio::test]
async fn metrics_are_text_whatever_the_scraper_accepts() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let messages = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                    encoding=delimited,text/plain;version=0.0.4;q=0.5";
    let metrics = client.send(Method::GET, "/metrics", &[("accept", messages)], Bytes::new()).await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.body, "every metric\n");
}

#[tokio::test]
async fn an_objective_is_read_whole_or_refused_with_what_is_wrong() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let asked = client.post("/admin/v1/objective", &[], r#"{"model": "echo", "slo_ms": 40}"#).await;
    assert_eq!((asked.status.as_u16(), asked.json()), (200, json!({"applied": false})));
    let unknown =
        client.post("/admin/v1/objective", &[], r#"{"model": "no", "apply": true}"#).await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["reason"]),
        (404, &json!("unknown_model"))
    );
    for body in ["", "{}", r#"{"model": 3}"#, r#"{"model": "echo", "slo": 40}"#, "[1"] {
        let refused = client.post("/admin/v1/objective", &[], body).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["reason"]), (422, &json!("invalid")));
    }
    assert_eq!(client.get("/admin/v1/objective").await.status, 405);
}

#[tokio::test]
async fn an_order_is_read_from_its_path_its_body_and_its_query() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let drain = "/admin/v1/workers/east/drain";
    let drained = client.post(drain, &[], r#"{"by": "ada", "apply": true}"#).await;
    assert_eq!(drained.json(), json!({"by": "ada", "applied": true}));
    assert_eq!(client.post(drain, &[], "").await.json(), json!({"by": "admin", "applied": false}));
    let unknown = client.post("/admin/v1/workers/west/drain", &[], "").await;
    assert_eq!(
        (unknown.status.as_u16(), &unknown.json()["reason"]),
        (404, &json!("unknown_worker"))
    );
    let delete = async |client: &mut Client, path: &str| {
        client.send(Method::DELETE, path, &[], Bytes::new()).await
    };
    let back = delete(&mut client, &format!("{drain}?by=bob")).await;
    assert_eq!(back.json(), json!({"by": "bob"}));
    let at = json!({"worker": "rack 1/east", "gpu": 2, "position": "3g.40gb@4"});
    let pin = "/admin/v1/models/digits/pin";
    let pinned = client.post(pin, &[], at.to_string()).await;
    assert_eq!(pinned.json(), json!({"model": "digits", "at": at}));
    let query = "worker=rack%201%2Feast&gpu=2&position=3g.40gb%404";
    let unpinned = delete(&mut client, &format!("{pin}?{query}")).await;
    assert_eq!(unpinned.json(), json!({"model": "digits", "at": at}));
    for path in [format!("{pin}?gpu=2"), format!("{pin}?{query}&for=ever"), format!("{drain}?to=x")]
    {
        let refused = delete(&mut client, &path).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["reason"]), (422, &json!("invalid")));
    }
    assert_eq!(client.get(drain).await.status, 405);
    assert_eq!(client.get(pin).await.status, 405);
}

#[tokio::test]
async fn readyz_lists_every_check_if_asked() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.post("/v2/repository/models/echo/unload", &[], "").await;
    let mut client = server.admin_client().await;
    let readyz = client.get("/readyz?verbose").await;
    assert_eq!(readyz.status, 200);
    assert_eq!(
        readyz.body,
        "[+]not draining ok\n[+]model echo ok: unloaded by request\n[+]model wide ok\n\
         [+]model a/b c ok\n[-]model cold failed: no replica is warm yet\nready\n"
    );
    assert_eq!(client.get("/readyz").await.json()["ready"], true);
    assert_eq!(client.get("/livez").await.status, 200, "liveness does not depend on models");
}

#[tokio::test]
async fn readyz_needs_every_model_where_the_router_is_strict() {
    let server = Server::limited(|settings| settings.ready = config::ReadyWhen::All).await;
    let mut client = server.admin_client().await;
    let readyz = client.get("/readyz?verbose").await;
    assert_eq!(readyz.status, 503);
    let said = String::from_utf8_lossy(&readyz.body).into_owned();
    assert!(said.ends_with("[-]model cold failed: no replica is warm yet\nnot ready\n"), "{said}");
    let reply = client.get("/readyz").await;
    assert_eq!((reply.status.as_u16(), &reply.json()["reason"]), (503, &json!("no_replica")));
}

#[tokio::test]
async fn state_config_workers_models_and_tenants_are_json() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    assert_eq!(client.get("/admin/v1/state").await.json(), json!({"models": []}));
    assert_eq!(client.get("/admin/v1/config").await.json(), json!({"router": {}}));
    assert_eq!(client.get("/admin/v1/workers").await.json(), json!({"workers": []}));
    let tenants = client.get("/admin/v1/tenants").await.json();
    assert_eq!(tenants["tenants"][0]["name"], "other", "{tenants}");
    let models = client.get("/admin/v1/models").await.json();
    assert_eq!(models["models"][0]["state"], "ready");
    assert_eq!(models["models"][3]["state"], "loading");
}

#[tokio::test]
async fn a_reload_reports_changes_or_every_problem() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let done = client.post("/admin/v1/reload", &[], "").await;
    assert_eq!((done.status.as_u16(), done.json()), (200, json!({"changes": []})));

    let problems = vec!["a.toml:1:1: one".to_owned(), "a.toml:2:1: two".to_owned()];
    server.fail_reload(ReloadError::Invalid { problems: problems.clone() });
    let invalid = client.post("/admin/v1/reload", &[], "").await;
    assert_eq!(invalid.status, 422);
    assert_eq!(invalid.json()["problems"], json!(problems));
    assert_eq!(invalid.error(), "the new configuration has 2 problems; the old one stays");

    let why = "listen needs a restart".to_owned();
    server.fail_reload(ReloadError::Conflict { why });
    assert_eq!(client.post("/admin/v1/reload", &[], "").await.status, 409);
    assert_eq!(client.get("/admin/v1/reload").await.status, 405);
}

#[tokio::test]
async fn a_drain_over_http_is_a_drain_by_signal() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let replied = client.post("/admin/v1/drain", &[], "").await;
    assert_eq!(replied.status, 202);
    assert_eq!(replied.json(), json!({"draining": true, "delay_s": 0.0, "timeout_s": 3600.0}));
    assert_eq!(soon("the end", server.ended).await.unwrap(), Ended::Finished);
    let mut client = Client::connect(server.admin).await;
    assert_eq!(client.get("/metrics").await.status, 200, "admin outlives the front door");
}

#[tokio::test]
async fn what_is_not_there_yet_says_so() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let replied = client.get("/admin/v1/plan/input").await;
    assert_eq!(replied.status, 501);
    assert!(replied.error().ends_with("is not supported"));
    assert_eq!(client.get("/admin/v1/nothing").await.status, 404);
    assert_eq!(client.get("/elsewhere").await.status, 404);
}

#[tokio::test]
async fn where_there_are_no_loans_there_are_no_jobs() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    for path in ["/admin/v1/jobs", "/admin/v1/jobs/7", "/admin/v1/jobs/7/logs"] {
        let replied = client.get(path).await;
        assert_eq!((replied.status.as_u16(), &replied.json()["reason"]), (403, &json!("no_loans")));
    }
    assert_eq!(
        client.post("/admin/v1/jobs/7", &[], "").await.header("allow"),
        Some("GET, HEAD, DELETE")
    );
}

#[tokio::test]
async fn the_console_is_served_whole_and_may_run_nothing_but_itself() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let page = client.get("/").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap_or_default();
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(!text.contains("src=\"http") && !text.contains("href=\"http"), "it needs the network");
    for (path, kind) in [("/console.css", "text/css"), ("/console.js", "text/javascript")] {
        assert!(text.contains(&path[1..]), "the page does not name {path}");
        let found = client.get(path).await;
        assert_eq!(found.header("content-type"), Some(&*format!("{kind}; charset=utf-8")));
    }
}

#[tokio::test]
async fn events_are_the_past_once_and_then_the_state_until_the_router_closes() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.admin).await;
    raw.say(b"GET /admin/v1/events HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    server.signal.send(StopSignal::Terminate).await.unwrap();
    let said = soon("the end of the stream", raw.rest()).await;
    assert!(said.contains("content-type: text/event-stream"), "{said}");
    assert!(said.contains("event: history\ndata: {}\n\n"), "{said}");
}

#[tokio::test]
async fn a_web_page_cannot_drain_the_router() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    let from_page = [("origin", "http://elsewhere.example")];
    let replied = client.post("/admin/v1/drain", &from_page, "").await;
    assert_eq!(replied.status, 403);
    assert!(!server.state.drain.is_draining());
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones_and_a_wrong_path_is_repeated_whole() {
    let server = Server::start().await;
    let mut client = server.admin_client().await;
    for (path, method, right) in [
        ("/metrics", Method::POST, "GET, HEAD"),
        ("/admin/v1/state", Method::DELETE, "GET, HEAD"),
        ("/admin/v1/drain", Method::GET, "POST"),
    ] {
        let replied = client.send(method, path, &[], Bytes::new()).await;
        assert_eq!(
            (replied.status.as_u16(), replied.header("allow")),
            (405, Some(right)),
            "{path}"
        );
        assert_eq!(replied.json()["reason"], "wrong_method", "{path}");
    }
    for path in ["/elsewhere", "/admin", "/admin/", "/admin/v1", "/admin/v1/nothing"] {
        let replied = client.get(path).await;
        assert_eq!(replied.status, 404, "{path}");
        assert_eq!(replied.error(), format!("nothing is served at {path:?}"));
    }
}

#[tokio::test]
async fn a_body_nobody_asked_for_does_not_cost_the_connection() {
    let length = 8 << 20;
    let server = Server::limited(|settings| settings.max_body_bytes = length).await;
    let mut raw = Raw::connect(server.admin).await;
    raw.say(b"POST /admin/v1/nothing HTTP/1.1\r\nhost: localhost\r\n").await;
    raw.say(format!("content-length: {length}\r\n\r\n").as_bytes()).await;
    raw.say(&vec![b' '; length as usize]).await;
    raw.say(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    let said = raw.rest().await;
    assert!(said.starts_with("HTTP/1.1 404 Not Found"), "{said}");
    assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
}
