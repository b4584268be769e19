//! What a time of day usually brings.

use std::time::Duration;

use super::{Day, is_rate};
use crate::moment::Moment;

const DAY: Duration = Duration::from_secs(86_400);
/// Parts of a day that are told from each other: ten minutes each.
const PARTS: usize = 144;
/// How much of a new day is believed.
const GAIN: f64 = 0.3;
/// Today is at most this many times as busy as usual, and at least the inverse.
const LEVEL: f64 = 2.0;

/// The usual rate of each part of the day, the newest days counting most.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    usual: Vec<Option<f64>>,
    /// The part of the day that is now, its minutes' rates and how many they are.
    now: Option<(u64, f64, u32)>,
}

impl Default for Pattern {
    fn default() -> Self {
        Self { usual: vec![None; PARTS], now: None }
    }
}

impl Pattern {
    pub(super) fn add(&mut self, rate: f64, now: Moment) {
        let part = part(now - Duration::from_secs(30));
        match &mut self.now {
            Some((current, sum, count)) if *current == part => {
                *sum += rate;
                *count += 1;
            }
            Some(_) | None => {
                if let Some((past, sum, count)) = self.now.replace((part, rate, 1)) {
                    let usual = &mut self.usual[past as usize % PARTS];
                    let mean = sum / f64::from(count);
                    *usual = Some(usual.map_or(mean, |usual| usual + GAIN * (mean - usual)));
                }
            }
        }
    }

    /// The most of what is usual between `now` and `until`, at the level of `lately`.
    pub(super) fn expected(&self, lately: f64, now: Moment, until: Moment) -> Option<f64> {
        let usual_now = self.usual[part(now) as usize % PARTS].filter(|usual| *usual > 0.0)?;
        let level = (lately / usual_now).clamp(1.0 / LEVEL, LEVEL);
        // What comes in the next part of the day counts as soon as replicas could be ready by then.
        let parts = part(now)..=part(until).min(part(now) + PARTS as u64);
        let usual = parts.filter_map(|part| self.usual[part as usize % PARTS]);
        usual.reduce(f64::max).map(|usual| usual * level)
    }
}

impl Pattern {
    pub(super) fn of_day(&self, day: Day) -> Vec<Option<f64>> {
        let mut usual = vec![None; PARTS];
        for (of_day, own) in aligned(day) {
            usual[of_day] = self.usual[own];
        }
        usual
    }

    /// Takes up rates from midnight on.
    pub(super) fn recall(&mut self, usual: &[Option<f64>], day: Day) {
        for (of_day, own) in aligned(day) {
            self.usual[own] = usual.get(of_day).copied().flatten().filter(|rate| is_rate(*rate));
        }
    }
}

/// Each part of the day beside the nearest part as they are counted here, from the start on.
fn aligned(day: Day) -> impl Iterator<Item = (usize, usize)> {
    let length = DAY.as_micros() as u64 / PARTS as u64;
    let into = day.now.micros() % length;
    let of_day = day.of_day.as_micros() as u64 % DAY.as_micros() as u64;
    let began = of_day + DAY.as_micros() as u64 - into;
    let first = ((began + length / 2) / length) as usize;
    let own = part(day.now) as usize;
    (0..PARTS).map(move |index| ((first + index) % PARTS, (own + index) % PARTS))
}

fn part(at: Moment) -> u64 {
    at.micros() / (DAY.as_micros() as u64 / PARTS as u64)
}
