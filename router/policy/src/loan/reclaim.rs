//! Slices back from jobs: shrink first, then those who lose least, and no more than is needed.

use std::time::Duration;

use super::{Job, Loaning, Phase, Rules, Stop, free_slices::Desk};
use crate::moment::Moment;

/// How late the next decision may be.
const TICK: Duration = Duration::from_secs(1);

/// When taking slices back must begin that are needed at `needed`, with `after` to reshape and load.
pub fn begin_by(needed: Moment, after: Duration, rules: &Rules) -> Moment {
    needed - after - rules.notice - TICK
}

/// GPU-seconds that `job` would lose, on slices that are `gpus` together, if it had `warning`.
///
/// One that is known to checkpoint within the warning loses that time only. One that never reported
/// a checkpoint loses all it has run, but no more than the longest loan: silence must not be a way
/// to keep slices for ever.
pub fn work_lost(job: &Job, gpus: f64, now: Moment, warning: Duration, rules: &Rules) -> f64 {
    let began = match job.phase {
        Phase::Running { since, .. } => since,
        Phase::Waiting { .. } | Phase::Leaving => now,
    };
    let at_risk = match job.checkpoint {
        Some(checkpoint) => now.since(checkpoint.max(began)),
        None => now.since(began).min(rules.max_loan),
    };
    let in_time = job.checkpoint_takes.filter(|takes| *takes <= warning);
    let lost = in_time.map_or(at_risk, |takes| takes.min(at_risk));
    (lost + rules.restart).as_secs_f64() * gpus
}

/// Takes back what inference wants, and restores what must stay idle.
pub(super) fn run(desk: &mut Desk<'_>) {
    let world = desk.world;
    for wanted in world.wanted {
        let one = |_: &Desk<'_>, _: usize| 1;
        let need = Need { slices: Some(&wanted.slices), weigh: &one, by: wanted.by };
        let short = consume(desk, &need, wanted.count);
        if short > 0 {
            give_back(desk, &need, short);
            consume(desk, &need, short);
        }
    }
    let compute = |desk: &Desk<'_>, slice: usize| u32::from(desk.world.slices[slice].compute);
    let need = Need { slices: None, weigh: &compute, by: world.keep.by };
    let short = consume(desk, &need, desk.rules.loaning.kept(world));
    if short > 0 && desk.rules.loaning == Loaning::Sluice {
        give_back(desk, &need, short);
        consume(desk, &need, short);
    }
}

/// What must be free.
struct Need<'a> {
    /// Which slices count; absent, all.
    slices: Option<&'a [usize]>,
    /// How much each counts.
    weigh: &'a dyn Fn(&Desk<'_>, usize) -> u32,
    by: Moment,
}

impl Need<'_> {
    fn counts(&self, slice: usize) -> bool {
        self.slices.is_none_or(|slices| slices.contains(&slice))
    }

    fn weight(&self, desk: &Desk<'_>, slices: &[usize]) -> u32 {
        let counted = slices.iter().filter(|slice| self.counts(**slice));
        counted.map(|slice| (self.weigh)(desk, *slice)).sum()
    }
}

/// Takes `amount` of what is idle or coming out of lending; what is short is returned.
fn consume(desk: &mut Desk<'_>, need: &Need<'_>, amount: u32) -> u32 {
    let mut short = amount;
    let mut idle: Vec<usize> = desk.free.iter().copied().filter(|one| need.counts(*one)).collect();
    // Beside inference training hurts most, and small slices come nearest to what is needed.
    idle.sort_by_key(|slice| {
        (u32::MAX - desk.crowding(*slice), desk.world.slices[*slice].compute, *slice)
    });
    let mut coming: Vec<(usize, Moment)> = desk.coming.clone();
    coming.retain(|(slice, _)| need.counts(*slice));
    coming.sort_by_key(|(slice, by)| (*by, *slice));
    for slice in idle.into_iter().chain(coming.into_iter().map(|(slice, _)| slice)) {
        if short == 0 {
            break;
        }
        short = short.saturating_sub((need.weigh)(desk, slice));
        desk.free.retain(|free| *free != slice);
        desk.coming.retain(|(coming, _)| *coming != slice);
    }
    short
}

/// Has jobs give back `amount`, if it is time.
fn give_back(desk: &mut Desk<'_>, need: &Need<'_>, amount: u32) {
    let (now, notice) = (desk.world.now, desk.rules.notice);
    if now < begin_by(need.by, Duration::ZERO, desk.rules) {
        return;
    }
    let by = need.by.clamp(now, now + notice);
    let why = Stop::Inference { emergency: now + notice > need.by };
    let mut shrinks = shrinking(desk, need, amount);
    let freed: u32 = shrinks.iter().map(|(_, slices)| need.weight(desk, slices)).sum();
    let mut victims = Vec::new();
    if freed < amount {
        let spared = |job: usize| -> Vec<usize> {
            let given = shrinks.iter().find(|(other, _)| *other == job);
            let keeps = |slice: &&usize| given.is_none_or(|(_, slices)| !slices.contains(slice));
            desk.held[job].iter().filter(keeps).copied().collect()
        };
        let mut candidates = Vec::new();
        for job in (0..desk.held.len()).filter(|job| !desk.held[*job].is_empty()) {
            let weight = need.weight(desk, &spared(job));
            if weight > 0 {
                candidates.push((job, weight));
            }
        }
        victims = match desk.rules.loaning {
            Loaning::Aryl => widest_first(desk, &candidates, amount - freed),
            Loaning::None | Loaning::Sluice => {
                least_lost(desk, &candidates, amount - freed, by.since(now))
            }
        };
    }
    let stopped = |job: usize| victims.contains(&job);
    shrinks.retain(|(job, _)| !stopped(*job));
    spare(desk, need, &mut shrinks, &victims, amount);
    for (job, slices) in shrinks {
        desk.shrink(job, slices, by, why);
    }
    for job in victims {
        desk.stop(job, by, why);
    }
}

