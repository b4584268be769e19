//! A worker cut off for longer than it is waited for, which returns with what it had.
//!
//! The router's loops are the real ones. Seconds pass in moments, by a clock that is moved by hand.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use control::Stored;
use protocol::{Desired, Mode, Report, ToWorker, WHOLE};
use router::{
    fleet::Fleet, jobs::Jobs, leader::Leadership, learned::Learned, orders::Orders,
    registry::Registry, round,
};
use serve::{
    auth::Access,
    dispatch::Dispatcher,
    doors::oip::{ServerState, backend::Backend},
};
use tokio::{
    task::JoinHandle,
    time::{advance, interval, pause, resume, sleep},
};

use crate::{
    executor::{Deed, Executor},
    fleet::{Worker, eventually, ready, replica_at},
};

const FILE: &str = r#"
[[model]]
name = "echo"
engine = "synthetic"
profile_csv = "profiles/slow.csv"
slo_ms = 5000
max_batch = 4
replicas = { min = 1, max = 1 }
inputs = [{ name = "x", datatype = "UINT8", shape = [-1, 8] }]
outputs = [{ name = "y", datatype = "UINT8", shape = [-1, 8] }]
"#;

/// The least time that a worker that is away is waited for, and the longest that it may take to do
/// something about it, in seconds.
const AWAY_S: u32 = 29;
const MOST_S: u32 = 2_000;

fn router() -> Arc<ServerState<Registry>> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let (config, _) = config::parse(Path::new("test.toml"), FILE, &base).unwrap();
    let settings = config.router.clone();
    let stored = Stored {
        jobs: Jobs::open(None).unwrap(),
        orders: Orders::open(None).unwrap(),
        learned: Learned::open(None).unwrap(),
        leadership: Leadership::alone(),
    };
    let registry = Registry::start(config, stored).unwrap();
    let access = Access::new(&[], &[]);
    let state = Arc::new(ServerState::new(registry, settings, access, Arc::default()));
    tokio::spawn(round::run(Arc::downgrade(state.backend.control())));
    state
}

/// A machine with one GPU, whose replicas are ready as soon as they are wished for.
struct Host {
    name: &'static str,
    address: String,
    report: Arc<Mutex<Report>>,
}

impl Host {
    fn new(name: &'static str, executor: &Executor) -> Self {
        let mut report = ready(&[(1, &executor.address)], 4, 1_000);
        report.generation = 0;
        let slice = &mut report.gpus[0].slices[0];
        slice.replicas.clear();
        slice.position = WHOLE.to_owned();
        report.gpus[0].mode = Some(Mode::Off);
        Self { name, address: executor.address.clone(), report: Arc::new(Mutex::new(report)) }
    }

    /// Joins with what it has; the connection is cut when the task is ended.
    fn join(&self, fleet: &Arc<Fleet>) -> JoinHandle<()> {
        let (fleet, name, address) = (Arc::clone(fleet), self.name, self.address.clone());
        let report = Arc::clone(&self.report);
        tokio::spawn(async move {
            let mut worker = Worker::join(&fleet, name).await;
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    Some(said) = worker.heard.recv() => {
                        let ToWorker::Desired(wish) = said else { continue };
                        obey(&mut report.lock().unwrap(), &wish, &address);
                    }
                }
                let now = report.lock().unwrap().clone();
                worker.report(now).await;
            }
        })
    }

    fn replicas(&self) -> Vec<u32> {
        let report = self.report.lock().unwrap();
        report.gpus[0].slices[0].replicas.iter().map(|replica| replica.replica).collect()
    }

    fn generation(&self) -> u64 {
        self.report.lock().unwrap().generation
    }
}

fn obey(report: &mut Report, wish: &Desired, address: &str) {
    assert!(wish.generation >= report.generation, "a generation went back");
    report.generation = wish.generation;
    let wished = wish.gpus.iter().flat_map(|gpu| &gpu.slices).flat_map(|slice| &slice.replicas);
    let ready = wished.map(|one| {
        let mut replica = replica_at(one.replica, address, 4, 1_000);
        (replica.digest, replica.serves) = (one.digest, one.serves);
        replica
    });
    report.gpus[0].slices[0].replicas = ready.collect();
}

fn dispatcher(state: &ServerState<Registry>) -> Arc<Dispatcher> {
    Arc::clone(state.backend.models()[0].dispatcher())
}

/// Lets seconds pass until `done`, and returns how many did.
async fn seconds_until(what: &str, mut done: impl FnMut() -> bool) -> u32 {
    for second in 0..MOST_S {
        if done() {
            return second;
        }
        pause();
        advance(Duration::from_secs(1)).await;
        resume();
        // What takes no time of that clock, such as deciding, takes some of the real one.
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not within {MOST_S} s: {what}");
}

#[tokio::test]
async fn a_worker_that_returns_after_its_replica_was_placed_elsewhere_gives_it_up() {
    let executor = Executor::start(|| Deed::Answer).await;
    let state = router();
    let fleet = Arc::clone(state.backend.fleet());
    let (alpha, beta) = (Host::new("alpha", &executor), Host::new("beta", &executor));
    let link = alpha.join(&fleet);
    eventually("alpha serves", || dispatcher(&state).replicas() == 1).await;
    beta.join(&fleet);
    eventually("beta is there", || fleet.knows("beta") && beta.generation() > 0).await;
    assert_eq!((alpha.replicas().len(), beta.replicas().len()), (1, 0));
    let (had, generation) = (alpha.replicas(), alpha.generation());

    link.abort();
    let waited = seconds_until("beta serves in its place", || beta.replicas().len() == 1).await;
    assert!(waited >= AWAY_S, "it was placed elsewhere after {waited} s");
    assert_eq!(alpha.replicas(), had, "alpha heard nothing of it");

    alpha.join(&fleet);
    seconds_until("one of them has it", || {
        alpha.generation() > generation && alpha.replicas().len() + beta.replicas().len() == 1
    })
    .await;
    eventually("no other is asked", || dispatcher(&state).replicas() == 1).await;
}
