//! What a router has learned outlives it, however it ends.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, Signal};
use serde_json::Value;

use crate::{
    program::{Program, ROOT},
    scarce::limit,
    setup::{ONE_GPU, Setup},
    split::{self, Split, TOKEN},
    wait::eventually,
};

fn setup() -> Setup {
    Setup::new().digits("slo_ms = 500\nmax_batch = 4").router("state_dir = \"state\"")
}

/// What the planner knows of how fast digits is.
pub(crate) fn measured(router: &Program) -> Option<Vec<Value>> {
    let reply = router.ask_admin("/admin/v1/plan/input");
    if reply.status != 200 {
        return None;
    }
    let input = reply.json();
    let models = input["models"].as_array()?;
    let digits = models.iter().find(|model| model["name"] == "digits")?;
    digits["measured"].as_array().cloned()
}

fn file(router: &Program) -> PathBuf {
    router.folder().path().join("state/learned.log")
}

fn learned(router: &Program) -> String {
    fs::read_to_string(file(router)).unwrap_or_default()
}

/// Waits until a warm-up of digits is in the file, kills both programs, and starts another router: it
/// must know what the one before did, which nobody but the file can have told it.
fn outlives_a_kill(mut fleet: Split) {
    eventually("the warm-up is written down", || {
        learned(&fleet.router).contains("\"model/digits\"").then_some(())
    });
    let before = eventually("the planner knows digits", || {
        measured(&fleet.router).filter(|known| !known.is_empty())
    });
    fleet.worker.signal(Signal::KILL);
    fleet.worker.wait_end();
    let fleet = fleet.replace_router();
    assert_eq!(fleet.router.workers().len(), 0, "no worker has reported");
    let after = eventually("the planner has looked", || measured(&fleet.router));
    assert_eq!(after, before);
}

#[test]
fn after_a_kill_the_planner_knows_a_model_it_has_no_replica_of() {
    outlives_a_kill(Split::start(setup(), ONE_GPU));
}

#[test]
fn learned_data_is_persisted_after_a_full_disk() {
    let (mut router, door) = split::router(setup());
    let (path, empty) = (file(&router), learned(&router));
    limit(&router, Resource::Fsize, Some(empty.len() as u64 + 10));
    let mut worker = split::worker(&door, TOKEN, "alpha", ONE_GPU);
    worker.wait_word("worker ");
    router.wait_word("ready");
    let three = fs::read(Path::new(ROOT).join("configs/models/three.json")).unwrap();
    let mut client = router.client();
    let mut ask = || {
        assert_eq!(client.post("/v2/models/digits/infer", &[], &three).status, 200);
    };
    let complaints = || router.log().matches("failed to persist what was learned").count();
    // What was begun and taken back leaves its mark on the file's time alone.
    let mut tries = BTreeSet::new();
    eventually("it was tried more than once", || {
        ask();
        tries.insert(fs::metadata(&path).unwrap().modified().unwrap());
        (tries.len() > 3 && complaints() > 0).then_some(())
    });
    assert_eq!(complaints(), 1, "{}", router.log());
    assert_eq!(router.ask_admin("/readyz").status, 200);
    assert_eq!(fs::read_to_string(&path).unwrap(), empty, "nothing of it is left");
    limit(&router, Resource::Fsize, None);
    eventually("it is kept again", || {
        ask();
        router.log().contains("what was learned is persisted again").then_some(())
    });
    assert_eq!(complaints(), 1, "{}", router.log());
    outlives_a_kill(Split { router, worker, door });
}

#[test]
fn a_damaged_memory_is_refused_with_its_line_and_left_as_it_is() {
    let (mut router, _) = split::router(setup());
    let path = file(&router);
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
