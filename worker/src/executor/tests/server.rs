//! A server that behaves, and one that does not, supervised by an executor.

use std::{
    collections::BTreeMap,
    fs::{DirBuilder, File},
    os::unix::fs::DirBuilderExt,
    process::Command,
};

use protocol::{Server, Shapes};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, mknodat, open},
    process::{Pid, Signal, kill_process},
};

use super::*;

/// A wait that nothing in these tests should need.
const LONG_MS: u64 = 600_000;

/// The program of `examples/standin.rs`, which cargo builds beside the tests.
fn standin() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.parent().and_then(Path::parent).unwrap().join("examples/standin");
    assert!(path.exists(), "{} is missing; cargo test builds it", path.display());
    path
}

fn server(manner: &[&str]) -> Server {
    let words = [standin().to_str().unwrap(), "serve", "{port}"].map(str::to_owned);
    let manner = manner.iter().map(|word| (*word).to_owned());
    Server {
        command: words.into_iter().chain(manner).collect(),
        environment: BTreeMap::new(),
        directory: None,
        served_name: "double".into(),
        ready_timeout_ms: LONG_MS,
        answer_timeout_ms: LONG_MS,
        signature: None,
    }
}

fn spec(server: Server) -> ModelSpec {
    ModelSpec { engine: Engine::Server(Box::new(server)), max_batch: 4, ..echo() }
}

struct Served {
    executor: Running,
    spec: ModelSpec,
    loaded: Vec<ReplicaState>,
    _dir: Dir,
}

impl Served {
    fn start(test: &str, server: Server) -> Self {
        let dir = Dir::new(test);
        let surroundings = Surroundings { program: standin(), ..Surroundings::bare() };
        let mut executor = Running::start_with(ExecutorArgs { surroundings, ..args(&dir.0, None) });
        let spec = spec(server);
        let loaded = executor.load(3, spec.clone());
        Self { executor, spec, loaded, _dir: dir }
    }

    fn ready(&self) -> &ReadyReplica {
        let Some(ReplicaState::Ready(ready)) = self.loaded.last() else {
            panic!("{:?}", self.loaded)
        };
        ready
    }

    fn reason(&self) -> &str {
        let Some(ReplicaState::Failed { reason, crashed: true }) = self.loaded.last() else {
            panic!("{:?}", self.loaded)
        };
        reason
    }

    fn run(&mut self, values: &[f32]) -> (Outcome, Vec<f32>) {
        let body: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let head = TensorHead { name: "x".into(), datatype: "FP32".into(), tail: vec![2] };
        let requests = vec![Part { rows: 1, bytes: vec![8] }; values.len() / 2];
        let batch = Batch { id: 1, replica: 3, inputs: vec![head], requests };
        let mut client = connect(&self.ready().address);
        client.hello(&self.ready().token);
        let (reply, body) = client.run(batch, &body);
        let values = body.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        (reply.outcome, values)
    }

    fn failure(&mut self, values: &[f32]) -> (Blame, String) {
        let outcome = self.run(values).0;
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        (failure.blame, failure.message)
    }

    fn lost(&mut self) -> String {
        loop {
            let state = self.executor.state().replicas.pop().unwrap().state;
            if let ReplicaState::Failed { reason, crashed: true } = state {
                return reason;
            }
        }
    }

    fn ready_again(&mut self) {
        self.loaded = self.executor.load(3, self.spec.clone());
        self.ready();
    }
}

#[test]
fn batches_are_run_by_a_server_in_binary_and_in_json() {
    for (test, manner) in [("binary", vec![]), ("json", vec!["json"])] {
        let mut served = Served::start(test, server(&manner));
        let ReadyReplica { platform, signature, max_batch, memory_bytes, warmup, .. } =
            served.ready();
        assert_eq!((platform.as_str(), *max_batch), ("server_standin", 4));
        assert_eq!(signature.inputs[0].shape, [-1, 2]);
        assert!(*memory_bytes > 0 || cfg!(not(target_os = "linux")));
        assert_eq!(warmup.iter().map(|point| point.batch).collect::<Vec<_>>(), [1, 2, 4]);
        let (outcome, values) = served.run(&[1.0, 2.0, 3.5, 4.0]);
        assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        assert_eq!(values, [2.0, 4.0, 7.0, 8.0], "{test}");
    }
}

