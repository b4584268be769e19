//! One rank from its start to its end.

use std::{
    fs,
    io::{self, PipeReader},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use protocol::{MAX_LINE, OLDEST, RankEnd, RankOrder, RankReport, RankState, SPOKEN, line, read};
use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
    time::{Instant, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    Assignment,
    folder::{Ended, JobFolder},
    log,
    pace::Pace,
    progress::Progress,
    signals::{self, MARK},
};
use crate::{
    cores::{cores, starting_on},
    lines::Lines,
};

/// How often its progress is read.
const TICK: Duration = Duration::from_millis(250);
/// How often its folder is measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// How long a worker may take to read what it is told.
const TELL_WAIT: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

pub(super) async fn live(assignment: &Assignment, mark: &str) -> Ended {
    let lost = |what: &str, error: io::Error| {
        Ended::silent(RankEnd::Lost { reason: format!("{what}: {error}") })
    };
    let _ = fs::remove_file(&assignment.control);
    let listener = match UnixListener::bind(&assignment.control) {
        Ok(listener) => listener,
        Err(error) => return lost("no socket", error),
    };
    let on_cores = assignment.device.as_deref().is_some_and(|device| cores(device).is_some());
    if let Err(error) = assignment.limits.take(assignment.spec.local_rank, on_cores) {
        return lost("its limits cannot be set", error);
    }
    let (child, [stdout, stderr]) = match start(assignment, mark) {
        Ok(started) => started,
        Err(error) => {
            let program = assignment.spec.argv.first().map_or("", String::as_str);
            return lost(&format!("{program} could not be started"), error);
        }
    };
    let logs = JobFolder::at(&assignment.folder).rank(assignment.spec.rank);
    let most = assignment.limits.log_mib.saturating_mul(MIB);
    let log = Arc::new(log::Log::new(&logs, most));
    let shared = Arc::clone(&log);
    let keeping =
        [thread::spawn(move || log.keep(stdout)), thread::spawn(move || shared.keep(stderr))];
    let mut ended = match Watch::new(assignment, child) {
        Ok(watch) => watch.run(&listener).await,
        Err(error) => lost("it ended as it began", error),
    };
    signals::sweep(mark);
    // Nobody is left who could print.
    let [_, said] = keeping.map(|thread| thread.join().ok().flatten());
    ended.said = said.filter(|_| is_failure(&ended.end));
    ended
}

/// Whether the rank ended by itself and not well.
fn is_failure(end: &RankEnd) -> bool {
    match end {
        RankEnd::Exited { code } => *code != 0,
        RankEnd::Killed { overdue, .. } => !overdue,
        RankEnd::Exceeded { .. } | RankEnd::Expired | RankEnd::Lost { .. } => false,
    }
}

/// Starts it, with what it will print on stdout and stderr.
fn start(assignment: &Assignment, mark: &str) -> io::Result<(Child, [PipeReader; 2])> {
    let spec = &assignment.spec;
    let folder = JobFolder::at(&assignment.folder);
    let ((stdout, to_stdout), (stderr, to_stderr)) = (io::pipe()?, io::pipe()?);
    let (program, arguments) =
        spec.argv.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let mut command = std::process::Command::new(program);
    command.args(arguments).current_dir(folder.work()).envs(&spec.environment);
    command.env("SLUICE_JOB_ID", spec.job.to_string());
    command.env("SLUICE_CHECKPOINT_DIR", folder.checkpoint());
    command.env("SLUICE_PROGRESS_FILE", folder.progress(spec.rank));
    command.env(MARK, mark);
    command.env("MASTER_ADDR", &spec.master_address);
    command.env("MASTER_PORT", spec.master_port.to_string());
    command.env("RANK", spec.rank.to_string());
    command.env("WORLD_SIZE", spec.world_size.to_string());
    command.env("LOCAL_RANK", spec.local_rank.to_string());
    command.env("LOCAL_WORLD_SIZE", spec.local_world_size.to_string());
    let cores = assignment.device.as_deref().and_then(cores);
    match (&assignment.device, &cores) {
        (_, Some(cores)) => {
            command.env("CUDA_VISIBLE_DEVICES", "");
            if !spec.environment.contains_key("OMP_NUM_THREADS") {
                command.env("OMP_NUM_THREADS", cores.len().to_string());
            }
        }
        (Some(device), None) => _ = command.env("CUDA_VISIBLE_DEVICES", device),
        (None, None) => _ = command.env_remove("CUDA_VISIBLE_DEVICES"),
    }
    if let Some(user) = assignment.limits.user {
        command.gid(user.gid).uid(user.uid);
    }
    command.stdin(Stdio::null()).stdout(to_stdout).stderr(to_stderr).process_group(0);
    let mut command = Command::from(command);
    // What stands over it stays outside its cores.
    let child = match cores {
        Some(cores) => starting_on(&cores, || command.spawn())?,
        None => command.spawn()?,
    };
    Ok((child, [stdout, stderr]))
}

struct Watch<'a> {
    assignment: &'a Assignment,
    child: Child,
    pid: u32,
    progress: Progress,
    pace: Pace,
    renewed: Instant,
    stopping: Option<Stopping>,
    measured: Instant,
    exceeded: Option<String>,
    /// Whether it was stopped because nobody renewed its loan.
    expired: bool,
    worker: Option<Worker>,
    told: Option<RankReport>,
}

