//! How each request ended, counted where it can be compared: by the moment it was due.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

/// A refusal this soon after arrival was decided, not discovered.
pub const PROMPT: Duration = Duration::from_millis(5);
const MAX_INTERVALS: u32 = 300;
const USUAL_INTERVALS: u32 = 60;
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_RECORDED_US: u64 = 3_600_000_000;

/// How a request ended. Every request ends in exactly one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered within the objective.
    InTime,
    /// Answered, but after the objective.
    Late,
    /// Turned away: 503 or 429.
    Refused,
    /// The server said the deadline had passed: 504.
    TooLate,
    /// Anything else, silence included.
    Failed,
}

/// What came back for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(u16),
    NoConnection,
    /// The connection broke, or what came over it was not HTTP.
    Broken,
    Unanswered,
    /// Never sent: too many requests were already waiting in the client.
    Unsent,
}

impl Reply {
    /// How a request that got this reply `latency` after it was due has ended.
    pub fn outcome(self, latency: Duration, allowed: Duration) -> Outcome {
        match self {
            Self::Status(200..=299) if latency <= allowed => Outcome::InTime,
            Self::Status(200..=299) => Outcome::Late,
            Self::Status(429 | 503) => Outcome::Refused,
            Self::Status(504) => Outcome::TooLate,
            Self::Status(_)
            | Self::NoConnection
            | Self::Broken
            | Self::Unanswered
            | Self::Unsent => Outcome::Failed,
        }
    }

    pub fn name(self) -> String {
        match self {
            Self::Status(status) => format!("status {status}"),
            Self::NoConnection => "no connection".to_owned(),
            Self::Broken => "connection broken".to_owned(),
            Self::Unanswered => "unanswered".to_owned(),
            Self::Unsent => "never sent".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub in_time: u64,
    pub late: u64,
    pub refused: u64,
    pub too_late: u64,
    pub failed: u64,
}

impl Counts {
    pub fn offered(&self) -> u64 {
        self.answered() + self.refused + self.too_late + self.failed
    }

    pub fn answered(&self) -> u64 {
        self.in_time + self.late
    }

    /// The share of all requests answered in time; of none, all were.
    pub fn share_in_time(&self) -> f64 {
        match self.offered() {
            0 => 1.0,
            offered => self.in_time as f64 / offered as f64,
        }
    }

    pub fn add(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::InTime => &mut self.in_time,
            Outcome::Late => &mut self.late,
            Outcome::Refused => &mut self.refused,
            Outcome::TooLate => &mut self.too_late,
            Outcome::Failed => &mut self.failed,
        } += 1;
    }
}

#[derive(Clone, Debug)]
pub struct Interval {
    pub counts: Counts,
    pub latency_us: Histogram<u32>,
}

#[derive(Clone, Debug)]
pub struct Tally {
    /// The latest useful moment after arrival.
    pub allowed: Duration,
    pub counts: Counts,
    /// Answers that came within the measured stretch, whenever they were due.
    pub throughput: u64,
    pub replies: BTreeMap<String, u64>,
    pub latency_us: Histogram<u64>,
    pub refusal_us: Histogram<u64>,
    pub too_late_us: Histogram<u64>,
    /// Refusals within [`PROMPT`] of arrival.
    pub refused_promptly: u64,
    /// Refusals that came when the deadline had passed already.
    pub refused_after_deadline: u64,
    pub intervals: Vec<Interval>,
    /// How much each point of the timeline covers.
    pub interval: Duration,
    last: Option<(Reply, u64)>,
}

impl Tally {
    pub fn new(length: Duration, allowed: Duration) -> Self {
        let even = (length / USUAL_INTERVALS).clamp(SHORTEST_INTERVAL, Duration::from_secs(1));
        let interval = even.max(length / MAX_INTERVALS);
        Self {
            allowed,
            counts: Counts::default(),
            throughput: 0,
            replies: BTreeMap::new(),
            latency_us: histogram(3),
            refusal_us: histogram(3),
            too_late_us: histogram(3),
            refused_promptly: 0,
            refused_after_deadline: 0,
            intervals: Vec::new(),
            interval,
            last: None,
        }
    }

