//! What is left goes to the jobs that gain most by it.
//!
//! A multiple-choice knapsack, as Lyra has it: of each job one width is chosen, so that the work
//! gained is the most that the slices left over can give.

use std::time::Duration;

use super::{Act, free_slices::Desk, reserve::Reservation, speed::gang_speed};

/// How far a gain is looked ahead: what is lent now may be wanted back later.
const HORIZON: Duration = Duration::from_secs(600);
/// The most slices given out in one decision, so that it stays quick.
const MOST_SLICES: usize = 256;
/// The most jobs considered in one decision, so that it stays quick.
const MOST_JOBS: usize = 64;

/// Gives what nobody waits for to jobs that can use more.
pub(super) fn run(desk: &mut Desk<'_>, head: Option<&Reservation>) {
    let mut left = desk.free.clone();
    left.retain(|slice| head.is_none_or(|head| !head.suits(desk, *slice)));
    if left.is_empty() {
        return;
    }
    let jobs = growing(desk);
    let mut sizes: Vec<u8> = jobs.iter().map(|job| job.compute).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let pool: Vec<usize> =
            left.iter().copied().filter(|one| desk.world.slices[*one].compute == size).collect();
        let alike: Vec<&Growing> = jobs.iter().filter(|job| job.compute == size).collect();
        give(desk, pool, &alike);
    }
}

struct Growing {
    job: usize,
    starts: Option<usize>,
    /// The size of its slices.
    compute: u8,
    /// The speed of its slowest slice.
    speed: f64,
    ranks: u32,
    /// How many more it could use.
    room: u32,
    /// How long it will still run, as far as that matters.
    horizon: Duration,
}

impl Growing {
    /// Work gained by `extra` slices, in seconds of a whole GPU.
    fn gain(&self, extra: u32, restart: Duration) -> f64 {
        let after = gang_speed(self.ranks + extra, self.speed);
        let lost = if self.starts.is_some() || extra == 0 { Duration::ZERO } else { restart };
        let before = gang_speed(self.ranks, self.speed);
        after * self.horizon.saturating_sub(lost).as_secs_f64()
            - before * self.horizon.as_secs_f64()
    }
}

fn growing(desk: &Desk<'_>) -> Vec<Growing> {
    let mut found = Vec::new();
    let mut add = |job: usize, slices: &[usize], starts: Option<usize>| {
        let (asked, slice) = (&desk.world.jobs[job], |index: &usize| &desk.world.slices[*index]);
        let ranks = u32::try_from(slices.len()).unwrap_or(u32::MAX);
        let room = asked.ask.most.saturating_sub(ranks);
        let compute = slices.iter().map(|index| slice(index).compute).min();
        if let Some(compute) = compute.filter(|_| room > 0 && found.len() < MOST_JOBS) {
            let speed = slices.iter().map(|index| slice(index).speed).fold(f64::INFINITY, f64::min);
            let horizon = asked.remaining().map_or(HORIZON, |left| left.min(HORIZON));
            found.push(Growing { job, starts, compute, speed, ranks, room, horizon });
        }
    };
    for (at, act) in desk.decisions.acts.iter().enumerate() {
        if let Act::Start { job, slices, .. } = act
            && let Some(index) = desk.world.jobs.iter().position(|other| other.id == *job)
        {
            add(index, slices, Some(at));
        }
    }
    for job in (0..desk.held.len()).filter(|job| desk.contestable(*job)) {
        add(job, &desk.held[job], None);
    }
    found
}

fn give(desk: &mut Desk<'_>, mut pool: Vec<usize>, jobs: &[&Growing]) {
    let capacity = pool.len().min(MOST_SLICES);
    let widths = widths(jobs, capacity, desk.rules.restart);
    for (growing, extra) in jobs.iter().zip(widths).filter(|(_, extra)| *extra > 0) {
        let quota = room_in_quota(desk, growing);
        let near = nearest(desk, growing, &mut pool, extra.min(quota) as usize);
        if near.is_empty() {
            continue;
        }
        desk.free.retain(|slice| !near.contains(slice));
        match growing.starts.map(|at| &mut desk.decisions.acts[at]) {
            Some(Act::Start { slices, .. }) => slices.extend(near),
            Some(Act::Renew { .. } | Act::Grow { .. } | Act::Shrink { .. } | Act::Stop { .. })
            | None => {
                let job = desk.world.jobs[growing.job].id;
                desk.decisions.acts.push(Act::Grow { job, slices: near });
            }
        }
    }
}

