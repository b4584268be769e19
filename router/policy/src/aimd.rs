//! Batch-size control for one replica: grow while it pays, shrink by a factor.
//!
//! Growth needs proof that the larger size is wanted, so only full batches count. Shrinking happens
//! once per round trip: batches already in flight when the limit fell were formed under the old
//! limit, and their lateness says nothing new. Before the first late batch the limit doubles, as a
//! new connection's window does, because a warmed replica's right size is many steps from one.

use crate::moment::Moment;

/// Bounds and gains of the controller. Checked when the configuration is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Smallest limit ever returned. At least 1.
    pub min: u32,
    /// Largest limit ever returned. At least `min`.
    pub max: u32,
    /// Factor applied on a late batch, in `(0, 1)`.
    pub shrink: f64,
    /// Whether the limit doubles until the first late batch.
    pub slow_start: bool,
}

/// A batch that has come back from its replica.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// Whether it held as much as the limit allowed.
    pub full: bool,
    pub sent_at: Moment,
    pub done_at: Moment,
    /// The moment it should have been back by.
    pub due_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The batch was full and on time.
    Grew,
    Shrank,
    /// The batch was on time but not full, or the limit is at its maximum.
    Held,
    /// The batch was late, but sent before the last shrink.
    Stale,
}

#[derive(Clone, Debug)]
pub struct Aimd {
    rule: Rule,
    limit: u32,
    shrank_at: Option<Moment>,
}

impl Aimd {
    /// Starts at the smallest limit, so a cold replica is never overrun.
    pub fn new(rule: Rule) -> Self {
        assert!(rule.min >= 1);
        assert!(rule.min <= rule.max);
        assert!(rule.shrink > 0.0 && rule.shrink < 1.0);
        Self { rule, limit: rule.min, shrank_at: None }
    }

    /// The most rows the next batch may hold.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Goes on from what another controller of the same replica had learned.
    pub fn resume(&mut self, limit: u32) {
        self.limit = limit.clamp(self.rule.min, self.rule.max);
    }

    /// Keeps what was learned under a new upper bound.
    pub fn rebound(&mut self, max: u32) {
        assert!(max >= self.rule.min);
        self.rule.max = max;
        self.limit = self.limit.min(max);
    }

    pub fn observe(&mut self, batch: Finished) -> Step {
        if batch.done_at > batch.due_at {
            if self.shrank_at.is_some_and(|shrank_at| batch.sent_at < shrank_at) {
                return Step::Stale;
            }
            let shrunk = (f64::from(self.limit) * self.rule.shrink) as u32;
            self.limit = shrunk.max(self.rule.min);
            self.shrank_at = Some(batch.done_at);
            Step::Shrank
        } else if batch.full && self.limit < self.rule.max {
            let doubles = self.rule.slow_start && self.shrank_at.is_none();
            let step = if doubles { self.limit } else { 1 };
            self.limit = self.limit.saturating_add(step).min(self.rule.max);
            Step::Grew
        } else {
            Step::Held
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BUDGET: Duration = Duration::from_millis(50);
    const RULE: Rule = Rule { min: 1, max: 64, shrink: 0.5, slow_start: false };

    #[test]
    fn a_resumed_limit_stays_within_the_bounds() {
        for (limit, resumed) in [(0, 1), (17, 17), (900, 64)] {
            let mut aimd = Aimd::new(RULE);
            aimd.resume(limit);
            assert_eq!(aimd.limit(), resumed);
        }
    }

    fn batch(full: bool, sent_ms: u64, took_ms: u64) -> Finished {
        let sent_at = Moment::from_micros(sent_ms * 1_000);
        let done_at = sent_at + Duration::from_millis(took_ms);
        Finished { full, sent_at, done_at, due_at: sent_at + BUDGET }
    }

    fn at_limit(limit: u32) -> Aimd {
        Aimd { limit, ..Aimd::new(RULE) }
    }

    #[test]
    fn a_full_batch_on_time_grows_the_limit_by_one() {
        let mut aimd = at_limit(8);
        assert_eq!(aimd.observe(batch(true, 0, 50)), Step::Grew);
        assert_eq!(aimd.limit(), 9);
    }

    #[test]
    fn a_part_full_batch_proves_nothing() {
        let mut aimd = at_limit(8);
        assert_eq!(aimd.observe(batch(false, 0, 1)), Step::Held);
        assert_eq!(aimd.limit(), 8);
    }

    #[test]
    fn late_batches_from_one_round_trip_shrink_once() {
        let mut aimd = at_limit(16);
        assert_eq!(aimd.observe(batch(true, 0, 90)), Step::Shrank);
        assert_eq!(aimd.observe(batch(true, 10, 95)), Step::Stale);
        assert_eq!(aimd.limit(), 8);
        assert_eq!(aimd.observe(batch(true, 120, 60)), Step::Shrank);
        assert_eq!(aimd.limit(), 4);
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        let mut aimd = at_limit(1);
        assert_eq!(aimd.observe(batch(true, 0, 99)), Step::Shrank);
        assert_eq!(aimd.limit(), 1);

        let mut aimd = at_limit(64);
        assert_eq!(aimd.observe(batch(true, 0, 1)), Step::Held);
        assert_eq!(aimd.limit(), 64);
    }

    #[test]
    fn slow_start_doubles_until_the_first_late_batch() {
        let mut aimd = Aimd::new(Rule { slow_start: true, ..RULE });
        for then in [2, 4, 8, 16] {
            assert_eq!(aimd.observe(batch(true, 0, 1)), Step::Grew);
            assert_eq!(aimd.limit(), then);
        }
        assert_eq!(aimd.observe(batch(true, 10, 60)), Step::Shrank);
        assert_eq!(aimd.limit(), 8);
        assert_eq!(aimd.observe(batch(true, 100, 1)), Step::Grew);
        assert_eq!(aimd.limit(), 9);
    }

    #[test]
    fn a_lower_bound_from_a_reload_takes_hold_at_once() {
        let mut aimd = at_limit(40);
        aimd.rebound(16);
        assert_eq!(aimd.limit(), 16);
        aimd.rebound(64);
        assert_eq!(aimd.limit(), 16);
    }
}