#[test]
fn a_server_that_takes_its_time_is_waited_for() {
    Served::start("slow", server(&["denials=3"])).ready();
}

#[test]
fn server_that_is_never_ready_fails_with_its_last_response() {
    let order = Server { ready_timeout_ms: 1, ..server(&["denials=4294967295"]) };
    let served = Served::start("never", order);
    let reason = served.reason();
    assert!(reason.starts_with("the server was not ready within 1ms: "), "{reason}");
}

#[test]
fn server_that_exits_at_start_reports_status_and_last_output() {
    let served = Served::start("end", server(&["end"]));
    let reason = served.reason();
    let expected = "the server ended: exit status: 3; it said last:\nmodel weights found by ";
    assert!(reason.starts_with(expected), "{reason}");
    assert!(reason.ends_with("\nthe weights are for another model"), "{reason}");
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let command = vec!["no-such-server".to_owned()];
    let served = Served::start("missing", Server { command, ..server(&[]) });
    let reason = served.reason();
    assert!(reason.starts_with("cannot start no-such-server: No such file"), "{reason}");
}

#[test]
fn server_without_metadata_needs_a_configured_signature() {
    let served = Served::start("silent", server(&["silent"]));
    let reason = served.reason();
    assert!(reason.starts_with("the server does not say what double takes and gives"), "{reason}");

    let shape =
        |name: &str| TensorShape { name: name.into(), datatype: "FP32".into(), shape: vec![-1, 2] };
    let signature = Shapes { inputs: vec![shape("x")], outputs: vec![shape("y")] };
    let order = Server { signature: Some(signature), ..server(&["silent"]) };
    let mut served = Served::start("signature", order);
    assert_eq!(served.run(&[1.0, 2.0]).1, [2.0, 4.0]);
}

#[test]
fn server_4xx_blames_the_request_and_5xx_the_replica() {
    let mut served = Served::start("blame", server(&[]));
    let refused = served.failure(&[400.0, 0.0]);
    let expected = "the model cannot take these inputs: the server answered 400: as you wish";
    assert_eq!(refused, (Blame::Request, expected.into()));
    let failed = served.failure(&[500.0, 0.0]);
    let expected = "the model failed: the server answered 500: as you wish";
    assert_eq!(failed, (Blame::Replica, expected.into()));
    assert_eq!(served.failure(&[429.0, 0.0]).0, Blame::Replica, "it speaks of no input");
    assert_eq!(served.run(&[1.0, 1.0]).1, [2.0, 2.0], "it goes on");
}

#[test]
fn what_json_cannot_hold_is_the_requests_fault() {
    let mut served = Served::start("nan", server(&["json"]));
    let (blame, message) = served.failure(&[f32::NAN, 0.0]);
    assert_eq!(blame, Blame::Request);
    assert!(message.contains("element 0 is NaN"), "{message}");
}

#[test]
fn a_server_that_ends_under_a_batch_is_reported_and_comes_back() {
    let mut served = Served::start("crash", server(&[]));
    let (blame, message) = served.failure(&[-1.0, 0.0]);
    assert_eq!((blame, message.as_str()), (Blame::Replica, "the server ended: exit status: 7"));
    let reason = served.lost();
    assert!(reason.starts_with("the server ended: exit status: 7; it said last:\n"), "{reason}");
    assert!(reason.ends_with("\ncannot go on"), "{reason}");
    served.ready_again();
    assert_eq!(served.run(&[1.0, 2.0]).1, [2.0, 4.0]);
}

