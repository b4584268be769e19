//! From what the workers report of a job's ranks to what becomes of the job: values in, values out.

use super::{
    Counts, Life, Progress, Rank, RankEnd, RankProgress, RankSeen, RankState, State, Stopping,
};
use crate::fleet::SliceId;

/// The longest wait before a job that failed is started again.
const LONGEST_WAIT_S: u64 = 300;

#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub notice_ms: u64,
    /// The present, since 1970.
    pub now_ms: u64,
    pub elapsed_s: f64,
    /// How often it is started again after it failed by itself.
    pub retries: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    Gone,
    /// With the last line of its stderr, if it failed.
    Told(RankEnd, Option<String>),
}

impl End {
    /// Whether the rank did all it had to do.
    fn is_well(&self) -> bool {
        matches!(self, Self::Told(RankEnd::Exited { code: 0 }, _))
    }
}

/// `life` after its ranks were seen as `seen`, in their order.
pub fn settle(life: &Life, seen: &[RankSeen], terms: &Terms) -> (Life, Counts) {
    let mut after = life.clone();
    let mut counts = Counts::default();
    if life.seats.is_empty() {
        return (after, counts);
    }
    after.ran_s += terms.elapsed_s;
    after.attained_gpu_s += terms.elapsed_s * life.gpus;
    learn(&mut after, seen, terms.now_ms);
    let ends: Vec<Option<End>> = seen.iter().map(|one| end(life, one)).collect();
    let ended: Option<Vec<End>> = ends.iter().cloned().collect();
    match ended {
        Some(ended) => finish(&mut after, &mut counts, &ended, terms),
        None => go_on(&mut after, seen, &ends, terms),
    }
    (after, counts)
}

fn end(life: &Life, seen: &RankSeen) -> Option<End> {
    match seen {
        RankSeen::Gone => Some(End::Gone),
        RankSeen::Reported(Rank { run, state: RankState::Ended(end), said, .. })
            if *run == life.run =>
        {
            Some(End::Told(end.clone(), said.clone()))
        }
        RankSeen::Reported(_) | RankSeen::Unknown => None,
    }
}

fn learn(after: &mut Life, seen: &[RankSeen], now_ms: u64) {
    let told = seen.iter().find_map(|one| match one {
        RankSeen::Reported(report) if report.run == after.run => report.progress,
        RankSeen::Reported(_) | RankSeen::Unknown | RankSeen::Gone => None,
    });
    let Some(RankProgress { step, steps, checkpoint, checkpoint_age_ms }) = told else { return };
    let known = after.progress.filter(|known| known.checkpoint == checkpoint);
    let fresh = checkpoint_age_ms.map(|age| now_ms.saturating_sub(age));
    let since_start = |at: &u64| *at >= after.started_ms;
    let checkpoint_ms = known.and_then(|known| known.checkpoint_ms).filter(since_start).or(fresh);
    after.progress = Some(Progress { step, steps, checkpoint, checkpoint_ms });
}

/// What becomes of a job of which some rank still runs.
fn go_on(after: &mut Life, seen: &[RankSeen], ends: &[Option<End>], terms: &Terms) {
    let now_ms = terms.now_ms;
    let is_bad = |end: &End| !end.is_well();
    let bad = (0..).zip(ends).find(|(_, end)| end.as_ref().is_some_and(is_bad));
    if let (None, Some((rank, Some(end)))) = (&after.stop, bad) {
        let then = if is_gone(end) { State::Preempted } else { State::Queued };
        let notice_ms = terms.notice_ms;
        let reason = format!("{}; the others stop", described(rank, end));
        let by_ms = now_ms + notice_ms;
        let stop = Stopping { then, seats: Vec::new(), reason, notice_ms, by_ms };
        after.stop(State::Noticed, stop, now_ms);
        return;
    }
    let mine = |one: &RankSeen| match one {
        RankSeen::Reported(report) if report.run == after.run => Some(report.state.clone()),
        RankSeen::Reported(_) | RankSeen::Unknown | RankSeen::Gone => None,
    };
    let states: Vec<Option<RankState>> = seen.iter().map(mine).collect();
    if after.stop.is_some() {
        let asked = states.contains(&Some(RankState::Checkpointing));
        if asked && after.state == State::Noticed {
            let reason = after.reason.clone();
            after.enter(State::Checkpointing, reason, now_ms);
        }
    } else if after.state == State::Starting {
        let runs = |state: &Option<RankState>| {
            matches!(state, Some(RankState::Running | RankState::Ended(_)))
        };
        if states.iter().all(runs) {
            let ranks = after.seats.len();
            let reason = if ranks == 1 {
                "its rank runs".to_owned()
            } else {
                format!("all {ranks} ranks run")
            };
            after.enter(State::Running, reason, now_ms);
        }
    }
}

