use std::io::Read;

use protocol::{Engine, ReplicaState};

use super::*;

const LISTENING: &str = r#"{"listening":{"address":"unix:/run/x.sock"}}"#;
const READY: &str = r#"{"ready":{"replica":1,"signature":{"inputs":[],"outputs":[]},"platform":"fake","max_batch":4,"warmup":[],"load_us":5,"memory_bytes":6}}"#;

fn spec() -> ModelSpec {
    ModelSpec {
        name: "m".into(),
        version: "1".into(),
        engine: Engine::Onnx { path: "m.onnx".into() },
        max_batch: 4,
        memory_mib: 1,
        threads: 1,
    }
}

fn slice(position: &str, replicas: &[u32]) -> SlicePlan {
    SlicePlan {
        gpu: 0,
        kind: "A100-80GB".into(),
        position: position.into(),
        device: None,
        replicas: replicas.iter().map(|id| (*id, spec())).collect(),
    }
}

/// A worker whose executor is a shell script.
fn scripted(script: &str) -> (Worker, mpsc::Receiver<Report>) {
    let script = script.to_owned();
    let command = move |_: &SlicePlan, label: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &script, label]);
        command
    };
    let (sender, reports) = mpsc::channel(8);
    let placement = Placement { slices: vec![slice("7g.80gb@0", &[1])] };
    (start_with(placement, command, &sender).unwrap(), reports)
}

/// The first report whose only replica is in a state that `wanted` accepts.
async fn until(reports: &mut mpsc::Receiver<Report>, wanted: fn(&ReplicaState) -> bool) -> Report {
    loop {
        let report = reports.recv().await.unwrap();
        if wanted(&report.replicas[0].state) {
            return report;
        }
    }
}

fn is_ready(state: &ReplicaState) -> bool {
    matches!(state, ReplicaState::Ready(_))
}

fn is_failed(state: &ReplicaState) -> bool {
    matches!(state, ReplicaState::Failed { .. })
}

fn is_alive(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::test_kill_process(pid).is_ok()
}

#[tokio::test]
async fn a_replica_is_reported_ready_with_all_a_router_needs() {
    let (worker, mut reports) =
        scripted(&format!("read a; read b; echo '{LISTENING}'; echo '{READY}'; read c"));
    let first = reports.recv().await.unwrap();
    assert_eq!((first.slice.as_str(), first.profile.as_str()), ("gpu0:7g@0", "7g.80gb"));
    assert_eq!(first.replicas[0].state, ReplicaState::Starting);
    let report = until(&mut reports, is_ready).await;
    let ReplicaState::Ready(ready) = &report.replicas[0].state else { panic!("{report:?}") };
    assert_eq!(ready.address, "unix:/run/x.sock");
    assert_eq!((ready.max_batch, ready.load_us, ready.memory_bytes), (4, 5, 6));
    assert_eq!(ready.token.len(), 32);
    assert!(report.pid.is_some());
    worker.stop().await;
}

#[tokio::test]
async fn the_first_order_has_the_token_and_the_next_the_models() {
    let (worker, mut reports) = scripted(
        r#"read a; read b; echo "{\"failed\":{\"replica\":1,\"reason\":\"$(echo "$a$b" | tr -d '"' | cut -c1-20)\"}}"; read c"#,
    );
    let report = until(&mut reports, is_failed).await;
    let ReplicaState::Failed { reason } = &report.replicas[0].state else { panic!("{report:?}") };
    assert!(reason.starts_with("{listen:{token:"), "{reason}");
    worker.stop().await;
}