#[test]
fn a_server_that_does_not_answer_is_ended_and_started_again() {
    let mut served = Served::start("hang", Server { answer_timeout_ms: 2_000, ..server(&[]) });
    let (blame, message) = served.failure(&[-2.0, 0.0]);
    assert_eq!(
        (blame, message.as_str()),
        (Blame::Replica, "the server did not answer a batch in time")
    );
    assert!(served.lost().starts_with("the server did not answer a batch in time"));
    served.ready_again();
}

#[test]
fn an_idle_server_that_is_killed_is_noticed_and_comes_back() {
    let mut watch = Watch::new("idle");
    let mut served = Served::start("idle", watch.over(server(&[])));
    kill_process(watch.pid(), Signal::KILL).unwrap();
    let reason = served.lost();
    assert!(reason.starts_with("the server ended: signal: 9 (SIGKILL)"), "{reason}");
    served.ready_again();
    assert_eq!(served.run(&[1.0, 2.0]).1, [2.0, 4.0]);
}

#[test]
fn a_server_whose_guard_is_killed_is_ended_and_started_again() {
    let mut watch = Watch::new("guard");
    let mut served = Served::start("guard", watch.over(server(&[])));
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", watch.pid().as_raw_nonzero())).unwrap();
    // After the name, in parentheses, stand the state and the parent.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let guard = fields.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(guard).unwrap(), Signal::KILL).unwrap();
    let reason = served.lost();
    assert!(reason.starts_with("the server ended: its guard was killed"), "{reason}");
    served.ready_again();
    assert_eq!(served.run(&[1.0, 2.0]).1, [2.0, 4.0]);
}

#[test]
fn an_unloaded_server_is_gone_with_all_it_started() {
    let watch = Watch::new("unloaded");
    let mut served = Served::start("unloaded", watch.over(server(&[])));
    served.executor.order(&Order::Unload { replica: 3 });
    while !served.executor.state().replicas.is_empty() {}
    watch.wait_until_all_are_gone();
}

#[test]
fn nothing_of_a_server_outlives_an_executor_that_is_killed() {
    let watch = Watch::new("orphans");
    let mut child = Command::new(standin()).arg("executor").arg(&watch.dir.0).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let (orders, notices) = Running::call(&watch.dir.0.join(CONTROL));
    let thread = thread::spawn(move || child.wait().map(|_| ()).map_err(ExecutorError::Control));
    let mut executor = Running { orders, notices, last: None, thread };
    let loaded = executor.load(3, spec(watch.over(server(&[]))));
    assert!(matches!(loaded.last(), Some(ReplicaState::Ready(_))), "{loaded:?}");
    kill_process(pid, Signal::KILL).unwrap();
    executor.thread.join().unwrap().unwrap();
    watch.wait_until_all_are_gone();
}

/// A pipe that a server and what it started hold open while they live.
struct Watch {
    dir: Dir,
    pipe: BufReader<File>,
}

impl Watch {
    fn new(test: &str) -> Self {
        let dir = Dir::new(&format!("watch-{test}"));
        DirBuilder::new().recursive(true).mode(0o700).create(&dir.0).unwrap();
        let path = dir.0.join("double.pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // To open it would block until somebody writes, were it not for the flag.
        let pipe = open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        fcntl_setfl(&pipe, OFlags::empty()).unwrap();
        Self { dir, pipe: BufReader::new(pipe.into()) }
    }

    /// The same order, for a server that finds the pipe by its directory and environment.
    fn over(&self, order: Server) -> Server {
        let environment = [("STANDIN_WATCH".to_owned(), "{model}.pipe".to_owned())].into();
        Server { environment, directory: Some(self.dir.0.display().to_string()), ..order }
    }

    fn pid(&mut self) -> Pid {
        let mut line = String::new();
        self.pipe.read_line(&mut line).unwrap();
        Pid::from_raw(line.trim().parse().unwrap()).unwrap()
    }

    fn wait_until_all_are_gone(mut self) {
        self.pipe.read_to_end(&mut Vec::new()).unwrap();
    }
}
