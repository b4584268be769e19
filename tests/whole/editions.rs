//! A replaced model file is a new edition: loaded beside the old one, or refused with the old one kept.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::Reply,
    program::{Program, ROOT},
    setup::Setup,
    steady::Steady,
    wait::eventually,
};

const ONE: &str = "replicas = { min = 1, max = 1 }\nmemory_mib = 100";

fn demo(model: &str) -> Vec<u8> {
    fs::read(Path::new(ROOT).join(format!("configs/models/{model}.onnx"))).unwrap()
}

fn infer(program: &Program) -> Reply {
    let three = fs::read(Path::new(ROOT).join("configs/models/three.json")).unwrap();
    program.client().post("/v2/models/digits/infer", &[], &three)
}

/// The name of the input that the model in rotation takes.
fn input(program: &Program) -> Value {
    program.client().get("/v2/models/digits").json()["inputs"][0]["name"].clone()
}

fn replace(program: &Program, bytes: &[u8]) {
    program.folder().write("digits.onnx", bytes);
}

fn paths(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let changes = reply.json()["changes"].as_array().cloned().unwrap_or_default();
    changes.iter().map(|change| change["path"].as_str().unwrap().to_owned()).collect()
}

fn load(program: &Program) -> Reply {
    program.client().post("/v2/repository/models/digits/load", &[], b"{}")
}

#[test]
fn replaced_file_is_served_after_a_reload_without_a_gap() {
    let setup = Setup::new().digits(&format!("slo_ms = 20000\n{ONE}"));
    let program = setup.sleeper("sound", 2, "slo_ms = 20000").gpus(2).start();
    assert_eq!(input(&program), "image");
    let steady = Steady::start(&program, "sound");
    assert_eq!(paths(&program.reload()), [""; 0], "nothing changed");
    replace(&program, &demo("langid"));
    assert_eq!(paths(&program.reload()), ["model.digits.path (content)"]);
    eventually("the new one serves, and one always did", || {
        let reply = infer(&program);
        // The picture is no text: the new one refuses it.
        match reply.status {
            200 => None,
            status => {
                assert_eq!(status, 400, "{}", reply.text());
                Some(())
            }
        }
    });
    assert_eq!(input(&program), "text");
    assert_eq!(paths(&program.reload()), [""; 0]);
    steady.stop();
}

#[test]
fn broken_file_leaves_the_old_one_serving_until_it_is_mended() {
    let setup = Setup::new().digits(&format!("slo_ms = 20000\n{ONE}"));
    let program = setup.sleeper("sound", 2, "slo_ms = 20000").gpus(2).start();
    let steady = Steady::start(&program, "sound");
    let real = demo("digits");
    for (what, bytes) in [("cut", &real[..real.len() / 2]), ("wrong", b"this is no model")] {
        replace(&program, bytes);
        assert_eq!(paths(&program.reload()), ["model.digits.path (content)"], "{what}");
        let reason = eventually("its replica failed", || {
            assert_eq!(infer(&program).status, 200, "{what}");
            let slices = program.slices();
            let replicas = slices.iter().flat_map(|slice| slice["replicas"].as_array().unwrap());
            let failed = |one: &&Value| one["model"] == "digits" && one["state"] == "failed";
            let found = replicas.clone().find(failed)?["reason"].clone();
            Some(found.as_str().unwrap().to_owned())
        });
        assert!(reason.contains("digits.onnx"), "{what}: {reason}");
        program.wait_log("replica failed; those in rotation serve on");
        assert_eq!(program.ask_admin("/readyz").status, 200);
    }
    replace(&program, &demo("langid"));
    assert_eq!(paths(&program.reload()), ["model.digits.path (content)"]);
    eventually("the mended one serves", || (input(&program) == "text").then_some(()));
    steady.stop();
}

#[test]
fn load_compares_the_file_and_returns_with_the_new_one_serving() {
    let program = Setup::new().digits(&format!("slo_ms = 20000\n{ONE}")).gpus(1).start();
    assert_eq!(load(&program).json(), json!({}));
    replace(&program, &demo("langid"));
    assert_eq!(paths(&load(&program)), ["model.digits.path (content)"]);
    assert_eq!(input(&program), "text");
    replace(&program, b"this is no model");
    let refused = load(&program);
    assert_eq!((refused.status, refused.reason().as_str()), (503, "unavailable"));
    assert!(
        refused.json()["error"].as_str().unwrap().contains("digits.onnx"),
        "{}",
        refused.text()
    );
    assert_eq!(program.client().get("/v2/models/digits/ready").status, 200);
    assert_eq!(input(&program), "text", "the one before serves on");
}

#[test]
fn file_replaced_during_a_restart_is_served() {
    let setup = Setup::new().digits(&format!("slo_ms = 20000\n{ONE}")).gpus(1);
    let mut program = setup.router("state_dir = \"state\"\ndrain_delay_s = 0").start();
    let before = program.executors();
    program.signal(Signal::KILL);
    program.wait_end();
    replace(&program, &demo("langid"));
    let file = program.folder().path().join("sluice.toml");
    let args = ["up", "--config", file.to_str().unwrap()];
    let mut program = program.again(&args);
    program.wait_ready();
    program.wait_log("executor adopted");
    eventually("the new one serves", || (input(&program) == "text").then_some(()));
    program.signal(Signal::KILL);
    program.wait_end();
    let mut program = program.again(&args);
    program.wait_ready();
    assert_eq!(input(&program), "text");
    let after = program.executors();
    assert_eq!(after, before, "they are adopted, and the same file is not loaded again");
}

#[test]
fn file_that_differs_from_the_one_ordered_is_not_served() {
    let setup = Setup::new().digits(&format!("slo_ms = 20000\n{ONE}")).gpus(1);
    let program = setup.start();
    let pid = program.executors()[0];
    // Nobody says that it changed, and the executor must load it again.
    replace(&program, &demo("langid"));
    crate::process::signal(pid, Signal::KILL);
    eventually("the router looks again, and the new one serves", || {
        let metadata = program.client().get("/v2/models/digits");
        (metadata.status == 200 && input(&program) == "text").then_some(())
    });
    assert!(program.log().contains("changed while loading: "), "{}", program.log());
    program.wait_log("model file changed; loading it");
}

#[test]
fn version_changes_by_reload_once_the_new_one_serves() {
    let setup = Setup::new().digits(&format!("slo_ms = 20000\nversion = \"7\"\n{ONE}")).gpus(1);
    let text = setup.text();
    let program = setup.start();
    assert_eq!(program.client().get("/v2/models/digits/versions/7").status, 200);
    program.rewrite(&text.replace("version = \"7\"", "version = \"8\""));
    assert_eq!(paths(&program.reload()), ["model.digits.version"]);
    eventually("the new version serves, and one always did", || {
        assert_eq!(infer(&program).status, 200);
        (program.client().get("/v2/models/digits/versions/8").status == 200).then_some(())
    });
    assert_eq!(program.client().get("/v2/models/digits/versions/7").status, 404);
    assert_eq!(infer(&program).json()["model_version"], "8");
}