/// Drops shrinks that the victims made needless.
fn spare(
    desk: &Desk<'_>,
    need: &Need<'_>,
    shrinks: &mut Vec<(usize, Vec<usize>)>,
    victims: &[usize],
    amount: u32,
) {
    let stopped: u32 = victims.iter().map(|job| need.weight(desk, &desk.held[*job])).sum();
    let shrunk: u32 = shrinks.iter().map(|(_, slices)| need.weight(desk, slices)).sum();
    let mut surplus = (stopped + shrunk).saturating_sub(amount);
    for (_, slices) in shrinks.iter_mut() {
        slices.retain(|slice| {
            let weight = need.weight(desk, &[*slice]);
            let needless = weight <= surplus;
            surplus -= if needless { weight } else { 0 };
            !needless
        });
    }
    shrinks.retain(|(_, slices)| !slices.is_empty());
}

/// Which slices beyond their fewest jobs give back: as few jobs as will do.
fn shrinking(desk: &Desk<'_>, need: &Need<'_>, amount: u32) -> Vec<(usize, Vec<usize>)> {
    let mut extras: Vec<(usize, Vec<usize>)> = Vec::new();
    for (job, held) in desk.held.iter().enumerate() {
        let spare = held.len().saturating_sub(desk.world.jobs[job].ask.least as usize);
        let counted = held.iter().rev().copied().filter(|slice| need.counts(*slice));
        let given: Vec<usize> = counted.take(spare).collect();
        if !given.is_empty() && desk.may_be_told(job) {
            extras.push((job, given));
        }
    }
    extras.sort_by_key(|(job, given)| (std::cmp::Reverse(given.len()), *job));
    let mut left = amount;
    for (_, given) in &mut extras {
        given.retain(|slice| {
            let wanted = left > 0;
            left = left.saturating_sub(if wanted { need.weight(desk, &[*slice]) } else { 0 });
            wanted
        });
    }
    extras.retain(|(_, given)| !given.is_empty());
    extras
}

/// The jobs that lose least and free `amount` together; all, if that is not enough.
///
/// The cheapest cover, exactly: `best[a]` is the least that frees at least `a`.
fn least_lost(
    desk: &Desk<'_>,
    candidates: &[(usize, u32)],
    amount: u32,
    warning: Duration,
) -> Vec<usize> {
    let gpus = |job: usize| -> f64 {
        desk.held[job].iter().map(|slice| desk.world.slices[*slice].share).sum()
    };
    let lost = |job: usize| {
        work_lost(&desk.world.jobs[job], gpus(job), desk.world.now, warning, desk.rules)
    };
    let total: u32 = candidates.iter().map(|(_, weight)| weight).sum();
    if total <= amount {
        return candidates.iter().map(|(job, _)| *job).collect();
    }
    let amount = amount as usize;
    // Cost, what is freed, and the last victim with the amount that was left before it.
    let mut best: Vec<Option<(f64, u32)>> = vec![None; amount + 1];
    let mut chosen = vec![vec![false; amount + 1]; candidates.len()];
    best[0] = Some((0.0, 0));
    for (item, (job, weight)) in candidates.iter().enumerate() {
        let cost = lost(*job);
        for want in (1..=amount).rev() {
            let before = best[want.saturating_sub(*weight as usize)];
            let Some((spent, freed)) = before else { continue };
            let with = (spent + cost, freed + weight);
            if best[want].is_none_or(|other| with < other) {
                best[want] = Some(with);
                chosen[item][want] = true;
            }
        }
    }
    let mut victims = Vec::new();
    let mut want = amount;
    for (item, (job, weight)) in candidates.iter().enumerate().rev() {
        if want > 0 && chosen[item][want] {
            victims.push(*job);
            want = want.saturating_sub(*weight as usize);
        }
    }
    victims.reverse();
    victims
}

/// The jobs on the most slices, until `amount` is freed: each slice of theirs costs the least part
/// of a job.
fn widest_first(desk: &Desk<'_>, candidates: &[(usize, u32)], amount: u32) -> Vec<usize> {
    let mut widest = candidates.to_vec();
    widest.sort_by_key(|(job, _)| (std::cmp::Reverse(desk.held[*job].len()), *job));
    let mut left = amount;
    widest.retain(|(_, weight)| {
        let wanted = left > 0;
        left = left.saturating_sub(if wanted { *weight } else { 0 });
        wanted
    });
    widest.into_iter().map(|(job, _)| job).collect()
}
