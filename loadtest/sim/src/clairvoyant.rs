//! The most that could be in time, by one who knows every arrival beforehand.
//!
//! For one replica whose times are certain, requests of one row, and one objective for all. Some best
//! schedule then serves in order of arrival, in batches of neighbours: if a batch passes one over, it
//! might as well pass over its oldest instead, who has the least time left. So all that matters
//! before a request is how many were served and when the replica is free. Of two ways to get there,
//! one that served no more and is free no sooner can be forgotten.

use std::time::Duration;

use crate::random::Random;

/// How many were served, and when the replica is free.
type Way = (usize, Duration);

/// When the first `count` requests of a Poisson stream come.
pub fn poisson(count: usize, rate_rps: f64, seed: u64) -> Vec<Duration> {
    let mut random = Random::new(seed);
    let mut at = Duration::ZERO;
    let mut next = || {
        at += random.exponential(rate_rps);
        at
    };
    (0..count).map(|_| next()).collect()
}

/// How many of those who come at `arrivals`, in that order, can be answered within `objective`, if a
/// batch of one request takes the first of `takes`, one of two the second, and so on.
pub fn most_in_time(arrivals: &[Duration], takes: &[Duration], objective: Duration) -> usize {
    let behind = most_behind(takes, objective);
    let mut ways: Vec<Vec<Way>> = vec![Vec::new(); arrivals.len() + 1];
    ways[0].push((0, Duration::ZERO));
    for (first, arrived) in arrivals.iter().enumerate() {
        let worth = worth_following(std::mem::take(&mut ways[first]), *arrived, behind);
        for (served, free) in &worth {
            for (more, (came, took)) in arrivals[first..].iter().zip(takes).enumerate() {
                let done = (*free).max(*came) + *took;
                if done > *arrived + objective {
                    break;
                }
                ways[first + more + 1].push((served + more + 1, done));
            }
        }
        ways[first + 1].extend(worth);
    }
    ways[arrivals.len()].iter().map(|(served, _)| *served).max().unwrap_or(0)
}

/// Those of `ways` that no other is better than, at the time the next request has `arrived`.
fn worth_following(mut ways: Vec<Way>, arrived: Duration, behind: usize) -> Vec<Way> {
    // Having been free before there was anybody is no advantage.
    ways.iter_mut().for_each(|(_, free)| *free = (*free).max(arrived));
    ways.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let most = ways.first().map_or(0, |(served, _)| *served);
    let mut soonest = Duration::MAX;
    ways.retain(|(served, free)| {
        let better = *free < soonest && served + behind >= most;
        if better {
            soonest = *free;
        }
        better
    });
    ways
}

/// How far one way may be behind another and still overtake it.
///
/// The other is free within the objective of the last who came. Until then no more can be served
/// than at the best rate, and the batch that is running then.
fn most_behind(takes: &[Duration], objective: Duration) -> usize {
    let sizes = (1_u32..).zip(takes).filter(|(_, took)| **took <= objective);
    let rate = |(rows, took): (u32, &Duration)| f64::from(rows) / took.as_secs_f64();
    let (most, best) = sizes.fold((0, 0.0_f64), |(_, best), one| (one.0, best.max(rate(one))));
    most as usize + (best * objective.as_secs_f64()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    /// The same by trying every batch of any of those who are left, by bits, one after the other.
    fn by_trial(arrivals: &[Duration], takes: &[Duration], left: u32, free: Duration) -> usize {
        let members =
            |batch: u32| (0..arrivals.len()).filter(move |index| batch & (1 << index) != 0);
        let served = (1..1_u32 << arrivals.len()).filter_map(|batch| {
            let (count, last) = (batch.count_ones() as usize, members(batch).next_back()?);
            if batch & !left != 0 || count > takes.len() {
                return None;
            }
            let done = free.max(arrivals[last]) + takes[count - 1];
            let in_time = members(batch).all(|index| done <= arrivals[index] + ms(25));
            in_time.then(|| count + by_trial(arrivals, takes, left & !batch, done))
        });
        served.max().unwrap_or(0)
    }

    #[test]
    fn nobody_who_tries_everything_finds_more() {
        let takes: Vec<Duration> = (1..=4).map(|rows| ms(10 + rows)).collect();
        for seed in 0..60 {
            let arrivals = poisson(7, 100.0 + 5.0 * seed as f64, seed);
            let found = most_in_time(&arrivals, &takes, ms(25));
            assert_eq!(found, by_trial(&arrivals, &takes, 0x7f, Duration::ZERO), "seed {seed}");
        }
    }

    #[test]
    fn all_are_in_time_who_come_seldom_and_none_who_cannot_be() {
        let takes = [ms(11), ms(12)];
        let seldom: Vec<Duration> = (0..50).map(|index| ms(index * 12)).collect();
        assert_eq!(most_in_time(&seldom, &takes, ms(25)), 50);
        assert_eq!(most_in_time(&seldom, &takes, ms(10)), 0);
        assert_eq!(most_in_time(&[], &takes, ms(25)), 0);
    }
}
