//! Several routers on a real etcd: who leads, what survives, and what users notice.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Body, count_from},
    etcd::Etcd,
    folder::Folder,
    program::Program,
    setup::Setup,
    split::TOKEN,
    training::{Counting, GPU, job, post, wait_state},
    wait::eventually,
};

pub(crate) struct Routers {
    etcd: Etcd,
    pub(crate) routers: Vec<Program>,
    pub(crate) worker: Program,
}

fn setup(etcd: &Etcd, name: &str) -> Setup {
    let settings = "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 1 }";
    let setup = Setup::new()
        .router("join_listen = \"127.0.0.1:0\"\njoin_token_file = \"token\"\ndrain_delay_s = 0")
        .sleeper("m", 5, settings)
        .tables("[loans]\nallow = [\"/bin/sh\"]")
        // A machine with other work may keep a leader from its clock for a while.
        .tables(&format!(
            "[etcd]\nendpoints = \"{}\"\nname = \"{name}\"\nlease_s = 5",
            etcd.endpoint()
        ));
    setup.folder().write("token", TOKEN);
    setup
}

pub(crate) fn router(etcd: &Etcd, name: &str) -> (Program, String) {
    let mut program = setup(etcd, name).launch_as("router");
    program.wait_listening();
    let door = program.wait_word("join ");
    (program, door)
}

pub(crate) fn worker(doors: &[String]) -> Program {
    let folder = Folder::new();
    folder.write("token", TOKEN);
    let text = format!(
        "[join]\nrouter = {doors:?}\ntoken_file = \"token\"\nrun_dir = \"run\"\nname = \"alpha\"\n\
         [loans]\nallow = [\"/bin/sh\"]\n{GPU}"
    );
    let file = folder.write("worker.toml", text);
    Program::launch(folder, &["worker", "--config", file.to_str().unwrap()], &[])
}

pub(crate) fn lead(program: &Program) -> Value {
    program.ask_admin("/admin/v1/state").json()["lead"].clone()
}

pub(crate) fn leads(program: &Program) -> Option<u64> {
    let lead = lead(program);
    (lead["role"] == "leads").then(|| lead["term"].as_u64().unwrap())
}

impl Routers {
    /// All of them, with more doors that the worker shall knock at, once both routers serve.
    pub(crate) fn start(others: &[String]) -> Self {
        let etcd = Etcd::start();
        let (first, door) = router(&etcd, "a");
        let (second, other) = router(&etcd, "b");
        let mut doors = vec![door, other];
        doors.extend_from_slice(others);
        let mut routers = vec![first, second];
        let worker = worker(&doors);
        routers.iter_mut().for_each(|router| {
            router.wait_word("ready");
        });
        Self { etcd, routers, worker }
    }

    #[track_caller]
    pub(crate) fn leader(&self) -> (usize, u64) {
        eventually("one leads", || {
            let found = |(index, router)| leads(router).map(|term| (index, term));
            self.routers.iter().enumerate().find_map(found)
        })
    }

    /// The executors of the worker, as one of the routers knows them.
    fn executors(&self, router: usize) -> Vec<u32> {
        self.routers[router].executors()
    }
}

#[track_caller]
fn serves(program: &Program) {
    assert_eq!(program.client().infer("m", &Body::row()).numbers(), count_from(1.0, 1));
}

#[test]
fn paused_leader_is_replaced_and_changes_nothing_on_resume() {
    let fleet = Routers::start(&[]);
    let (paused, old) = fleet.leader();
    let other = 1 - paused;
    let before = fleet.executors(other);
    fleet.routers[paused].signal(Signal::STOP);
    let new = eventually("the other leads", || {
        serves(&fleet.routers[other]);
        leads(&fleet.routers[other])
    });
    assert!(new > old, "{new} after {old}");
    fleet.routers[paused].signal(Signal::CONT);
    let woken = &fleet.routers[paused];
    eventually("it knows who leads", || {
        let lead = lead(woken);
        (lead["term"] != old && lead["leader"]["name"].is_string()).then_some(())
    });
    serves(woken);
    serves(&fleet.routers[other]);
    assert!(fleet.leader().1 >= new);
    assert_eq!(fleet.executors(other), before, "no step of the plan was taken twice");
    let begun = fleet.worker.log().matches("\"message\":\"executor started\"").count();
    assert_eq!(begun, before.len(), "{}", fleet.worker.log());
}

