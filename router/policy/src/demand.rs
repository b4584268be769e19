//! How much of a model will be asked for by the time it could be served, from what is asked for.
//!
//! Two loops, as the survey of autoscalers suggests. The slow one sets a floor: what was asked for in
//! the upper part of the last half hour, and, once there is a day of history, what this time of day
//! usually brings. The fast one adds on signs of a miss: a rate that rises faster than replicas load, a
//! queue longer than the objective explains, requests that were late. A burst to twice of what is
//! provided is a panic: until it has been over for a minute nothing is taken away. Otherwise what was
//! needed within the patience stays, because loading a model again costs more than keeping it.

mod pattern;
mod recent;

use std::{collections::VecDeque, time::Duration};

use self::{
    pattern::Pattern,
    recent::{Counts, Recent},
};
use crate::moment::Moment;

/// How the forecast is made. The defaults are Knative's where it has them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Over which the present rate is measured.
    pub window: Duration,
    pub panic_window: Duration,
    /// A burst to this many times what is provided is a panic.
    pub panic: f64,
    /// Over which the floor is measured, minute by minute.
    pub history: Duration,
    /// The part of the minutes of history that the floor covers.
    pub quantile: f64,
    /// How long what was needed is kept.
    pub patience: Duration,
    /// With nothing asked for so long, nothing is provided.
    pub idle: Duration,
    /// The time a request has; a queue it explains is no sign of a miss.
    pub slo: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
            panic_window: Duration::from_secs(6),
            panic: 2.0,
            history: Duration::from_secs(1_800),
            quantile: 0.95,
            patience: Duration::from_secs(300),
            idle: Duration::from_secs(600),
            slo: Duration::from_millis(100),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Rows asked for, whatever became of them.
    pub arrived: u64,
    /// Of those, rows that were late, or refused for want of capacity.
    pub late: u64,
    pub waiting: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Rate,
    /// More will be, before a replica could be loaded.
    Rising,
    /// More wait than the objective explains.
    Queue,
    /// Requests were late although there should have been enough.
    Late,
    Panic,
    /// As much was asked for within the last half hour.
    Floor,
    /// This time of day usually brings as much.
    Daily,
    Patience,
    /// It was watched for too short a time to take anything away.
    New,
    Idle,
}

impl Why {
    pub fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Rising => "rising",
            Self::Queue => "queue",
            Self::Late => "late",
            Self::Panic => "panic",
            Self::Floor => "floor",
            Self::Daily => "daily",
            Self::Patience => "patience",
            Self::New => "new",
            Self::Idle => "idle",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Rows per second, with room for chance; 0 if nothing need be kept.
    pub rate_rps: f64,
    /// What the slow loop asks for by itself. What is beyond it may be lent.
    pub floor_rps: f64,
    pub why: Why,
}

/// What of a forecast is worth keeping when all else is lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Habit {
    /// The rates of the last whole minutes, the last of them last.
    pub minutes: Vec<f64>,
    /// The usual rate of each part of the day, from midnight on.
    pub usual: Vec<Option<f64>>,
}

/// A moment, and how far the day has gone by then.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    pub now: Moment,
    pub of_day: Duration,
}

#[derive(Clone, Debug)]
pub struct Demand {
    rule: Rule,
    recent: Recent,
    /// The rates of whole minutes, the last of them last.
    minutes: VecDeque<f64>,
    pattern: Pattern,
    waiting: u64,
    /// When and how much was needed, rates falling.
    needed: VecDeque<(Moment, f64)>,
    panic_until: Option<(Moment, f64)>,
    asked_at: Option<Moment>,
}

impl Demand {
    pub fn new(rule: Rule) -> Self {
        assert!(rule.panic_window > Duration::ZERO && rule.window >= rule.panic_window);
        assert!(rule.panic > 1.0 && rule.quantile > 0.0 && rule.quantile <= 1.0);
        Self {
            rule,
            recent: Recent::new(rule.window),
            minutes: VecDeque::new(),
            pattern: Pattern::default(),
            waiting: 0,
            needed: VecDeque::new(),
            panic_until: None,
            asked_at: None,
        }
    }

    /// Goes on by another rule, with all that is known.
    pub fn adopt(&mut self, rule: Rule) {
        if self.rule.window != rule.window {
            self.recent = Recent::new(rule.window);
        }
        self.rule = rule;
    }

    pub fn habit(&self, day: Day) -> Habit {
        let minutes = self.minutes.iter().copied().collect();
        Habit { minutes, usual: self.pattern.of_day(day) }
    }

    /// Takes up what was kept so long ago.
    ///
    /// Of the minutes in between nothing is known, so that those before count as long as they would
    /// have.
    pub fn recall(&mut self, habit: &Habit, away: Duration, day: Day) {
        let most = (self.rule.history.as_secs() / 60).max(1);
        let counted = usize::try_from(most.saturating_sub(away.as_secs() / 60)).unwrap_or(0);
        let known = habit.minutes.iter().filter(|rate| is_rate(**rate));
        let known: Vec<f64> = known.copied().collect();
        self.minutes = known[known.len().saturating_sub(counted)..].iter().copied().collect();
        self.pattern.recall(&habit.usual, day);
    }

