//! The task that keeps one rank of a job on a slice, from its start to its recorded end.

mod files;
mod talk;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use protocol::{
    DesiredRank, JOIN_VERSION, MAX_LINE, OLDEST, RankEnd, RankOrder, RankReport, RankSpec,
    RankState, SPOKEN, Stop,
};
use tokio::{
    net::{UnixStream, unix::OwnedReadHalf},
    process::{Child, Command},
    sync::watch,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

pub(super) use self::files::{Found, find};
use self::{
    files::{CONTROL, FILE, LOG, file},
    talk::{connect, news, say},
};
use super::{lane::Surroundings, process::NAME};
use crate::{
    gpu::simulated::{Load, Work},
    lines::Lines,
    rank::{Assignment, Ended, JobFolder, Limits, sweep},
};

const LISTEN_WAIT: Duration = Duration::from_secs(10);
/// The wait before a socket that is not there yet is tried again.
const KNOCK: Duration = Duration::from_millis(5);
/// How often a rank is told that a router is there.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How long one that hung up may take to write down how it ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
pub struct Lending {
    pub allow: Vec<String>,
    pub directory: PathBuf,
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    stop: Option<Stop>,
    duty: u8,
}

pub(super) struct Rank {
    spec: RankSpec,
    device: Option<String>,
    wanted: watch::Sender<Wanted>,
    report: watch::Receiver<RankReport>,
    task: JoinHandle<()>,
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Its own process goes on, and ends it if nobody renews its loan.
        self.task.abort();
    }
}

impl Rank {
    pub(super) fn start(desired: &DesiredRank, seat: RankSeat, around: Surroundings) -> Self {
        let wanted = Wanted { stop: desired.stop, duty: desired.duty };
        Self::keep(desired.spec.clone(), wanted, seat, around, JOIN_VERSION)
    }

    pub(super) fn adopt(found: &Found, around: Surroundings) -> Self {
        let seat = RankSeat {
            gpu: found.gpu,
            position: found.position.clone(),
            device: found.assignment.device.clone(),
        };
        let known = found.assignment.speaks.map(|theirs| theirs.min(JOIN_VERSION));
        let speaks = known.filter(|version| SPOKEN.contains(version)).unwrap_or(OLDEST);
        let wanted = Wanted { stop: None, duty: 100 };
        Self::keep(found.assignment.spec.clone(), wanted, seat, around, speaks)
    }

    fn keep(
        spec: RankSpec,
        wanted: Wanted,
        seat: RankSeat,
        around: Surroundings,
        speaks: u16,
    ) -> Self {
        let RankSpec { job, run, rank, .. } = spec;
        let first = RankReport { job, run, rank, ..RankReport::default() };
        let (telling, report) = watch::channel(first);
        let (wanted, wishes) = watch::channel(wanted);
        let device = seat.device.clone();
        let keeper = Keeper { spec: spec.clone(), seat, around, wishes, telling, speaks };
        Self { spec, device, wanted, report, task: tokio::spawn(keeper.keep()) }
    }

    pub(super) fn name(&self) -> String {
        self.spec.name()
    }

    pub(super) fn want(&self, desired: &DesiredRank) {
        let wanted = Wanted { stop: desired.stop, duty: desired.duty };
        self.wanted.send_if_modified(|before| {
            let news = *before != wanted;
            *before = wanted;
            news
        });
    }

    /// Nobody wants it any more: it stops, with its own notice.
    pub(super) fn dismiss(&self) {
        let stop = Some(Stop { notice_ms: self.spec.notice_ms });
        self.wanted.send_if_modified(|wanted| {
            let news = wanted.stop.is_none();
            wanted.stop = wanted.stop.or(stop);
            news
        });
    }