#[test]
fn paused_leader_without_worker_takes_no_step_twice() {
    let fleet = Routers::start(&[]);
    let (paused, old) = fleet.leader();
    let other = 1 - paused;
    let before = fleet.executors(other);
    let run = fleet.worker.folder().path().join("run");
    let begun = Counting::submit(&fleet.routers[paused], 1, &run);
    fleet.routers[paused].signal(Signal::STOP);
    let new = eventually("the other leads", || leads(&fleet.routers[other]));
    begun.go();
    wait_state(&fleet.routers[other], begun.id, "done");
    // All that a longer pause brings about beside: nobody speaks with it any more.
    eventually("the worker has hung up on it", || {
        fleet.worker.log().contains("the router was silent").then_some(())
    });
    fleet.routers[paused].signal(Signal::CONT);
    let late = post(&fleet.routers[paused], &json!({"argv": ["/bin/sh"]}), &[]);
    assert_eq!((late.status, late.reason().as_str()), (503, "not_leader"));
    eventually("the worker speaks with it again", || {
        let workers = fleet.routers[paused].workers();
        (workers.first()?["state"] == "connected").then_some(())
    });
    serves(&fleet.routers[paused]);
    assert!(new > old && fleet.leader().1 >= new, "{new} after {old}");
    assert_eq!(begun.starts(0), [(0, 1)], "it was started once");
    assert_eq!(fleet.executors(other), before, "no step of the plan was taken twice");
}

#[test]
fn a_job_outlives_the_leader_that_started_it_and_runs_once() {
    let mut fleet = Routers::start(&[]);
    let (leader, _) = fleet.leader();
    let other = 1 - leader;
    let refused = post(&fleet.routers[other], &json!({"argv": ["/bin/sh"]}), &[]);
    assert_eq!((refused.status, refused.reason().as_str()), (503, "not_leader"));
    let address = refused.json()["leader"].clone();
    assert_eq!(address, format!("http://{}", fleet.routers[leader].admin()));

    let run = fleet.worker.folder().path().join("run");
    let first = Counting::submit(&fleet.routers[leader], 1, &run);
    first.wait_half(&fleet.routers[leader]);
    let waits = Counting::submit(&fleet.routers[leader], 2, &run);
    eventually("the other knows of it", || {
        (job(&fleet.routers[other], waits.id)["state"] == "queued").then_some(())
    });
    fleet.routers[leader].signal(Signal::KILL);
    fleet.routers[leader].wait_end();
    let survivor = &fleet.routers[other];
    eventually("the other leads", || {
        serves(survivor);
        leads(survivor)
    });
    first.go();
    wait_state(survivor, first.id, "done");
    assert_eq!(first.starts(0), [(0, 1)], "it was started once");
    wait_state(survivor, waits.id, "done");
    assert_eq!(waits.starts(0), [(0, 2)]);
}

#[test]
fn inference_continues_and_planning_stops_without_etcd() {
    let mut fleet = Routers::start(&[]);
    let (_, before) = fleet.leader();
    fleet.etcd.kill();
    eventually("nobody leads", || {
        fleet.routers.iter().for_each(serves);
        fleet.routers.iter().all(|router| leads(router).is_none()).then_some(())
    });
    for router in &fleet.routers {
        eventually("it says why", || lead(router)["problem"].is_string().then_some(()));
        let refused = post(router, &json!({"argv": ["/bin/sh", "-c", "true"]}), &[]);
        assert_eq!((refused.status, refused.reason().as_str()), (503, "not_leader"));
        assert_eq!(router.ask_admin("/readyz").status, 200, "it serves");
        assert_eq!(router.metrics().value("sluice_leader"), 0.0);
    }
    fleet.etcd.again();
    let (leader, after) = fleet.leader();
    assert!(after > before, "{after} after {before}");
    assert_eq!(fleet.routers[leader].metrics().value("sluice_leader"), 1.0);
    fleet.routers.iter().for_each(serves);
}

#[test]
fn worker_ignores_desired_state_from_former_leader() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let fleet = Routers::start(&[door.local_addr().unwrap().to_string()]);
    let (_, term) = fleet.leader();
    let before = fleet.executors(0);
    door.set_nonblocking(true).unwrap();
    // The worker gave up on connections that waited too long while the fleet started.
    let (stream, _) =
        eventually("the worker connects", || std::iter::from_fn(|| door.accept().ok()).last());
    let mut former = BufReader::new(stream);
    let mut say = |message: &Value| {
        writeln!(former.get_mut(), "{message}").unwrap();
        let mut line = String::new();
        former.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    say(&json!({"welcome": {"version": 3}}));
    say(&json!({"lead": {"term": term - 1}}));
    let nothing = json!({"term": term - 1, "generation": 1_000_000, "gpus": []});
    say(&json!({"desired": nothing}));
    let report = eventually("it has heard all that", || {
        let log = fleet.worker.log();
        log.contains("ignored desired state from a former leader").then(|| say(&json!("still")))
    });
    assert!(report["report"]["term"].as_u64() >= Some(term), "{report}");
    fleet.routers.iter().for_each(serves);
    assert_eq!(fleet.executors(0), before);
}