/// On the way to its end.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    /// When it is killed.
    by: Instant,
    /// Until when it is left to checkpoint, and the checkpoint it had before.
    checkpoints: Option<(Instant, Option<u64>)>,
    killed: bool,
}

struct Worker {
    orders: Lines<OwnedReadHalf>,
    reports: OwnedWriteHalf,
    /// The version it is spoken to in.
    version: u16,
}

impl<'a> Watch<'a> {
    fn new(assignment: &'a Assignment, child: Child) -> io::Result<Self> {
        let pid = child.id().ok_or_else(|| io::Error::other("it has no process"))?;
        let folder = JobFolder::at(&assignment.folder);
        let now = Instant::now();
        Ok(Self {
            assignment,
            child,
            pid,
            progress: Progress::new(folder.progress(assignment.spec.rank)),
            pace: Pace::default(),
            renewed: now,
            stopping: None,
            measured: now,
            exceeded: None,
            expired: false,
            worker: None,
            told: None,
        })
    }

    async fn run(mut self, listener: &UnixListener) -> Ended {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let changes = self.pace.changes_at().unwrap_or_else(far);
            let kill_at = self.stopping.map_or_else(far, |stopping| stopping.by);
            tokio::select! {
                ended = self.child.wait() => return self.ended(ended),
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    self.worker = Some(Worker::new(stream));
                    self.told = None;
                },
                order = order(&mut self.worker) => match order {
                    Some(order) => self.obey(order),
                    None => self.worker = None,
                },
                () = sleep_until(changes) => self.change_pace(),
                () = sleep_until(kill_at) => self.kill(),
                _ = ticks.tick() => self.tick(),
            }
            self.tell().await;
        }
    }

    fn obey(&mut self, order: RankOrder) {
        match order {
            RankOrder::Stop(stop) => self.stop(Duration::from_millis(stop.notice_ms)),
            RankOrder::Duty(duty) if self.stopping.is_none() => {
                self.pace.set(duty, Instant::now());
            }
            RankOrder::Duty(_) => {}
            RankOrder::Renewed => self.renewed = Instant::now(),
            RankOrder::Speak(version) => {
                if let Some(worker) = self.worker.as_mut().filter(|_| SPOKEN.contains(&version)) {
                    worker.version = version;
                    self.told = None;
                }
            }
        }
    }

    fn stop(&mut self, notice: Duration) {
        let now = Instant::now();
        let by = now + notice;
        if let Some(stopping) = &mut self.stopping {
            stopping.by = stopping.by.min(by);
            return;
        }
        self.pace = Pace::default();
        signals::to_group(self.pid, Signal::CONT);
        let asked = signals::ask_to_checkpoint(self.pid);
        let before = self.progress.checkpoint();
        let checkpoints = asked.then_some((now + notice / 2, before));
        self.stopping = Some(Stopping { by, checkpoints, killed: false });
        if !asked {
            signals::to_group(self.pid, Signal::TERM);
        }
    }

    fn kill(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            stopping.killed = true;
            // Not again before long, should it be slow to die.
            stopping.by = Instant::now() + TELL_WAIT;
        }
        signals::to_group(self.pid, Signal::KILL);
    }

    fn change_pace(&mut self) {
        let paused = self.pace.change(Instant::now());
        signals::to_group(self.pid, if paused { Signal::STOP } else { Signal::CONT });
    }

    fn tick(&mut self) {
        self.progress.read();
        let now = Instant::now();
        if let Some(stopping) = &mut self.stopping
            && let Some((until, before)) = stopping.checkpoints
            && (now >= until || self.progress.checkpoint() != before)
        {
            stopping.checkpoints = None;
            signals::to_group(self.pid, Signal::TERM);
        }
        let spec = &self.assignment.spec;
        let lease = Duration::from_millis(spec.lease_ms);
        if self.stopping.is_none() && now.duration_since(self.renewed) > lease {
            let (rank, lease_ms) = (spec.name(), spec.lease_ms);
            tracing::warn!(rank, lease_ms, "loan lease expired; stopping rank");
            self.expired = true;
            self.stop(Duration::from_millis(spec.notice_ms));
        }
        if let Some(most_mib) = self.assignment.limits.disk_mib
            && now.duration_since(self.measured) >= MEASURE_EVERY
        {
            self.measured = now;
            let mib = size(&self.assignment.folder) / MIB;
            if mib > most_mib && self.exceeded.is_none() {
                self.exceeded = Some(format!("its folder holds {mib} MiB, {most_mib} are allowed"));
                self.kill();
            }
        }
    }

    async fn tell(&mut self) {
        let spec = &self.assignment.spec;
        let state = match self.stopping {
            Some(Stopping { checkpoints: Some(_), .. }) => RankState::Checkpointing,
            Some(_) => RankState::Stopping,
            None => RankState::Running { pid: self.pid },
        };
        let progress = self.progress.report();
        let (job, run, rank) = (spec.job, spec.run, spec.rank);
        let report = RankReport { job, run, rank, state, progress, said: None };
        if self.told.as_ref() == Some(&report) {
            return;
        }
        let Some(worker) = &mut self.worker else { return };
        let Ok(Some(line)) = line(&report, worker.version) else { return };
        match timeout(TELL_WAIT, worker.reports.write_all(&line)).await {
            Ok(Ok(())) => self.told = Some(report),
            Ok(Err(_)) | Err(_) => self.worker = None,
        }
    }

    fn ended(&mut self, ended: io::Result<ExitStatus>) -> Ended {
        // What it said last counts most.
        self.progress.read();
        Ended { end: self.end(ended), progress: self.progress.report(), said: None }
    }

    fn end(&mut self, ended: io::Result<ExitStatus>) -> RankEnd {
        if let Some(what) = self.exceeded.take() {
            return RankEnd::Exceeded { what };
        }
        if self.expired {
            return RankEnd::Expired;
        }
        let overdue = self.stopping.is_some_and(|stopping| stopping.killed);
        match ended {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => RankEnd::Exited { code },
                (None, signal) => RankEnd::Killed { signal: signal.unwrap_or(0), overdue },
            },
            Err(error) => RankEnd::Lost { reason: format!("it cannot be waited for: {error}") },
        }
    }
}

impl Worker {
    fn new(stream: UnixStream) -> Self {
        let (read, reports) = stream.into_split();
        Self { orders: Lines::new(read, MAX_LINE), reports, version: OLDEST }
    }
}

async fn order(worker: &mut Option<Worker>) -> Option<RankOrder> {
    let Some(worker) = worker else { return std::future::pending().await };
    loop {
        let line = worker.orders.next().await.ok()??;
        if let Some(order) = read(&line.bytes).ok()? {
            return Some(order);
        }
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}

fn size(folder: &Path) -> u64 {
    let mut total = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            } else {
                total += found.len();
            }
        }
    }
    total
}
