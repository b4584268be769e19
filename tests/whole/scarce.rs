//! A full disk and no descriptors left, as the kernel makes a real process feel them.

use std::{collections::BTreeSet, fs};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::{
    client::{Body, Client},
    program::Program,
    setup::Setup,
    training::{lender, post, wait_state},
    wait::eventually,
};

/// Has the program make do with `most` of something from now on; none is no limit.
pub(crate) fn limit(program: &Program, resource: Resource, most: Option<u64>) {
    let pid = Pid::from_raw(program.pid().try_into().unwrap());
    let now = prlimit(pid, resource, Rlimit { current: most, maximum: None });
    // Only root may raise what was lowered, so the upper bound stays as it is.
    if now.is_err() {
        let maximum = rustix::process::getrlimit(resource).maximum;
        prlimit(pid, resource, Rlimit { current: most.or(maximum), maximum }).unwrap();
    }
}

/// The least number that no descriptor of the program has.
fn first_free_descriptor(program: &Program) -> u64 {
    let entries = fs::read_dir(format!("/proc/{}/fd", program.pid())).unwrap();
    let number = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let taken: BTreeSet<u64> =
        entries.map(|entry| number(entry).to_str().unwrap().parse().unwrap()).collect();
    (0..).find(|number| !taken.contains(number)).unwrap()
}

#[test]
fn full_disk_rejects_jobs_while_inference_continues() {
    let program = lender("notice_s = 1").start();
    let job = json!({"argv": ["/bin/sh", "-c", "true"], "retries": 0});
    let state = program.folder().path().join("state/state.log");
    let length = fs::metadata(&state).unwrap().len();
    limit(&program, Resource::Fsize, Some(length + 10));
    let mut client = program.client();
    for _ in 0..3 {
        let refused = post(&program, &job, &[]);
        assert_eq!((refused.status, refused.reason().as_str()), (503, "storage"));
        let why = refused.json()["error"].to_string();
        assert!(why.contains("could not be kept") && why.contains("cannot write"), "{why}");
        assert_eq!(client.infer("m", &Body::row()).status, 200);
    }
    assert_eq!(fs::metadata(&state).unwrap().len(), length, "nothing of them is left");
    assert_eq!(program.ask_admin("/readyz").status, 200);
    limit(&program, Resource::Fsize, None);
    let taken = post(&program, &job, &[]);
    assert_eq!(taken.status, 201, "{}", taken.text());
    wait_state(&program, taken.json()["id"].as_u64().unwrap(), "done");
}

#[test]
fn without_descriptors_new_connections_wait() {
    let program = Setup::new().sleeper("m", 2, "slo_ms = 20000").gpus(1).start();
    let mut open = program.client();
    assert_eq!(open.infer("m", &Body::row()).status, 200);
    // Connections of the start may still be closing; those that close later leave room.
    eventually("there is no room", || {
        limit(&program, Resource::Nofile, Some(first_free_descriptor(&program)));
        let mut stranger = Client::connect(program.inference());
        stranger.send_infer("m", &Body::row());
        open.infer("m", &Body::row());
        program.log().contains("cannot accept; new connections wait").then_some(())
    });
    let mut waiting: Vec<_> = (0..5).map(|_| Client::connect(program.inference())).collect();
    waiting.iter_mut().for_each(|client| client.send_infer("m", &Body::row()));
    for _ in 0..20 {
        assert_eq!(open.infer("m", &Body::row()).status, 200);
    }
    limit(&program, Resource::Nofile, Some(1024));
    for client in &mut waiting {
        assert_eq!(client.receive().status, 200, "it was let in in the end");
    }
    let complaints = program.log().matches("cannot accept").count();
    assert!(complaints <= 4, "{complaints} complaints of the same");
    assert_eq!(program.ask_admin("/readyz").status, 200);
}
