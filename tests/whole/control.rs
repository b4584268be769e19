//! A worker and its executors, whose orders and notices do not always come through.
//!
//! The worker is in this process and the executors are real ones, which a script of the test's starts
//! so that they listen in a folder of their own. Where their worker looks for them there are relays.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use protocol::{
    Desired, DesiredGpu, DesiredReplica, DesiredSlice, Engine, ModelSpec, ReplicaState, Report,
};
use tokio::runtime::Runtime;
use worker::{
    GpuSettings, Host, Launch,
    gpu::simulated::{Delays, Setup, SimulatedGpu},
};

use crate::{
    folder::Folder,
    process,
    relay::{Mischief, pump_lines},
    wait::eventually,
};

const LEFT: &str = "3g.40gb@0";
const RIGHT: &str = "3g.40gb@4";
/// Where executors listen, in the folder in which their worker believes them.
const BEHIND: &str = "behind";
/// Lines that must have been spoiled for the test to have tried something, and before each change.
const ENOUGH: u64 = 40;
const A_FEW: u64 = 4;
/// Between two looks for what no event tells of.
const PAUSE: Duration = Duration::from_millis(2);

/// Which replicas are where.
type Wish = [(&'static str, &'static [u32])];

const WISHES: [&Wish; 3] =
    [&[(LEFT, &[1]), (RIGHT, &[2])], &[(LEFT, &[1, 3])], &[(LEFT, &[4]), (RIGHT, &[2, 5])]];

/// A worker with relays before its executors.
struct Bed {
    folder: Folder,
    runtime: Runtime,
    host: Host,
    mischief: Arc<Mischief>,
}

