//! Whether a replica may be given work, judged by the failures that were its own fault.
//!
//! Three faults in a row take it out; it is tried again with one batch after a pause that doubles;
//! two good batches bring it back. A caller's mistake never counts.

use std::time::Duration;

use crate::moment::Moment;

const MISSES_OUT: u32 = 3;
const HITS_IN: u32 = 2;
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { misses: u32 },
    Open { until: Moment },
    Probation { hits: u32, probing: bool },
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { misses: 0 }, pause: PAUSE_FIRST }
    }
}

impl Breaker {
    pub fn allows(&self, now: Moment) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::Probation { probing, .. } => !probing,
        }
    }

    /// When an open breaker lets the next probe through.
    pub fn reopens_at(&self) -> Option<Moment> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Probation { .. } => None,
        }
    }

    /// Whether the replica is out of rotation or on trial.
    pub fn is_tripped(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    pub fn sent(&mut self, now: Moment) {
        match self.state {
            State::Closed { .. } => {}
            State::Open { until } => {
                assert!(now >= until, "a batch was sent through an open breaker");
                self.state = State::Probation { hits: 0, probing: true };
            }
            State::Probation { hits, .. } => self.state = State::Probation { hits, probing: true },
        }
    }

    /// A batch came back whole.
    pub fn hit(&mut self) {
        self.state = match self.state {
            State::Closed { .. } => State::Closed { misses: 0 },
            State::Open { until } => State::Open { until },
            State::Probation { hits, .. } if hits + 1 >= HITS_IN => {
                self.pause = PAUSE_FIRST;
                State::Closed { misses: 0 }
            }
            State::Probation { hits, .. } => State::Probation { hits: hits + 1, probing: false },
        };
    }

    /// A batch failed and the replica is to blame.
    pub fn miss(&mut self, now: Moment) {
        match self.state {
            State::Closed { misses } if misses + 1 < MISSES_OUT => {
                self.state = State::Closed { misses: misses + 1 };
            }
            State::Closed { .. } | State::Probation { .. } => {
                self.state = State::Open { until: now + self.pause };
                self.pause = (self.pause * 2).min(PAUSE_LONGEST);
            }
            State::Open { .. } => {}
        }
    }

    /// A batch ended without saying anything of the replica.
    pub fn neither(&mut self) {
        if let State::Probation { hits, .. } = self.state {
            self.state = State::Probation { hits, probing: false };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_micros(ms * 1_000)
    }

    fn tripped() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..MISSES_OUT {
            breaker.miss(at(0));
        }
        breaker
    }

    #[test]
    fn two_misses_with_a_hit_between_never_open_it() {
        let mut breaker = Breaker::default();
        for _ in 0..10 {
            breaker.miss(at(0));
            breaker.miss(at(0));
            breaker.hit();
        }
        assert!(breaker.allows(at(0)));
    }

    #[test]
    fn three_misses_open_it_until_the_pause_ends() {
        let breaker = tripped();
        assert!(!breaker.allows(at(499)));
        assert!(breaker.allows(at(500)));
    }

    #[test]
    fn one_probe_at_a_time_and_two_hits_close_it() {
        let mut breaker = tripped();
        breaker.sent(at(500));
        assert!(!breaker.allows(at(501)));
        breaker.hit();
        assert!(breaker.is_tripped());
        breaker.sent(at(502));
        breaker.hit();
        assert!(!breaker.is_tripped());
    }

    #[test]
    fn a_failed_probe_waits_twice_as_long() {
        let mut breaker = tripped();
        breaker.sent(at(500));
        breaker.miss(at(510));
        assert!(!breaker.allows(at(510 + 999)));
        assert!(breaker.allows(at(510 + 1_000)));
    }

    #[test]
    fn a_probe_that_proves_nothing_lets_another_through() {
        let mut breaker = tripped();
        breaker.sent(at(500));
        breaker.neither();
        assert!(breaker.allows(at(501)));
    }
}
