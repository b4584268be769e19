//! A successor that fails, at whatever step: the running one takes all back and serves on.

use std::{fs, path::PathBuf, time::Duration};

use router::handover::{
    Channel,
    message::{FromNew, FromOld, Hello, VERSIONS},
    path_in,
};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::UnixStream;

use crate::{
    client::{Body, Client},
    handover::{file, replace},
    program::Program,
    steady_load::SteadyLoad,
    training::{Counting, lender, post, wait_state},
    wait::eventually,
};

const WAIT: Duration = Duration::from_secs(60);

/// The steps after which a successor can be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Connected,
    Hello,
    Attached,
    Frozen,
    Ready,
}

fn socket(program: &Program) -> PathBuf {
    path_in(&program.folder().path().join("state/run"))
}

/// Begins to replace `program`, and hangs up after `last`.
async fn begin(program: &Program, last: Step) {
    let stream = UnixStream::connect(socket(program)).await.unwrap();
    let mut channel = Channel::over(stream).unwrap();
    let hello =
        Hello { versions: VERSIONS.to_vec(), program: "test".to_owned(), command: "up".to_owned() };
    let steps = [
        (Step::Hello, FromNew::Hello(hello)),
        (Step::Attached, FromNew::Attached),
        (Step::Ready, FromNew::Ready),
    ];
    for (step, message) in steps.into_iter().filter(|(step, _)| *step <= last) {
        channel.say(&message).await.unwrap();
        match (step, last) {
            (Step::Hello, _) => {
                let FromOld::Offer(offer) = channel.hear(WAIT).await.unwrap() else {
                    panic!("no offer")
                };
                assert_eq!(offer.listeners, ["inference", "admin"]);
                assert_eq!(channel.receive(2, WAIT).await.unwrap().len(), 2);
            }
            (Step::Attached, Step::Frozen | Step::Ready) => {
                let frozen = channel.hear(WAIT).await.unwrap();
                assert!(matches!(frozen, FromOld::Frozen(_)), "{frozen:?}");
                let reply = Client::connect(program.admin()).post(
                    "/admin/v1/jobs",
                    &[],
                    json!({"argv": ["/bin/sh", "-c", "exit 0"]}).to_string().as_bytes(),
                );
                assert_eq!((reply.status, reply.reason().as_str()), (503, "unavailable"));
            }
            (Step::Ready, _) => {
                let counts: FromOld = channel.hear(WAIT).await.unwrap();
                assert!(matches!(counts, FromOld::Counts { .. }), "{counts:?}");
                assert_eq!(channel.hear::<FromOld>(WAIT).await.unwrap(), FromOld::Go);
            }
            (Step::Attached | Step::Connected | Step::Frozen, _) => {}
        }
    }
}

#[test]
fn a_successor_that_dies_at_any_step_changes_nothing() {
    let program = lender("").start();
    let training = Counting::submit(&program, 1, &program.folder().path().join("state/run"));
    training.wait_half(&program);
    let (executors, rank) = (program.executors(), training.pid(0));
    let load = SteadyLoad::start(program.inference(), 90);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let steps = [Step::Connected, Step::Hello, Step::Attached, Step::Frozen, Step::Ready];
    for (failed, step) in (1..).zip(steps) {
        runtime.block_on(begin(&program, step));
        eventually("the failure is noticed", || {
            let log = program.log();
            let times = log.matches("handover failed; this process keeps serving").count();
            (times == failed).then_some(())
        });
        load.wait_served(5);
        eventually("the executors are adopted again", || {
            (program.executors() == executors).then_some(())
        });
        let again = json!({"argv": ["/bin/sh", "-c", "exit 0"], "retries": 0});
        let reply = post(&program, &again, &[]);
        assert_eq!(reply.status, 201, "after {step:?}: {}", reply.text());
        wait_state(&program, reply.json()["id"].as_u64().unwrap(), "done");
    }
    load.wait_served(5);
    load.stop();
    assert_eq!((training.pid(0), training.starts(0).len()), (rank, 1), "the job never stopped");
    training.go();
    wait_state(&program, training.id, "done");
    // What failed before does not keep a real one from succeeding.
    let mut new = replace_after_failures(program);
    assert_eq!(new.client().infer("m", &Body::row()).status, 200);
    new.signal(Signal::TERM);
    assert_eq!(new.wait_end().0, Some(0));
}

#[track_caller]
fn replace_after_failures(mut old: Program) -> Program {
    let config = file(&old);
    let mut new = old.beside(&["up", "--config", config.to_str().unwrap(), "--replace"], &[]);
    new.wait_ready();
    assert_eq!(old.wait_end().0, Some(0));
    new
}

/// Tries to replace `program`, and returns the exit code and what was said.
#[track_caller]
fn try_replace(program: &Program, command: &str) -> (Option<i32>, String) {
    let config = file(program);
    let args = [command, "--config", config.to_str().unwrap(), "--replace"];
    program.beside(&args, &[]).wait_end()
}

#[test]
fn what_cannot_work_is_refused_before_anything_happens() {
    let program = lender("").start();
    let path = file(&program);
    let text = fs::read_to_string(&path).unwrap();
    let serves = |program: &Program| {
        assert_eq!(program.client().infer("m", &Body::row()).status, 200);
        assert!(!program.log().contains("took control back"), "{}", program.log());
    };

    fs::write(&path, format!("{text}\nmood = \"bad\"\n")).unwrap();
    let (code, log) = try_replace(&program, "up");
    assert_eq!(code, Some(78), "{log}");
    serves(&program);

    fs::write(&path, format!("{text}\n[tls]\ncert = \"none.pem\"\nkey = \"none.key\"\n")).unwrap();
    let (code, log) = try_replace(&program, "up");
    assert_eq!(code, Some(78), "{log}");
    serves(&program);
    fs::write(&path, &text).unwrap();

    let state = program.folder().path().join("state/state.log");
    let kept = fs::read_to_string(&state).unwrap();
    let header = r#"{"format":"sluice-state","version":99}"#;
    let newer = format!("{:08x} {header}\n", crc32fast::hash(header.as_bytes()));
    fs::write(&state, &newer).unwrap();
    let (code, log) = try_replace(&program, "up");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("state.log has version 99; this program reads up to 1"), "{log}");
    serves(&program);
    assert_eq!(fs::read_to_string(&state).unwrap(), newer, "nobody touched it");
    fs::write(&state, kept).unwrap();

    let mut new = replace(program, "up");
    new.signal(Signal::TERM);
    assert_eq!(new.wait_end().0, Some(0));
}