impl Bed {
    fn start(seed: u64) -> Self {
        let folder = Folder::new();
        let run_dir = folder.path().join("run");
        for path in [&run_dir, &run_dir.join(BEHIND)] {
            fs::DirBuilder::new().mode(0o700).create(path).unwrap();
        }
        let mischief = Arc::new(Mischief::default());
        let (watched, all) = (run_dir.clone(), Arc::clone(&mischief));
        // It ends with the process.
        thread::spawn(move || stand_before(&watched, seed, &all));
        let launch = Launch {
            program: script(&folder, &run_dir),
            run_dir,
            listen: None,
            certificate: None,
            orphan_wait: Duration::ZERO,
            onnxruntime: worker::OnnxRuntime::Missing { why: "this is a test".to_owned() },
            lending: tokio::sync::watch::Sender::default(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let gpu = gpu(folder.path().join("gpu.json"));
        let host = runtime.block_on(Host::start(vec![gpu], launch)).unwrap();
        Self { folder, runtime, host, mischief }
    }
}

/// The executors that were started in `folder`, whoever believes in them.
fn executors(folder: &Folder) -> BTreeSet<u32> {
    let folder = folder.path().to_str().unwrap();
    let mine = |pid: &u32| process::words(*pid).iter().any(|word| word.contains(folder));
    let children = process::children(std::process::id()).into_iter();
    children.filter(|pid| process::is_alive(*pid)).filter(mine).collect()
}

/// A program that starts an executor, as `sluice` does, in the folder behind the one it is told.
fn script(folder: &Folder, run_dir: &Path) -> PathBuf {
    let (sluice, run) = (env!("CARGO_BIN_EXE_sluice"), run_dir.display());
    let text = format!(
        "#!/bin/sh\nfor word; do\n  shift\n  [ \"$word\" = '{run}' ] && word='{run}/{BEHIND}'\n  \
         set -- \"$@\" \"$word\"\ndone\nexec '{sluice}' \"$@\"\n"
    );
    let path = folder.write("sluice", text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A simulated GPU that is cut at once.
fn gpu(path: PathBuf) -> GpuSettings {
    let delays = Delays { create: Duration::ZERO, destroy: Duration::ZERO, ..Delays::default() };
    let open = move || {
        let kind = mig::kind("A100-80GB").unwrap();
        let setup = Setup { kind, name: "test".into(), path: path.clone(), delays };
        SimulatedGpu::open(&setup).map(|gpu| Box::new(gpu) as Box<dyn worker::gpu::Gpu>)
    };
    GpuSettings {
        source: "simulated:A100-80GB".into(),
        open: Arc::new(open),
        pinned: None,
        onnxruntime: None,
    }
}

/// Puts a relay wherever an executor listens and there is none.
#[expect(clippy::disallowed_methods, reason = "no event tells of a socket that another made")]
fn stand_before(run_dir: &Path, seed: u64, mischief: &Arc<Mischief>) {
    let mut number = seed.wrapping_mul(1_000_003);
    loop {
        for entry in fs::read_dir(run_dir.join(BEHIND)).into_iter().flatten().flatten() {
            let (far, near) = (entry.path(), run_dir.join(entry.file_name()));
            if far.extension().is_none_or(|kind| kind != "control") || near.exists() {
                continue;
            }
            let Ok(listener) = UnixListener::bind(&near) else { continue };
            number += 1_000;
            let (seed, all) = (number, Arc::clone(mischief));
            thread::spawn(move || relay(&listener, &far, seed, &all));
        }
        thread::sleep(PAUSE);
    }
}

fn relay(listener: &UnixListener, far: &Path, seed: u64, mischief: &Arc<Mischief>) {
    for (number, near) in (0..).zip(listener.incoming().map_while(Result::ok)) {
        // The one before may have left its socket, and the next not have made its own.
        let far = eventually("an executor listens", || UnixStream::connect(far).ok());
        pump_lines(&near, &far, seed + number * 2, mischief);
        pump_lines(&far, &near, seed + number * 2 + 1, mischief);
    }
}

fn desired(generation: u64, wish: &Wish) -> Desired {
    let spec = ModelSpec {
        name: "m".into(),
        version: "1".into(),
        engine: Engine::Synthetic {
            curve: vec![(1, 0.0)],
            noise: 0.0,
            inputs: Vec::new(),
            outputs: Vec::new(),
        },
        max_batch: 4,
        memory_mib: 1,
        threads: 1,
        device: None,
        warmup: Vec::new(),
        warmup_file: None,
        content: None,
    };
    let replica = |id: &u32| DesiredReplica {
        replica: *id,
        lane: 0,
        digest: spec.digest(),
        spec: Some(spec.clone()),
        serves: true,
    };
    let slice = |(position, replicas): &(&str, &[u32])| DesiredSlice {
        position: (*position).to_owned(),
        replicas: replicas.iter().map(replica).collect(),
        rank: None,
    };
    let positions = Some(vec![LEFT.to_owned(), RIGHT.to_owned()]);
    let slices = wish.iter().map(slice).collect();
    Desired { term: 0, generation, gpus: vec![DesiredGpu { gpu: 0, positions, slices }] }
}

/// The executors of a report in which just what was wished is ready.
fn as_wished(report: &Report, wish: &Wish) -> Option<BTreeSet<u32>> {
    let slices = || report.gpus.iter().flat_map(|gpu| &gpu.slices);
    let there = slices().filter(|slice| !slice.replicas.is_empty()).map(|slice| {
        let ready =
            slice.replicas.iter().all(|replica| matches!(replica.state, ReplicaState::Ready(_)));
        let ids = slice.replicas.iter().map(|replica| replica.replica).collect::<Vec<_>>();
        (slice.position.as_str(), (ready, ids))
    });
    let wanted = wish.iter().map(|(position, ids)| (*position, (true, ids.to_vec())));
    let same = there.collect::<BTreeMap<_, _>>() == wanted.collect::<BTreeMap<_, _>>();
    same.then(|| slices().flat_map(|slice| &slice.lanes).filter_map(|lane| lane.pid).collect())
}

fn run(seed: u64) {
    let bed = Bed::start(seed);
    let mut generation = 0;
    let mut wish = |wish: &Wish| {
        generation += 1;
        bed.host.desire(desired(generation, wish));
    };
    wish(WISHES[0]);
    eventually("all is well to begin with", || as_wished(&bed.host.report(), WISHES[0]));
    bed.mischief.be_wild(true);
    for turn in WISHES.iter().cycle() {
        let before = bed.mischief.spoiled();
        wish(turn);
        eventually(&format!("seed {seed}: something is spoiled"), || {
            (bed.mischief.spoiled() >= before + A_FEW).then_some(())
        });
        if before >= ENOUGH {
            break;
        }
    }
    bed.mischief.be_wild(false);
    for turn in WISHES {
        wish(turn);
        eventually(&format!("seed {seed}: just what was wished is there, and once"), || {
            let told = as_wished(&bed.host.report(), turn)?;
            (told.len() == turn.len() && told == executors(&bed.folder)).then_some(())
        });
    }
    bed.runtime.block_on(bed.host.stop());
    assert_eq!(executors(&bed.folder), BTreeSet::new(), "seed {seed}: they outlived their worker");
}

#[test]
fn wanted_executors_exist_once_despite_damaged_messages() {
    thread::scope(|scope| {
        for seed in 1..=3 {
            scope.spawn(move || run(seed));
        }
    });
}
