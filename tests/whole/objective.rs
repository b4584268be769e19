//! Another objective for a running program: its effect first, then whole or not at all.

use serde_json::{Value, json};

use crate::{
    client::{Body, Client, Reply},
    program::Program,
    setup::Setup,
    wait::eventually,
};

fn start() -> Program {
    let setup = Setup::new().sleeper("slow", 5, "slo_ms = 1000\nmax_batch = 8").gpus(1);
    setup.start()
}

fn ask(program: &Program, asked: &Value) -> Reply {
    let body = asked.to_string();
    Client::connect(program.admin()).post("/admin/v1/objective", &[], body.as_bytes())
}

fn objective(program: &Program) -> (Value, Value) {
    let state = program.state("slow");
    (state["slo_ms"].clone(), state["slo_target"].clone())
}

#[test]
fn objective_preview_changes_nothing() {
    let program = start();
    let asked = json!({"model": "slow", "slo_ms": 9});
    let told = eventually("the planner has decided on a replica that is there", || {
        let reply = ask(&program, &asked);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let told = reply.json();
        (told["effect"]["before"]["capacity_rps"].as_f64()? > 0.0).then_some(told)
    });
    let change = json!({"path": "model.slow.slo_ms", "old": "1000", "new": "9", "effect": "live"});
    assert_eq!((&told["applied"], &told["changes"]), (&json!(false), &json!([change])));
    let (before, after) = (&told["effect"]["before"], &told["effect"]["after"]);
    assert_eq!((&before["replicas"], &before["gpus_used"]), (&json!(1), &json!(1)), "{told}");
    assert_eq!(before["refusals"], json!([]), "{told}");
    assert_ne!(after["refusals"], json!([]), "two batches of 5 ms do not fit 9 ms: {told}");
    assert_eq!(objective(&program), (json!(1000.0), json!(0.99)));
}

#[test]
fn an_objective_that_is_applied_holds_until_the_next_reload() {
    let program = start();
    let asked = json!({"model": "slow", "slo_ms": 40, "slo_target": 0.9, "apply": true});
    let reply = ask(&program, &asked);
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(objective(&program), (json!(40.0), json!(0.9)));
    let kept = reply.json()["until_reload"].to_string();
    assert!(kept.contains("slo_ms = 1000 (") && kept.contains("sluice.toml:"), "{kept}");
    program.wait_log("operator changed an objective");
    assert_eq!(program.metrics().value("sluice_objective_seconds{model=\"slow\"}"), 0.04);
    assert_eq!(program.client().infer("slow", &Body::row()).status, 200);
    let changes = program.reload().json()["changes"].as_array().unwrap().len();
    assert_eq!((changes, objective(&program)), (2, (json!(1000.0), json!(0.99))));
}

#[test]
fn an_objective_that_the_file_could_not_have_is_refused_whole() {
    let program = start();
    let wrong = [
        (json!({"slo_ms": 2, "slo_target": 0.9}), 422, "takes 5 ms at best"),
        (json!({"slo_ms": 0, "slo_target": 0.9}), 422, "slo_ms is 0; give 1 to"),
        (json!({"slo_ms": 500, "slo_target": 99}), 422, "slo_target is 99"),
        (json!({"slo_ms": "fast"}), 422, "invalid type"),
        (json!({}), 422, "give slo_ms"),
        (json!({"model": "none", "slo_ms": 500}), 404, "no model named"),
    ];
    for (mut asked, status, words) in wrong {
        asked["apply"] = json!(true);
        if asked.get("model").is_none() {
            asked["model"] = json!("slow");
        }
        let reply = ask(&program, &asked);
        assert_eq!(reply.status, status, "{asked}: {}", reply.text());
        assert!(reply.text().contains(words), "{asked}: {}", reply.text());
    }
    assert_eq!(objective(&program), (json!(1000.0), json!(0.99)));
}
