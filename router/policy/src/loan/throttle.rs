//! A training job beside inference runs as much of the time as inference does not feel.
//!
//! Additive increase, multiplicative decrease on the duty cycle, as TGS has it: the job's processes
//! are paused for the rest of each period. One that still hurts at the least duty has to go.

/// The least part of the time a job runs before it is evicted.
const LEAST: f64 = 0.1;
/// Added when inference was as fast as expected.
const STEP: f64 = 0.05;
const CUT: f64 = 0.5;
/// Slow observations in a row at the least duty that end the loan.
const GIVE_UP: u32 = 3;

/// The part of the time one job may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duty {
    part: f64,
    hurts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Full,
    Paused,
    /// Must give its slices back: pausing does not help.
    Evict,
}

impl Default for Duty {
    fn default() -> Self {
        Self { part: 1.0, hurts: 0 }
    }
}

impl Duty {
    /// The part of the time it may run, from 0.1 to 1.
    pub fn part(&self) -> f64 {
        self.part
    }

    /// Learns how much slower than expected inference beside the job was, and how much is borne.
    ///
    /// Both are factors: 1 is as expected.
    pub fn observe(&mut self, slowdown: f64, borne: f64) -> Pace {
        if slowdown <= borne {
            self.hurts = 0;
            self.part = (self.part + STEP).min(1.0);
        } else if self.part > LEAST {
            self.part = (self.part * CUT).max(LEAST);
        } else {
            self.hurts += 1;
        }
        match (self.hurts, self.part) {
            (GIVE_UP.., _) => Pace::Evict,
            (_, part) if part >= 1.0 => Pace::Full,
            _ => Pace::Paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_halved_when_inference_slows_and_recovers_step_by_step() {
        let mut duty = Duty::default();
        assert_eq!(duty.observe(1.2, 1.05), Pace::Paused);
        assert_eq!(duty.part(), 0.5);
        assert_eq!(duty.observe(1.0, 1.05), Pace::Paused);
        assert!((duty.part() - 0.55).abs() < 1e-9);
        (0..20).for_each(|_| {
            duty.observe(1.0, 1.05);
        });
        assert_eq!((duty.part(), duty.observe(1.0, 1.05)), (1.0, Pace::Full));
    }

    #[test]
    fn it_is_evicted_only_after_the_least_duty_did_not_help() {
        let mut duty = Duty::default();
        let paces: Vec<Pace> = (0..7).map(|_| duty.observe(1.5, 1.05)).collect();
        assert_eq!(paces[..6], [Pace::Paused; 6]);
        assert_eq!(paces[6], Pace::Evict);
        assert_eq!(duty.part(), LEAST);
    }
}