    /// What its neighbours on a GPU that only pretends to work are to feel of it.
    pub(super) fn work(&self) -> Option<Work> {
        let runs = matches!(self.report.borrow().state, RankState::Running { .. });
        let duty = f64::from(self.wanted.borrow().duty) / 100.0;
        let uuid = self.device.clone().filter(|_| runs)?;
        Some(Work { uuid, memory_mib: 0, load: Load::TRAINING, duty })
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.report.borrow().state, RankState::Ended(_))
    }

    pub(super) fn report(&self) -> RankReport {
        self.report.borrow().clone()
    }

    pub(super) async fn end(self) {
        self.dismiss();
        let mut report = self.report.clone();
        // An error means that its task is gone, and knows nothing more.
        let _ = report.wait_for(|report| matches!(report.state, RankState::Ended(_))).await;
    }

    pub(super) fn forget(&self, run_dir: &Path) {
        for kind in [CONTROL, FILE, LOG] {
            let _ = fs::remove_file(file(run_dir, &self.spec, kind));
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct RankSeat {
    pub(super) gpu: u32,
    pub(super) position: String,
    pub(super) device: Option<String>,
}

struct Keeper {
    spec: RankSpec,
    seat: RankSeat,
    around: Surroundings,
    wishes: watch::Receiver<Wanted>,
    telling: watch::Sender<RankReport>,
    /// The version that its own process speaks.
    speaks: u16,
}

impl Keeper {
    async fn keep(mut self) {
        let lending = self.around.launch.lending.borrow().clone();
        let Ended { end, progress, said } = match lending {
            Some(lending) => self.live(&lending).await,
            None => lost("this worker runs no jobs"),
        };
        let name = self.spec.name();
        tracing::info!(rank = name, slice = self.seat.position, ?end, "rank ended");
        self.tell(|report| {
            report.state = RankState::Ended(end);
            report.progress = progress.or(report.progress);
            report.said = said;
        });
    }

    fn tell(&self, change: impl FnOnce(&mut RankReport)) {
        self.telling.send_modify(change);
        self.around.news.notify_one();
    }

    async fn live(&mut self, lending: &Lending) -> Ended {
        let folder = JobFolder::of(&lending.directory, self.spec.job);
        let control = file(&self.around.launch.run_dir, &self.spec, CONTROL);
        let leased = self.around.lease(self.seat.device.clone()).await;
        if let Some(run) = folder.run(&self.spec) {
            if let Some(end) = run.end {
                return end;
            }
            // One at work goes on, though its GPU may not be readable at the moment.
            let _lease = leased.ok().flatten();
            let found = match UnixStream::connect(&control).await {
                // Its keeper has just begun, and listens in a moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    timeout(LAST_WORDS, connect(&control)).await.ok()
                }
                found => found.ok(),
            };
            if let Some(stream) = found {
                tracing::info!(rank = self.spec.name(), "adopted running rank");
                self.attend(stream).await;
            }
            return self.last_words(&folder, None).await;
        }
        let _lease = match leased {
            Ok(lease) => lease,
            Err(error) => return lost(&format!("slice not to be had: {error}")),
        };
        let mut process = match self.begin(lending, &folder, &control) {
            Ok(process) => process,
            Err(reason) => return lost(&reason),
        };
        let connected = tokio::select! {
            stream = connect(&control) => Some(stream),
            _ = process.wait() => None,
            () = sleep(LISTEN_WAIT) => None,
        };
        if let Some(stream) = connected {
            self.attend(stream).await;
        } else if folder.run(&self.spec).is_some_and(|run| run.end.is_none())
            && let Ok(stream) = timeout(LISTEN_WAIT, connect(&control)).await
        {
            // A worker before this one had started it and was killed before it was begun.
            self.attend(stream).await;
            return self.last_words(&folder, None).await;
        }
        self.last_words(&folder, Some(process)).await
    }

    /// Starts the process that stands over the rank.
    fn begin(
        &self,
        lending: &Lending,
        folder: &JobFolder,
        control: &Path,
    ) -> Result<Child, String> {
        let program = self.spec.argv.first().map_or("", String::as_str);
        if !lending.allow.iter().any(|allowed| allowed == program) {
            return Err(format!("this worker does not allow {program:?}"));
        }
        let assignment = Assignment {
            spec: self.spec.clone(),
            gpu: self.seat.gpu,
            position: self.seat.position.clone(),
            device: self.seat.device.clone(),
            folder: folder.path().to_owned(),
            control: control.to_owned(),
            limits: lending.limits.clone(),
            speaks: Some(JOIN_VERSION),
        };
        let launch = &self.around.launch;
        let path = file(&launch.run_dir, &self.spec, FILE);
        let text = serde_json::to_vec(&assignment).map_err(|error| error.to_string())?;
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut command = Command::new(&launch.program);
        command.arg0(NAME).arg("rank").arg(&path).process_group(0);
        let log = fs::File::create(file(&launch.run_dir, &self.spec, LOG));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.map_or_else(|_| Stdio::null(), Stdio::from));
        command.spawn().map_err(|error| format!("its own process was not started: {error}"))
    }

    async fn attend(&mut self, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut reports: Lines<OwnedReadHalf> = Lines::new(read, MAX_LINE);
        let mut joined = self.around.joined.clone();
        let mut ticks = interval(RENEW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Wanted { stop: None, duty: 100 };
        let speak = [RankOrder::Speak(self.speaks)];
        if self.speaks > OLDEST && say(&mut write, &speak, self.speaks).await.is_err() {
            return;
        }
        self.wishes.mark_changed();
        loop {
            let done = tokio::select! {
                line = reports.next() => match line {
                    Ok(Some(line)) => {
                        if let Ok(Some(news)) = protocol::read::<RankReport>(&line.bytes) {
                            self.tell(|report| *report = news);
                        }
                        Ok(())
                    }
                    Ok(None) | Err(_) => return,
                },
                changed = self.wishes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let wanted = *self.wishes.borrow_and_update();
                    let orders = news(told, wanted);
                    told = wanted;
                    say(&mut write, &orders, self.speaks).await
                }
                _ = ticks.tick() => {
                    let there = *joined.borrow_and_update();
                    let renewed = [RankOrder::Renewed];
                    say(&mut write, if there { &renewed } else { &[] }, self.speaks).await
                }
            };
            if done.is_err() {
                return;
            }
        }
    }

    /// How a rank ended over which nobody stands any more. Whatever is left of it is ended.
    async fn last_words(&self, folder: &JobFolder, process: Option<Child>) -> Ended {
        let spec = &self.spec;
        let mut over = false;
        if let Some(mut process) = process {
            // It has hung up and ends at once, unless it was killed, which is as well. One that says
            // it failed may have come second, after a keeper that has yet to write its last words.
            let ended = timeout(LAST_WORDS, process.wait()).await;
            over = ended.is_ok_and(|status| !status.is_ok_and(|status| status.code() == Some(1)));
        }
        let written = async {
            loop {
                match folder.run(spec) {
                    Some(run) if run.end.is_some() => return run.end,
                    Some(_) if !over => sleep(KNOCK).await,
                    Some(_) | None => return None,
                }
            }
        };
        if let Ok(Some(ended)) = timeout(LAST_WORDS, written).await {
            return ended;
        }
        let Some(run) = folder.run(spec) else {
            let said = fs::read_to_string(file(&self.around.launch.run_dir, spec, LOG));
            let said = said.unwrap_or_default();
            let last = said.lines().last().unwrap_or("its own process said nothing");
            return lost(&format!("not begun: {last}"));
        };
        sweep(&run.mark);
        let reason = "the process over it was killed".to_owned();
        let end = RankEnd::Lost { reason };
        if let Err(error) = folder.bury(spec, run, end.clone()) {
            tracing::error!(rank = spec.name(), %error, "failed to save how the rank ended");
        }
        Ended::silent(end)
    }
}

fn lost(reason: &str) -> Ended {
    Ended::silent(RankEnd::Lost { reason: reason.to_owned() })
}
