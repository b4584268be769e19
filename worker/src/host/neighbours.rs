//! What slices of a GPU that only pretends to work do to each other.
//!
//! On a real GPU neighbours are felt. A simulated one is told how busy each slice was, says how
//! much slower each runs for the others, and the executors are paced accordingly.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::{
    gpu::simulated::{Load, Work},
    reconcile::Place,
};

/// The weight of the last look in the part of the time a slice is busy: executors tell each second,
/// and so looks fall a little before or after.
const NEWS: f64 = 0.3;

/// A change of pace worth an order.
const NOTICEABLE: f64 = 0.002;

/// A slice at work, as its executors tell.
#[derive(Debug)]
pub(super) struct AtWork {
    pub(super) uuid: String,
    pub(super) memory_mib: u64,
    pub(super) busy_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct Neighbours {
    before: BTreeMap<String, (u64, Instant)>,
    duties: BTreeMap<String, f64>,
    paces: BTreeMap<Place, f64>,
}

impl Neighbours {
    /// What every slice was busy with of late.
    pub(super) fn works(&mut self, slices: Vec<AtWork>, now: Instant) -> Vec<Work> {
        let there = |uuid: &String| slices.iter().any(|slice| slice.uuid == *uuid);
        self.before.retain(|uuid, _| there(uuid));
        self.duties.retain(|uuid, _| there(uuid));
        let work = |AtWork { uuid, memory_mib, busy_us }| {
            let (busy_before, then) =
                self.before.insert(uuid.clone(), (busy_us, now)).unwrap_or((busy_us, now));
            let busy = Duration::from_micros(busy_us.saturating_sub(busy_before));
            let duty = self.duties.entry(uuid.clone()).or_default();
            let passed = now.duration_since(then);
            if passed > Duration::ZERO {
                let part = (busy.as_secs_f64() / passed.as_secs_f64()).min(1.0);
                *duty += NEWS * (part - *duty);
            }
            Work { uuid, memory_mib, load: Load::INFERENCE, duty: *duty }
        };
        slices.into_iter().map(work).collect()
    }

    /// The factor to tell a lane, if it is news.
    pub(super) fn news(&mut self, place: &Place, factor: f64) -> Option<f64> {
        let told = self.paces.entry(place.clone()).or_insert(1.0);
        ((factor - *told).abs() >= NOTICEABLE).then(|| {
            *told = factor;
            factor
        })
    }

    /// Forgets a lane: the next executor there starts at its own pace.
    pub(super) fn forget(&mut self, place: &Place) {
        self.paces.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_work(busy_us: u64) -> Vec<AtWork> {
        vec![AtWork { uuid: "MIG-a".into(), memory_mib: 1, busy_us }]
    }

    #[test]
    fn a_slice_that_is_always_busy_is_soon_known_to_be() {
        let mut neighbours = Neighbours::default();
        let start = Instant::now();
        let duty = (0..20).fold(0.0, |_, second| {
            let now = start + Duration::from_secs(second);
            neighbours.works(at_work(second * 1_000_000), now)[0].duty
        });
        assert!((0.99..=1.0).contains(&duty), "{duty}");
        let idle = neighbours.works(at_work(19_000_000), start + Duration::from_secs(20))[0].duty;
        assert!(idle < duty, "{idle}");
    }

    #[test]
    fn a_pace_is_told_once_and_again_after_a_new_start() {
        let mut neighbours = Neighbours::default();
        let place = ("3g.40gb@0".to_owned(), 0);
        assert_eq!(neighbours.news(&place, 1.0005), None);
        assert_eq!(neighbours.news(&place, 1.02), Some(1.02));
        assert_eq!(neighbours.news(&place, 1.0205), None);
        neighbours.forget(&place);
        assert_eq!(neighbours.news(&place, 1.0205), Some(1.0205));
    }
}
