//! Who may call, and how often.

use crate::{
    client::{Body, Client, Reply},
    program::Program,
    secrets::hash,
    setup::Setup,
    wait::eventually,
};

fn tenant(name: &str, more: &str) -> String {
    format!("[[tenant]]\nname = \"{name}\"\nkey_sha256 = \"{}\"\n{more}", hash(name))
}

/// Two tenants, one of them held to two requests a second, and an operator.
fn program() -> Program {
    let key = |name: &str, scope: &str| {
        let hash = hash(name);
        format!("[[key]]\nname = \"{name}\"\nkey_sha256 = \"{hash}\"\nscopes = [\"{scope}\"]")
    };
    Setup::new()
        .sleeper("echo", 1, "slo_ms = 20000\nmax_batch = 8")
        .tables(&tenant("free", "share = 2"))
        .tables(&tenant("held", "rate_rps = 2"))
        .tables(&key("operator", "admin"))
        .tables(&key("scheduler", "jobs"))
        .gpus(1)
        .start()
}

fn infer(program: &Program, authorization: Option<&str>) -> Reply {
    let body = match authorization {
        Some(value) => Body::row().with("authorization", value),
        None => Body::row(),
    };
    program.client().infer("echo", &body)
}

#[test]
fn only_a_known_key_may_infer() {
    let program = program();
    for wrong in [None, Some("Bearer nobody"), Some("Basic free"), Some("Bearer"), Some("free")] {
        let reply = infer(&program, wrong);
        assert_eq!((reply.status, reply.reason().as_str()), (401, "unauthorized"), "{wrong:?}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{wrong:?}");
    }
    assert_eq!(infer(&program, Some("Bearer free")).status, 200);
    let operator = infer(&program, Some("Bearer operator"));
    assert_eq!((operator.status, operator.reason().as_str()), (403, "forbidden"));
    assert_eq!(program.client().get("/v2/health/ready").status, 200, "health is open");
}

#[test]
fn only_the_tenant_over_its_rate_gets_429() {
    let program = program();
    let refused = (0..50)
        .map(|_| infer(&program, Some("Bearer held")))
        .find(|reply| reply.status != 200)
        .expect("fifty at once are more than two a second");
    assert_eq!((refused.status, refused.reason().as_str()), (429, "quota"), "{}", refused.text());
    assert!(refused.retry_after() >= Some(1));
    let body = refused.json();
    assert_eq!((&body["tenant"], &body["rate_rps"]), (&"held".into(), &2.0.into()), "{body}");
    assert_eq!(infer(&program, Some("Bearer free")).status, 200);
    assert!(program.metrics().refused("echo", "quota") >= 1);
}

#[test]
fn max_in_flight_holds_and_disconnects_free_it() {
    let setup = Setup::new()
        .sleeper("echo", 1, "slo_ms = 20000")
        .tables(&tenant("free", ""))
        .tables(&tenant("held", "max_in_flight = 3"))
        .gpus(1);
    let wider = setup.text().replace("max_in_flight = 3", "max_in_flight = 4");
    let program = setup.start();
    let wait_for = |count: u64| {
        eventually("as many are under way", || {
            let tenants = program.ask_admin("/admin/v1/tenants").json();
            let held = tenants["tenants"].as_array().unwrap()[1].clone();
            (held["in_flight"] == count).then_some(())
        });
    };

    let crowd = crowd(&program, 3);
    wait_for(3);
    let refused = infer(&program, Some("Bearer held"));
    assert_eq!((refused.status, refused.reason().as_str()), (429, "quota"), "{}", refused.text());
    assert!(refused.retry_after() >= Some(1));
    let told = refused.json();
    assert_eq!((&told["in_flight"], &told["max_in_flight"]), (&3.into(), &3.into()), "{told}");
    assert_eq!(infer(&program, Some("Bearer free")).status, 200, "others have room of their own");
    let metrics = program.metrics();
    assert_eq!(metrics.refused("echo", "quota"), 1);
    let over = "sluice_tenant_requests_total{tenant=\"held\",outcome=\"quota\"}";
    assert_eq!(metrics.value(over), 1.0);

    drop(crowd);
    wait_for(0);
    assert_eq!(infer(&program, Some("Bearer held")).status, 200, "who hung up made room");

    let (mut crowd, rest) = (self::crowd(&program, 3), Body::row().bytes);
    wait_for(3);
    program.rewrite(&wider);
    assert_eq!(program.reload().status, 200);
    assert_eq!(infer(&program, Some("Bearer held")).status, 200, "a reload made room for a fourth");
    for client in &mut crowd {
        client.say(&rest[1..]);
        assert_eq!(client.receive().status, 200);
    }
    wait_for(0);
}