/// How many more slices the job's tenant may hold.
fn room_in_quota(desk: &Desk<'_>, growing: &Growing) -> u32 {
    let tenant = desk.world.jobs[growing.job].ask.tenant;
    let of_tenant = |job: usize| desk.world.jobs[job].ask.tenant == tenant;
    let held: usize =
        (0..desk.held.len()).filter(|job| of_tenant(*job)).map(|job| desk.held[job].len()).sum();
    let given: usize = desk
        .decisions
        .acts
        .iter()
        .map(|act| match act {
            Act::Start { job, slices, .. } | Act::Grow { job, slices } => {
                let owner = desk.world.jobs.iter().position(|other| other.id == *job);
                if owner.is_some_and(of_tenant) { slices.len() } else { 0 }
            }
            Act::Renew { .. } | Act::Shrink { .. } | Act::Stop { .. } => 0,
        })
        .sum();
    let quota = desk.world.tenants.get(tenant).map_or(u32::MAX, |tenant| tenant.quota);
    quota.saturating_sub(u32::try_from(held + given).unwrap_or(u32::MAX))
}

/// Takes `count` from `pool`, those near the job's own first.
fn nearest(desk: &Desk<'_>, growing: &Growing, pool: &mut Vec<usize>, count: usize) -> Vec<usize> {
    let own: &[usize] = match growing.starts.map(|at| &desk.decisions.acts[at]) {
        Some(Act::Start { slices, .. }) => slices,
        Some(Act::Renew { .. } | Act::Grow { .. } | Act::Shrink { .. } | Act::Stop { .. })
        | None => &desk.held[growing.job],
    };
    let slices = desk.world.slices;
    let ask = &desk.world.jobs[growing.job].ask;
    let far = |slice: &usize| {
        let at = &slices[*slice];
        let gpu = own.iter().any(|own| slices[*own].gpu == at.gpu);
        let host = own.iter().any(|own| slices[*own].host == at.host);
        (!gpu, !host, desk.crowding(*slice), *slice)
    };
    let mut suited: Vec<usize> =
        pool.iter().copied().filter(|slice| ask.suits(&slices[*slice])).collect();
    suited.sort_by_key(far);
    suited.truncate(count);
    pool.retain(|slice| !suited.contains(slice));
    suited
}

/// How many more slices each job gets of `capacity`, for the most work gained.
fn widths(jobs: &[&Growing], capacity: usize, restart: Duration) -> Vec<u32> {
    let mut best = vec![0.0_f64; capacity + 1];
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(jobs.len());
    for growing in jobs {
        let mut next = best.clone();
        let mut widths = vec![0; capacity + 1];
        for extra in 1..=growing.room.min(u32::try_from(capacity).unwrap_or(u32::MAX)) {
            let gain = growing.gain(extra, restart);
            for used in extra as usize..=capacity {
                let with = best[used - extra as usize] + gain;
                if with > next[used] {
                    next[used] = with;
                    widths[used] = extra;
                }
            }
        }
        best = next;
        chosen.push(widths);
    }
    let mut left = capacity;
    let mut widths = vec![0; jobs.len()];
    for (width, choices) in widths.iter_mut().zip(&chosen).rev() {
        *width = choices[left];
        left -= *width as usize;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(ranks: u32, room: u32, speed: f64, starts: bool) -> Growing {
        Growing {
            job: 0,
            starts: starts.then_some(0),
            compute: 1,
            speed,
            ranks,
            room,
            horizon: HORIZON,
        }
    }

    /// Every way to divide, tried one by one.
    fn most(jobs: &[&Growing], capacity: usize, restart: Duration) -> f64 {
        let Some((first, others)) = jobs.split_first() else { return 0.0 };
        let tries = 0..=first.room.min(u32::try_from(capacity).unwrap());
        tries
            .map(|extra| {
                first.gain(extra, restart) + most(others, capacity - extra as usize, restart)
            })
            .fold(0.0, f64::max)
    }

    #[test]
    fn no_other_division_gains_more() {
        let jobs = [
            growing(1, 4, 1.0, true),
            growing(2, 3, 0.67, false),
            growing(8, 8, 0.31, true),
            growing(1, 1, 0.52, false),
        ];
        let jobs: Vec<&Growing> = jobs.iter().collect();
        let restart = Duration::from_secs(60);
        for capacity in 0..12 {
            let widths = widths(&jobs, capacity, restart);
            assert!(widths.iter().sum::<u32>() as usize <= capacity);
            let gained: f64 =
                jobs.iter().zip(&widths).map(|(job, extra)| job.gain(*extra, restart)).sum();
            let most = most(&jobs, capacity, restart);
            assert!((gained - most).abs() < 1e-6, "{capacity}: {widths:?}, {gained} of {most}");
        }
    }

    #[test]
    fn a_job_that_would_lose_more_by_the_restart_is_left_alone() {
        let job = growing(16, 1, 1.0, false);
        assert_eq!(widths(&[&job], 4, HORIZON / 4), [0]);
    }
}
