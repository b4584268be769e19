//! What a router has learned outlives it, however it ends.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    program::Program,
    setup::Setup,
    split::{self, Split},
    wait::eventually,
};

const ONE_GPU: &str = "[[worker]]\ngpu = \"simulated:A100-80GB\"\n";

fn setup() -> Setup {
    Setup::new().digits("slo_ms = 500\nmax_batch = 4").router("state_dir = \"state\"")
}

/// What the planner knows of how fast digits is.
fn measured(router: &Program) -> Option<Vec<Value>> {
    let reply = router.ask_admin("/admin/v1/plan/input");
    if reply.status != 200 {
        return None;
    }
    let input = reply.json();
    let models = input["models"].as_array()?;
    let digits = models.iter().find(|model| model["name"] == "digits")?;
    digits["measured"].as_array().cloned()
}

fn learned(router: &Program) -> String {
    let path = router.folder().path().join("state/learned.log");
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn after_a_kill_the_planner_knows_a_model_it_has_no_replica_of() {
    let mut fleet = Split::start(setup(), ONE_GPU);
    eventually("the warm-up is written down", || {
        learned(&fleet.router).contains("\"model/digits\"").then_some(())
    });
    let before = eventually("the planner knows digits", || {
        measured(&fleet.router).filter(|known| !known.is_empty())
    });
    fleet.worker.signal(Signal::KILL);
    fleet.worker.wait_end();
    let fleet = fleet.replace_router();
    assert_eq!(fleet.router.workers().len(), 0, "nobody can have told it");
    let after = eventually("the planner has looked", || measured(&fleet.router));
    assert_eq!(after, before);
}

#[test]
fn a_damaged_memory_is_refused_with_its_line_and_left_as_it_is() {
    let (mut router, _) = split::router(setup());
    let path = router.folder().path().join("state/learned.log");
    router.signal(Signal::KILL);
    router.wait_end();
    let text = format!("00000000 {{}}\n{}", fs::read_to_string(&path).unwrap());
    fs::write(&path, &text).unwrap();
    let config = router.folder().path().join("sluice.toml");
    let mut router = router.again(&["router", "--config", config.to_str().unwrap()]);
    let (code, log) = router.wait_end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("learned.log:1: the state file is damaged here"), "{log}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}
