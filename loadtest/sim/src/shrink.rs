//! From a run that breaks a claim to the shortest that does.

use std::fmt;

use crate::{
    claims::{Broken, Claim},
    fleet::{Fault, SimFleet},
    world::{self, Checks},
};

#[derive(Clone, Debug)]
pub struct Shrunk {
    pub broken: Broken,
    pub faults: Vec<Fault>,
    pub streams: Vec<usize>,
}

impl fmt::Display for Shrunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.broken)?;
        let (faults, streams) = (self.faults.len(), self.streams.len());
        write!(f, "\nit takes {faults} faults and {streams} streams")?;
        for fault in &self.faults {
            let (at, lasts) = (fault.at.as_secs_f64(), fault.lasts.as_secs_f64());
            write!(f, "\n  {:?} at {at:.3} s for {lasts:.3} s", fault.trouble)?;
        }
        Ok(())
    }
}

/// Leaves out of `fleet` every fault and stream without which the same kind of claim still breaks,
/// and finds the first event that shows it.
pub fn shrink(fleet: &SimFleet, found: &Broken, checks: Checks<'_>) -> Shrunk {
    let same =
        |claim: &Claim| std::mem::discriminant(claim) == std::mem::discriminant(&found.claim);
    let breaks = |fleet: &SimFleet, every: u64, most_events: u64| {
        let outcome = world::run(fleet, Checks { every, most_events, ..checks });
        outcome.err().filter(|broken| same(&broken.claim))
    };
    let mut least = fleet.clone();
    let mut broken = found.clone();
    for index in (0..least.faults.len()).rev() {
        let mut fewer = least.clone();
        fewer.faults.remove(index);
        if let Some(again) = breaks(&fewer, checks.every, u64::MAX) {
            (least, broken) = (fewer, again);
        }
    }
    let mut streams: Vec<usize> = (0..least.streams.len()).collect();
    for index in (0..least.streams.len()).rev() {
        if least.streams.len() == 1 {
            break;
        }
        let mut fewer = least.clone();
        fewer.streams.remove(index);
        if let Some(again) = breaks(&fewer, checks.every, u64::MAX) {
            (least, broken) = (fewer, again);
            streams.remove(index);
        }
    }
    // All is looked at only every so often: the first sign of it may be earlier, and is found by
    // halving, since a run of fewer events is the beginning of the same run.
    let (mut holds, mut fails) = (broken.events.saturating_sub(checks.every), broken.events);
    while fails - holds > 1 {
        let middle = holds + (fails - holds) / 2;
        match breaks(&least, middle.max(1), middle) {
            Some(earlier) => (fails, broken) = (middle.min(earlier.events), earlier),
            None => holds = middle,
        }
    }
    Shrunk { broken, faults: least.faults, streams }
}