    /// Counts a request due at `due` (from the start of the measured stretch).
    pub fn record(&mut self, due: Duration, latency: Duration, reply: Reply) -> Outcome {
        let outcome = reply.outcome(latency, self.allowed);
        self.counts.add(outcome);
        self.count_reply(reply);
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        match outcome {
            Outcome::InTime | Outcome::Late => self.latency_us.saturating_record(micros),
            Outcome::TooLate => self.too_late_us.saturating_record(micros),
            Outcome::Refused => {
                self.refusal_us.saturating_record(micros);
                self.refused_promptly += u64::from(latency <= PROMPT);
                self.refused_after_deadline += u64::from(latency > self.allowed);
            }
            Outcome::Failed => {}
        }
        self.record_interval(due, micros, outcome);
        outcome
    }

    /// Replies of one kind come in runs, so the map is touched only when the kind changes.
    fn count_reply(&mut self, reply: Reply) {
        match &mut self.last {
            Some((last, count)) if *last == reply => *count += 1,
            _ => {
                self.settle();
                self.last = Some((reply, 1));
            }
        }
    }

    pub fn settle(&mut self) {
        if let Some((reply, count)) = self.last.take() {
            *self.replies.entry(reply.name()).or_default() += count;
        }
    }

    fn record_interval(&mut self, due: Duration, micros: u64, outcome: Outcome) {
        let index = (due.as_nanos() / self.interval.as_nanos()) as usize;
        let index = index.min(MAX_INTERVALS as usize);
        while self.intervals.len() <= index {
            let counts = Counts::default();
            self.intervals.push(Interval { counts, latency_us: histogram(2) });
        }
        let interval = &mut self.intervals[index];
        interval.counts.add(outcome);
        if matches!(outcome, Outcome::InTime | Outcome::Late) {
            interval.latency_us.saturating_record(micros);
        }
    }
}

pub(crate) fn histogram<C: hdrhistogram::Counter>(digits: u8) -> Histogram<C> {
    Histogram::new_with_bounds(1, LONGEST_RECORDED_US, digits).expect("the bounds are constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Duration = Duration::from_millis(50);

    fn after(ms: u64, reply: Reply) -> Tally {
        let mut tally = Tally::new(Duration::from_secs(1), ALLOWED);
        tally.record(Duration::ZERO, Duration::from_millis(ms), reply);
        tally.settle();
        tally
    }

    #[test]
    fn an_answer_is_in_time_up_to_the_objective_and_late_after_it() {
        assert_eq!(
            after(50, Reply::Status(200)).counts,
            Counts { in_time: 1, ..Counts::default() }
        );
        assert_eq!(after(51, Reply::Status(200)).counts, Counts { late: 1, ..Counts::default() });
    }

    #[test]
    fn statuses_end_requests_as_the_protocol_says() {
        let outcome = |status| Reply::Status(status).outcome(Duration::ZERO, ALLOWED);
        assert_eq!(outcome(503), Outcome::Refused);
        assert_eq!(outcome(429), Outcome::Refused);
        assert_eq!(outcome(504), Outcome::TooLate);
        for status in [301, 400, 404, 500, 502] {
            assert_eq!(outcome(status), Outcome::Failed, "status {status}");
        }
    }

    #[test]
    fn refusal_is_prompt_up_to_5_ms_and_wasted_after_the_deadline() {
        let refusal = |ms| {
            let tally = after(ms, Reply::Status(503));
            (tally.refused_promptly, tally.refused_after_deadline)
        };
        assert_eq!(refusal(5), (1, 0));
        assert_eq!(refusal(6), (0, 0));
        assert_eq!(refusal(50), (0, 0));
        assert_eq!(refusal(51), (0, 1));
    }

    #[test]
    fn every_request_is_in_exactly_one_count_and_one_interval() {
        let mut tally = Tally::new(Duration::from_secs(2), ALLOWED);
        let replies =
            [Reply::Status(200), Reply::Status(503), Reply::Status(504), Reply::Unanswered];
        for step in 0..400_u64 {
            let due = Duration::from_millis(step * 5);
            tally.record(due, Duration::from_millis(step % 90), replies[step as usize % 4]);
        }
        tally.settle();
        assert_eq!(tally.counts.offered(), 400);
        assert_eq!(tally.replies.values().sum::<u64>(), 400);
        assert_eq!(tally.intervals.iter().map(|i| i.counts.offered()).sum::<u64>(), 400);
        assert!(tally.intervals.iter().all(|i| i.counts.offered() == 20));
    }

    #[test]
    fn a_long_run_has_a_bounded_timeline() {
        let day = Duration::from_secs(86_400);
        let mut tally = Tally::new(day, ALLOWED);
        tally.record(day * 2, Duration::ZERO, Reply::Status(200));
        assert!(tally.intervals.len() <= MAX_INTERVALS as usize + 1);
    }
}