/// Requests of `held` that are under way until the rest of their body is sent.
fn crowd(program: &Program, size: usize) -> Vec<Client> {
    let body = Body::row().bytes;
    let head = format!(
        "POST /v2/models/echo/infer HTTP/1.1\r\nhost: localhost\r\n\
         authorization: Bearer held\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let begin = |mut client: Client| {
        client.say(&[head.as_bytes(), &body[..1]].concat());
        client
    };
    (0..size).map(|_| begin(program.client())).collect()
}

#[test]
fn old_key_stops_working_at_the_reload() {
    let setup = Setup::new().sleeper("echo", 1, "slo_ms = 20000").gpus(1);
    let open = setup.text();
    let closed = |key: &str| {
        format!("{open}[[tenant]]\nname = \"search\"\nkey_sha256 = \"{}\"\n", hash(key))
    };
    let (old, new) = (closed("old"), closed("new"));
    let program = setup.start();
    assert_eq!(infer(&program, None).status, 200, "without tenants, inference is open");
    for (text, statuses) in [(&old, [401, 200, 401]), (&new, [401, 401, 200])] {
        program.rewrite(text);
        assert_eq!(program.reload().status, 200);
        let keys = [None, Some("Bearer old"), Some("Bearer new")];
        assert_eq!(keys.map(|key| infer(&program, key).status), statuses);
    }
}

#[test]
fn both_keys_work_until_the_old_one_is_removed() {
    let setup = Setup::new().sleeper("echo", 1, "slo_ms = 20000").gpus(1);
    let open = setup.text();
    let keys = |keys: &str| format!("{open}[[tenant]]\nname = \"search\"\nkey_sha256 = {keys}\n");
    let (old, new) = (hash("old"), hash("new"));
    let program = setup.start();
    for (keys, statuses) in [
        (keys(&format!("\"{old}\"")), [200, 401]),
        (keys(&format!("[\"{old}\", \"{new}\"]")), [200, 200]),
        (keys(&format!("[\"{new}\"]")), [401, 200]),
    ] {
        program.rewrite(&keys);
        let reload = program.reload();
        assert_eq!(reload.status, 200, "{}", reload.text());
        let asked = ["Bearer old", "Bearer new"].map(|key| infer(&program, Some(key)).status);
        assert_eq!(asked, statuses, "{keys}");
    }
}

#[test]
fn admin_is_for_the_admin_scope_and_health_and_metrics_for_all() {
    let program = program();
    let ask = |method: &str, path: &str, key: Option<&str>| {
        let mut client = Client::connect(program.admin());
        let authorization = key.map(|key| format!("Bearer {key}"));
        let headers: Vec<(&str, &str)> =
            authorization.iter().map(|value| ("authorization", value.as_str())).collect();
        client.send(method, path, &headers, b"");
        client.receive()
    };
    let guarded = [
        ("GET", "/admin/v1/state"),
        ("GET", "/admin/v1/config"),
        ("POST", "/admin/v1/reload"),
        ("POST", "/admin/v1/drain"),
    ];
    for (method, path) in guarded {
        assert_eq!(ask(method, path, None).status, 401, "{path}");
        assert_eq!(ask(method, path, Some("nobody")).status, 401, "{path}");
        for known in ["scheduler", "free"] {
            let reply = ask(method, path, Some(known));
            assert_eq!((reply.status, reply.reason().as_str()), (403, "forbidden"), "{path}");
        }
    }
    assert_eq!(ask("GET", "/admin/v1/state", Some("operator")).status, 200);
    assert_eq!(ask("POST", "/admin/v1/reload", Some("operator")).status, 200);
    for open in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(ask("GET", open, None).status, 200, "{open}");
    }
    let unload = "/v2/repository/models/echo/unload";
    let by_tenant = program.client().post(unload, &[("authorization", "Bearer free")], b"{}");
    assert_eq!(by_tenant.status, 403, "{}", by_tenant.text());
    assert_eq!(infer(&program, Some("Bearer free")).status, 200, "nobody drained or unloaded it");
}
