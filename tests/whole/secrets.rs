//! Keys for tests, and that the program keeps them to itself.

use sha2::{Digest, Sha256};

use crate::{
    client::{Body, Client},
    endpoints,
    setup::Setup,
    wait::eventually,
};

pub(crate) fn hash(key: &str) -> String {
    Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn no_secret_is_in_what_the_program_shows_or_logs() {
    let (tenant, operator, next) = (hash("tenant's"), hash("operator's"), hash("the next"));
    let setup = Setup::new()
        .router("access_log = \"all\"")
        .sleeper("echo", 1, "slo_ms = 1000")
        .tables(&format!("[[tenant]]\nname = \"search\"\nkey_sha256 = \"{tenant}\""))
        .tables(&format!(
            "[[key]]\nname = \"operator\"\nkey_sha256 = \"{operator}\"\nscopes = [\"admin\"]"
        ))
        .gpus(1);
    let text = setup.text();
    let program = setup.start();
    let authorization = [("authorization", "Bearer operator's")];
    let ask = |method: &str, path: &str| {
        let mut client = Client::connect(program.admin());
        client.send(method, path, &authorization, b"");
        let reply = client.receive();
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.text()
    };
    let mut shown: Vec<String> = ["config", "state", "workers", "models", "tenants"]
        .iter()
        .map(|view| ask("GET", &format!("/admin/v1/{view}")))
        .collect();
    assert!(shown[0].contains("search") && shown[0].contains("key_sha256"), "{}", shown[0]);
    shown.push(ask("GET", "/metrics"));
    program.rewrite(&text.replace(&tenant, &next));
    let report = ask("POST", "/admin/v1/reload");
    assert!(report.contains("key_sha256"), "{report}");
    shown.push(report);
    shown.push(program.log());
    for secret in [tenant, operator, next, "operator's".to_owned()] {
        for text in &shown {
            assert!(!text.contains(&secret), "{secret} is in {text}");
        }
    }
    for text in &shown[..5] {
        assert!(!text.contains("\"token\""), "an executor's token may be in {text}");
    }
}

#[test]
fn nothing_that_callers_send_is_in_logs_metrics_or_dumps() {
    let setup = Setup::new()
        .router("access_log = \"all\"")
        .sleeper("echo", 1, "slo_ms = 20000")
        .tables(
            "[[model]]\nname = \"served\"\nengine = \"server\"\ncommand = [\"/bin/sleep\", \"999\"]\n\
             slo_ms = 1000\nenvironment = { HF_TOKEN = \"canary-environment\" }\n\
             replicas = { min = 1, max = 1 }",
        )
        .gpus(2);
    let mut program = setup.launch_with("up", &[("RUST_LOG", "debug")]);
    program.wait_listening();
    eventually("echo serves", || {
        (program.client().infer("echo", &Body::row()).status == 200).then_some(())
    });
    let canaries = ["canary-key", "canary-body", "canary-environment", "86753.25"];
    let data = [86753.25, 1.0, 2.0, 3.0];
    for body in [Body::json(&data), Body::binary(&data)] {
        let reply =
            program.client().infer("echo", &body.with("authorization", "Bearer canary-key"));
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    let mangled =
        "{\"inputs\": [{\"name\": \"canary-body\", \"datatype\": \"FP32\", \"data\": [86753.25";
    for path in ["/v2/models/echo/infer", "/v2/repository/index", "/v2/repository/models/echo/load"]
    {
        let reply = program.client().post(path, &[], mangled.as_bytes());
        assert_eq!(reply.status, 400, "{path}: {}", reply.text());
    }
    let wrong = "{\"inputs\": [{\"name\": \"canary-body\", \"datatype\": \"FP32\", \"shape\": [1], \"data\": [86753.25]}]}";
    assert_eq!(program.client().post("/v2/models/echo/infer", &[], wrong.as_bytes()).status, 400);
    for endpoint in endpoints::of_admin().iter().filter(|endpoint| endpoint.audited) {
        if !endpoint.path.ends_with("/drain") {
            let mut client = Client::connect(program.admin());
            let bearer = [("authorization", "Bearer canary-key")];
            client.send(endpoint.verb, &endpoint.example(), &bearer, mangled.as_bytes());
            client.status();
        }
    }
    let mut shown = vec![("log", program.log())];
    for endpoint in endpoints::of_admin().iter().filter(|endpoint| !endpoint.audited) {
        // Events have no end; they are the state again and again.
        if !endpoint.path.ends_with("/events") {
            shown.push(("page", program.ask_admin(&endpoint.example()).text()));
        }
    }
    assert!(shown[0].1.contains("\"access\""), "access lines are shown: {}", shown[0].1);
    for (what, text) in &shown {
        for canary in canaries {
            assert!(!text.contains(canary), "{canary} is in a {what}: {text}");
        }
    }
}