/// What becomes of a job whose ranks have all ended.
fn finish(after: &mut Life, counts: &mut Counts, ends: &[End], terms: &Terms) {
    let now_ms = terms.now_ms;
    let stop = after.stop.take();
    let all_well = ends.iter().all(End::is_well);
    let at_its_end = after.progress.is_some_and(|done| Some(done.step) == done.steps);
    let overdue = ends.iter().any(is_overdue);
    counts.overdue += u64::from(overdue);
    if let Some(stop) = &stop {
        let called = stop.by_ms.saturating_sub(stop.notice_ms);
        let written = after.progress.and_then(|progress| progress.checkpoint_ms);
        if let Some(took) = written.and_then(|written| written.checked_sub(called)) {
            after.checkpoint_takes_ms = Some(took);
        }
    }
    // Told to stop, a job may leave with 0 though it has not ended; its progress tells.
    let done = all_well && (stop.is_none() || at_its_end);
    if !done {
        let saved = after.progress.and_then(|progress| progress.checkpoint_ms).unwrap_or(0);
        let lost_ms = now_ms.saturating_sub(saved.max(after.started_ms));
        let lost = lost_ms as f64 / 1e3 * after.gpus;
        after.lost_gpu_s += lost;
        counts.lost_gpu_s += lost;
    }
    after.last_seats = std::mem::take(&mut after.seats);
    let why = (0..).zip(ends).map(|(rank, end)| described(rank, end)).find(|why| !why.is_empty());
    let why = why.unwrap_or_else(|| "ended by itself".to_owned());
    let exceeded = ends.iter().any(|end| matches!(end, End::Told(RankEnd::Exceeded { .. }, _)));
    let gone = ends.iter().any(is_gone);
    match stop {
        _ if done => after.enter(State::Done, "ended by itself", now_ms),
        Some(stop) if stop.then == State::Cancelled => {
            after.enter(State::Cancelled, stop.reason, now_ms);
        }
        _ if exceeded => after.enter(State::Failed, why, now_ms),
        Some(stop) if stop.then == State::Starting => {
            begin(after, stop.seats, stop.reason, now_ms);
        }
        Some(stop) if stop.then == State::Preempted => {
            let reason = if overdue { format!("{}; {why}", stop.reason) } else { stop.reason };
            after.enter(State::Preempted, reason, now_ms);
        }
        None if gone => after.enter(State::Preempted, why, now_ms),
        Some(_) | None => fail(after, &why, terms),
    }
}

/// Starts a job on `seats`: its ranks carry the number of the start.
pub fn begin(after: &mut Life, seats: Vec<SliceId>, reason: String, now_ms: u64) {
    after.run += 1;
    after.seats = seats;
    after.started_ms = now_ms;
    after.not_before_ms = None;
    after.enter(State::Starting, reason, now_ms);
}

fn fail(after: &mut Life, why: &str, terms: &Terms) {
    let now_ms = terms.now_ms;
    after.failures += 1;
    if after.failures > terms.retries {
        let reason = match after.failures {
            1 => why.to_owned(),
            times => format!("{why} (failed {times} times)"),
        };
        after.enter(State::Failed, reason, now_ms);
    } else {
        let wait_s = 1_u64.checked_shl(after.failures - 1).unwrap_or(u64::MAX).min(LONGEST_WAIT_S);
        after.not_before_ms = Some(now_ms + wait_s * 1000);
        after.enter(State::Queued, format!("{why}; it is started again in {wait_s} s"), now_ms);
    }
}

/// Whether it is no fault of the job's that it ended.
fn is_gone(end: &End) -> bool {
    matches!(end, End::Gone | End::Told(RankEnd::Expired, _))
}

fn is_overdue(end: &End) -> bool {
    matches!(end, End::Told(RankEnd::Killed { overdue: true, .. }, _))
}

/// How a rank ended, for people, and what it said last; nothing if it ended well.
fn described(rank: u32, end: &End) -> String {
    let (end, said) = match end {
        End::Gone => return format!("the slice of rank {rank} is out of reach"),
        End::Told(end, said) => (end, said),
    };
    let text = match end {
        RankEnd::Expired => {
            format!("rank {rank} stopped: its worker had no router to renew its loan")
        }
        RankEnd::Exited { code: 0 } => return String::new(),
        RankEnd::Exited { code } => format!("rank {rank} exited with {code}"),
        RankEnd::Killed { overdue: true, .. } => {
            format!("rank {rank} did not stop in time and was killed")
        }
        RankEnd::Killed { signal, overdue: false } => {
            format!("rank {rank} was killed by signal {signal}")
        }
        RankEnd::Exceeded { what } => format!("rank {rank} was ended: {what}"),
        RankEnd::Lost { reason } => format!("rank {rank} was lost: {reason}"),
    };
    said.iter().fold(text, |text, said| format!("{text}: {said}"))
}

#[cfg(test)]
mod tests;
