//! Several models on one slice, in turn.
//!
//! The slice runs one batch of each model after the other, again and again. Let `C` be the time of
//! one round: the sum of the batches' times. A model whose batch is `b` then serves `b / C` requests
//! per second, and a request that just missed its batch waits for the rest of the round and then
//! for its own batch: at most `C` and the batch's time `l(b)`. So the batches must satisfy
//!
//! - `b >= rate * C` for each model, and
//! - `C + l(b) <= 2 * latency_share * slo` for each model.
//!
//! With one model alone `C = l(b)` and the second says `l(b) <= latency_share * slo`: the rule for a
//! slice of one's own. Every batch that satisfies the first line is at least the one found by
//! starting from one row each and growing whichever is too small; if that one breaks the second
//! line, all do.

use super::capacity::Curve;

/// The most models on one slice: each more makes all wait.
pub(super) const MOST: usize = 8;
/// What a change of turn costs. One process holds all models of a slice, so nothing is loaded: the
/// caches are filled anew (5 MB at 240 GB/s, 0.02 ms on the smallest slice) and the host starts
/// another batch. Not measured here, and set well above that.
pub(super) const SWITCH_MS: f64 = 0.25;
/// Growing stops here; those that need longer are at the edge of what is possible.
const ROUNDS: u32 = 200;

#[derive(Clone, Copy, Debug)]
pub(super) struct Turn<'a> {
    pub(super) curve: &'a Curve,
    pub(super) rate_rps: f64,
    pub(super) limit_ms: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Round {
    pub(super) batches: Vec<u32>,
    pub(super) latencies_ms: Vec<f64>,
    pub(super) length_ms: f64,
}

/// The shortest round that serves every rate, if it keeps every objective.
pub(super) fn shortest(turns: &[Turn<'_>]) -> Option<Round> {
    grow(turns, vec![1; turns.len()])
}

fn grow(turns: &[Turn<'_>], mut batches: Vec<u32>) -> Option<Round> {
    let mut latencies_ms = vec![0.0; turns.len()];
    for _ in 0..ROUNDS {
        for ((latency, turn), batch) in latencies_ms.iter_mut().zip(turns).zip(&batches) {
            *latency = turn.curve.latency_ms(*batch)? + SWITCH_MS;
        }
        let length_ms: f64 = latencies_ms.iter().sum();
        let late = |(turn, latency): (&Turn<'_>, &f64)| length_ms + latency > turn.limit_ms + 1e-9;
        if turns.iter().zip(&latencies_ms).any(late) {
            return None;
        }
        let mut grown = false;
        for (batch, turn) in batches.iter_mut().zip(turns) {
            let due = (turn.rate_rps * length_ms / 1000.0 - 1e-9).ceil();
            if due > f64::from(*batch) {
                *batch = due.min(f64::from(u32::MAX)) as u32;
                grown = true;
            }
        }
        if !grown {
            return Some(Round { batches, latencies_ms, length_ms });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 ms and 1 ms a row.
    fn curve() -> Curve {
        Curve::new([1, 2, 4, 8, 16, 32].map(|batch| (batch, 4.0 + f64::from(batch))).to_vec())
    }

    fn turn(curve: &Curve, rate_rps: f64, limit_ms: f64) -> Turn<'_> {
        Turn { curve, rate_rps, limit_ms }
    }

    #[test]
    fn a_round_serves_every_rate_within_every_objective() {
        let curve = curve();
        let turns = [turn(&curve, 300.0, 60.0), turn(&curve, 100.0, 60.0)];
        let round = shortest(&turns).unwrap();
        for (turn, batch) in turns.iter().zip(&round.batches) {
            assert!(f64::from(*batch) / round.length_ms * 1000.0 >= turn.rate_rps);
        }
        assert!(round.latencies_ms.iter().all(|own| round.length_ms + own <= 60.0));
    }

    #[test]
    fn no_smaller_batches_would_do() {
        let curve = curve();
        let turns = [turn(&curve, 300.0, 60.0), turn(&curve, 100.0, 60.0)];
        let round = shortest(&turns).unwrap();
        for first in 1..=round.batches[0] {
            for second in 1..=round.batches[1] {
                let length: f64 = [first, second]
                    .map(|batch| curve.latency_ms(batch).unwrap() + SWITCH_MS)
                    .iter()
                    .sum();
                let serves = f64::from(first) / length >= 0.3 && f64::from(second) / length >= 0.1;
                assert_eq!(serves, [first, second] == round.batches[..], "{first} {second}");
            }
        }
    }

    #[test]
    fn the_tighter_objective_decides() {
        let curve = curve();
        assert!(shortest(&[turn(&curve, 300.0, 60.0), turn(&curve, 100.0, 15.0)]).is_none());
        assert!(shortest(&[turn(&curve, 100.0, 60.0), turn(&curve, 50.0, 25.0)]).is_some());
    }
}