    /// To be called every second or two.
    pub fn observe(&mut self, seen: Seen, now: Moment) {
        self.waiting = seen.waiting;
        // One that is new counts as asked for: it is loaded once, so that it is known.
        if seen.arrived > 0 || self.asked_at.is_none() {
            self.asked_at = Some(now);
        }
        if let Some(minute) =
            self.recent.add(Counts { arrived: seen.arrived, late: seen.late }, now)
        {
            self.minutes.push_back(minute);
            let most = (self.rule.history.as_secs() / 60).max(1) as usize;
            while self.minutes.len() > most {
                self.minutes.pop_front();
            }
            self.pattern.add(minute, now);
        }
    }

    /// What to provide for, where `provided_rps` is ready and having more takes `load_time`.
    pub fn forecast(&mut self, provided_rps: f64, load_time: Duration, now: Moment) -> Forecast {
        let floor = self.floor(load_time, now);
        let mut best = (with_room(floor.0), floor.1);
        for (rate, why) in self.fast(load_time, now) {
            if with_room(rate) > best.0 {
                best = (with_room(rate), why);
            }
        }
        best = self.calm(best, provided_rps, now);
        best = self.patient(best, now);
        // Before anything is known, nothing is taken away.
        let silent = self.recent.rate(self.rule.window, now) <= 0.0 && self.waiting == 0;
        let soon = if silent { self.rule.panic_window } else { self.rule.window };
        if best.0 < provided_rps && !self.recent.knows(soon, now) {
            best = (provided_rps, Why::New);
        }
        let quiet = self.asked_at.is_some_and(|at| now.since(at) >= self.rule.idle);
        if quiet && self.waiting == 0 {
            best = (0.0, Why::Idle);
        }
        Forecast { rate_rps: best.0, floor_rps: with_room(floor.0).min(best.0), why: best.1 }
    }

    fn floor(&self, load_time: Duration, now: Moment) -> (f64, Why) {
        let mut minutes: Vec<f64> = self.minutes.iter().copied().collect();
        minutes.sort_by(f64::total_cmp);
        let rank = (minutes.len() as f64 * self.rule.quantile).ceil() as usize;
        let upper = minutes.get(rank.saturating_sub(1)).copied().unwrap_or(0.0);
        let lately = self.recent.rate(self.rule.window, now);
        match self.pattern.expected(lately, now, now + load_time) {
            Some(expected) if expected > upper => (expected, Why::Daily),
            Some(_) | None => (upper, Why::Floor),
        }
    }

    fn fast(&self, load_time: Duration, now: Moment) -> [(f64, Why); 4] {
        let rule = &self.rule;
        let rate = self.recent.rate(rule.window, now);
        let burst = self.recent.rate(rule.panic_window, now);
        let rising = self.recent.rising(load_time, now);
        let explained = rate * rule.slo.as_secs_f64();
        let queued = (self.waiting as f64 - explained - 3.0 * explained.sqrt()).max(0.0);
        let queue = burst + queued / rule.panic_window.as_secs_f64();
        let late = self.recent.late_part(rule.panic_window, now);
        [
            (rate, Why::Rate),
            (rising.unwrap_or(0.0), Why::Rising),
            (if queued > 0.0 { queue } else { 0.0 }, Why::Queue),
            (if late > 0.0 { burst * (1.0 + late.min(0.5)) } else { 0.0 }, Why::Late),
        ]
    }

    /// Keeps the most of a panic until it has been over for a window.
    fn calm(&mut self, best: (f64, Why), provided_rps: f64, now: Moment) -> (f64, Why) {
        let burst = with_room(self.recent.rate(self.rule.panic_window, now));
        if provided_rps > 0.0 && burst >= self.rule.panic * provided_rps {
            let most = self.panic_until.map_or(0.0, |(_, most)| most);
            self.panic_until = Some((now + self.rule.window, most.max(burst)));
        }
        match self.panic_until {
            Some((until, most)) if now < until => {
                if most > best.0 {
                    (most, Why::Panic)
                } else {
                    best
                }
            }
            Some(_) | None => {
                self.panic_until = None;
                best
            }
        }
    }

    fn patient(&mut self, best: (f64, Why), now: Moment) -> (f64, Why) {
        while self.needed.back().is_some_and(|(_, rate)| *rate <= best.0) {
            self.needed.pop_back();
        }
        self.needed.push_back((now, best.0));
        while self.needed.front().is_some_and(|(at, _)| now.since(*at) > self.rule.patience) {
            self.needed.pop_front();
        }
        match self.needed.front() {
            Some((_, most)) if *most > best.0 => (*most, Why::Patience),
            Some(_) | None => best,
        }
    }
}

/// What is read from elsewhere may be anything.
fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate >= 0.0
}

/// What must be provided so that chance seldom makes a queue: a tenth more, or three deviations of
/// what comes in a second.
pub fn with_room(rate_rps: f64) -> f64 {
    (1.1 * rate_rps).max(rate_rps + 3.0 * rate_rps.sqrt())
}

#[cfg(test)]
mod tests;
