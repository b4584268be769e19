//! A worker that is restarted in place: nobody notices, whichever program it comes back as.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use crate::{
    client::{Client, all_served},
    folder::Folder,
    process,
    program::Program,
    setup::{Setup, TWO_GPUS},
    split::{self, Split, TOKEN},
    training::{Counting, GPU, STEPS, job, wait_state},
    wait::eventually,
};

const LENDS: &str = "[loans]\nallow = [\"/bin/sh\"]\n";

fn pair() -> Setup {
    let settings =
        "slo_ms = 20000\nmax_batch = 2\nmemory_mib = 1000\nreplicas = { min = 2, max = 2 }";
    Setup::new().sleeper("pair", 10, settings)
}

fn clients(program: &Program) -> Vec<Client> {
    (0..4).map(|_| program.client()).collect()
}

/// Sends SIGUSR2 and waits until the worker has started again, and has reported; asks all the while.
#[track_caller]
fn restart(fleet: &mut Split, asking: &mut [Client]) {
    let pid = fleet.worker.pid();
    let joined = || fleet.router.log().matches("\"message\":\"worker joined\"").count();
    let before = joined();
    fleet.worker.signal(Signal::USR2);
    eventually("the worker has joined again, and all are served meanwhile", || {
        all_served(asking, 1);
        (joined() > before && fleet.router.workers()[0]["state"] == "connected").then_some(())
    });
    fleet.worker.wait_word("worker ");
    assert!(process::is_alive(pid), "it is another process");
}

#[test]
fn restarted_worker_loses_no_request() {
    let mut fleet = Split::start(pair(), TWO_GPUS);
    let executors = fleet.router.executors();
    let mut asking = clients(&fleet.router);
    for _ in 0..3 {
        restart(&mut fleet, &mut asking);
        assert_eq!(fleet.router.executors(), executors, "not adopted");
    }
    drop(asking);
    fleet.stop(&executors);
}

#[test]
fn restarted_worker_leaves_a_job_running() {
    let lender = Setup::new()
        .sleeper("m", 5, "slo_ms = 20000\nmemory_mib = 15000\nreplicas = { min = 1, max = 1 }")
        .tables(LENDS);
    let fleet = Split::start(lender, &format!("{LENDS}{GPU}"));
    let run = fleet.worker.folder().path().join("run");
    let counting = Counting::submit(&fleet.router, 1, &run);
    counting.wait_half(&fleet.router);
    let pid = counting.pid(0);
    fleet.worker.signal(Signal::USR2);
    fleet.worker.wait_log("adopted running rank");
    counting.go();
    let done = wait_state(&fleet.router, counting.id, "done");
    assert_eq!((counting.pid(0), done["starts"].as_u64()), (pid, Some(1)), "{done:#}");
    assert_eq!(job(&fleet.router, counting.id)["progress"]["step"], STEPS);
    assert_eq!(counting.starts(0), [(0, 1)]);
}

#[test]
fn worker_stays_when_the_program_on_disk_refuses_its_file() {
    let mut fleet = Split::start(pair(), TWO_GPUS);
    let executors = fleet.router.executors();
    let file = fleet.worker.folder().path().join("worker.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}nonsense = 1\n")).unwrap();
    fleet.worker.signal(Signal::USR2);
    fleet.worker.wait_log("not restarted: the program on disk refuses the file");
    fs::write(&file, text).unwrap();
    let mut asking = clients(&fleet.router);
    restart(&mut fleet, &mut asking);
    fleet.stop(&executors);
}

/// A copy of the program, which is another file: what an upgrade of a package leaves.
fn install(path: &Path) {
    let new = path.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_sluice"), &new).unwrap();
    fs::rename(&new, path).unwrap();
}

/// A worker whose program is installed in its own folder.
fn installed(door: &str) -> (Program, PathBuf) {
    let folder = Folder::new();
    folder.write("token", TOKEN);
    let program = folder.path().join("sluice");
    install(&program);
    let text = format!(
        "[join]\nrouter = \"{door}\"\ntoken_file = \"token\"\nrun_dir = \"run\"\n\
         name = \"alpha\"\n{TWO_GPUS}"
    );
    let file = folder.write("worker.toml", text);
    let args = ["worker", "--config", file.to_str().unwrap()];
    (Program::launch_copy(folder, &program, &args), program)
}

#[test]
fn executors_of_the_program_before_are_replaced_one_by_one() {
    let (router, door) = split::router(pair());
    let (mut worker, program) = installed(&door);
    worker.wait_word("worker ");
    let mut fleet = Split { router, worker, door };
    fleet.router.wait_word("ready");
    let old: BTreeSet<u32> = fleet.router.executors().into_iter().collect();
    assert_eq!(old.len(), 2);
    let mut asking = clients(&fleet.router);

    // The package is upgraded, and an executor dies before the worker is restarted.
    install(&program);
    let victim = *old.first().unwrap();
    process::signal(victim, Signal::KILL);
    eventually("it has a successor of the worker's own program", || {
        all_served(&mut asking, 2);
        let now = fleet.router.executors();
        let new = *now.iter().find(|pid| !old.contains(pid))?;
        assert!(is_program(new, fleet.worker.pid()), "the old worker started the new program");
        (fleet.router.in_rotation("pair") == 2).then_some(())
    });

    let old: BTreeSet<u32> = fleet.router.executors().into_iter().collect();
    restart(&mut fleet, &mut asking);
    let mut all = old.clone();
    eventually("all are of the new program, and all are served meanwhile", || {
        all_served(&mut asking, 3);
        let now = fleet.router.executors();
        all.extend(&now);
        let new = now.iter().all(|pid| !old.contains(pid));
        (new && now.len() == 2 && fleet.router.in_rotation("pair") == 2).then_some(())
    });
    drop(asking);
    let log = fleet.router.log();
    let steps = log.lines().filter(|line| line.contains("its executor has a new revision"));
    let placed: Vec<bool> = steps.map(|line| line.contains("replica placed")).collect();
    assert_eq!(placed, [true, false, true, false], "not one by one: {log}");
    fleet.stop(&all.into_iter().collect::<Vec<_>>());
}

/// Whether both processes run the same file.
fn is_program(pid: u32, other: u32) -> bool {
    let file =
        |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).map(|metadata| file_id(&metadata)).ok();
    let (one, two) = (file(pid), file(other));
    // One that has ended since has no program any more.
    one.is_none() || one == two
}

fn file_id(metadata: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}
