//! Keys for tests, and that the program keeps them to itself.

use sha2::{Digest, Sha256};

use crate::{client::Client, setup::Setup};

/// The hash of `key` as a configuration has it.
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