#[tokio::test]
async fn an_executor_that_ends_is_started_again_with_another_token() {
    let (worker, mut reports) =
        scripted(&format!("read a; read b; echo '{LISTENING}'; echo '{READY}'; exit 3"));
    let first = until(&mut reports, is_ready).await;
    let failed = until(&mut reports, is_failed).await;
    let ReplicaState::Failed { reason } = &failed.replicas[0].state else { panic!("{failed:?}") };
    assert_eq!(reason, "executor ended: exit status: 3");
    assert_eq!((failed.pid, failed.restarts), (None, 1));
    let again = until(&mut reports, is_ready).await;
    assert_eq!(again.restarts, 1);
    let token = |report: &Report| {
        let ReplicaState::Ready(ready) = &report.replicas[0].state else { panic!("{report:?}") };
        ready.token.clone()
    };
    assert_ne!(token(&first), token(&again));
    worker.stop().await;
}

#[tokio::test]
async fn an_executor_that_talks_nonsense_is_ended() {
    let (worker, mut reports) = scripted("echo nonsense; read a; read b; read c");
    let report = until(&mut reports, is_failed).await;
    let ReplicaState::Failed { reason } = &report.replicas[0].state else { panic!("{report:?}") };
    assert!(reason.starts_with("executor said what cannot be understood"), "{reason}");
    worker.stop().await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_state_and_not_a_crash() {
    let (sender, mut reports) = mpsc::channel(8);
    let launch = Launch {
        program: "/nonexistent/sluice".into(),
        run_dir: "/nonexistent".into(),
        tcp: false,
    };
    let placement = Placement { slices: vec![slice("7g.80gb@0", &[1])] };
    let worker = start(placement, launch, &sender).unwrap();
    let report = until(&mut reports, is_failed).await;
    let ReplicaState::Failed { reason } = &report.replicas[0].state else { panic!("{report:?}") };
    assert!(reason.starts_with("executor not started"), "{reason}");
    worker.stop().await;
}

#[tokio::test]
async fn stop_ends_the_executor_and_what_it_started() {
    // The grandchild holds the only writing end; its end is the end of the pipe.
    let pipe = std::env::temp_dir().join(format!("sluice-{}-group", std::process::id()));
    let path = pipe.display();
    let (worker, mut reports) = scripted(&format!(
        "mkfifo {path}; sleep 600 >{path} & read a; read b; echo '{LISTENING}'; echo '{READY}'; read c"
    ));
    let report = until(&mut reports, is_ready).await;
    let opened = pipe.clone();
    let mut held = tokio::task::spawn_blocking(move || std::fs::File::open(opened)).await.unwrap();
    std::fs::remove_file(&pipe).unwrap();
    let executor = report.pid.unwrap();
    assert!(is_alive(executor));
    worker.stop().await;
    assert!(!is_alive(executor));
    let mut rest = Vec::new();
    let read = move || held.as_mut().unwrap().read_to_end(&mut rest).unwrap();
    assert_eq!(tokio::task::spawn_blocking(read).await.unwrap(), 0);
}

#[tokio::test]
async fn nobody_needs_to_read_the_reports() {
    let (worker, reports) = scripted("echo nonsense");
    drop(reports);
    worker.stop().await;
}

fn refusal(slices: Vec<SlicePlan>) -> String {
    check(&Placement { slices }).unwrap_err().to_string()
}

#[test]
fn slices_a_gpu_cannot_have_at_once_are_refused() {
    let refused = refusal(vec![slice("3g.40gb@0", &[1]), slice("1g.10gb@3", &[2])]);
    assert_eq!(refused, "gpu 0: 3g.40gb@0 and 1g.10gb@3 overlap");
    let legal = vec![slice("3g.40gb@4", &[1]), slice("1g.10gb@3", &[2])];
    assert_eq!(check(&Placement { slices: legal }).unwrap().len(), 2);
}

#[test]
fn a_gpu_is_of_one_kind_and_a_replica_in_one_place() {
    let other = SlicePlan { kind: "H100-80GB".into(), ..slice("1g.10gb@1", &[2]) };
    let refused = refusal(vec![slice("1g.10gb@0", &[1]), other]);
    assert_eq!(refused, "gpu 0 is a A100-80GB and a H100-80GB");
    let refused = refusal(vec![slice("1g.10gb@0", &[1]), slice("1g.10gb@1", &[1])]);
    assert_eq!(refused, "replica 1 is placed twice");
}
