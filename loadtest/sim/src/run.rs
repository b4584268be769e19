//! One run: arrivals in, outcomes out.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use policy::{
    dispatch::{Arrival, Batch, Class, Dispatch, Effect, Ended, Settings},
    moment::Moment,
    rule::Rule,
};

use crate::{
    curve::{self, Curve},
    random::Random,
};

/// A refusal this soon after the arrival leaves the client time to go elsewhere.
const EARLY: Duration = Duration::from_millis(5);

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the operator asked.
    pub settings: Settings,
    /// Replicas, all alike.
    pub replicas: u32,
    /// How fast they are.
    pub curve: Curve,
    /// Log-normal deviation of their times.
    pub noise: f64,
    /// From when, and by how much, they become slower.
    pub slowdown: Option<(Duration, f64)>,
    /// One Poisson stream per tenant.
    pub streams: Vec<Stream>,
    /// How long requests arrive.
    pub duration: Duration,
    /// How much of the beginning is not counted.
    pub warmup: Duration,
    /// Names the run.
    pub seed: u64,
}

/// One tenant's arrivals.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Requests per second.
    pub rate: f64,
    /// The tenant's weight.
    pub weight: f64,
    /// The class it asks for.
    pub class: Class,
}

impl Stream {
    /// An interactive stream of `rate` and weight 1.
    pub fn plain(rate: f64) -> Self {
        Self { rate, weight: 1.0, class: Class::Interactive }
    }
}

/// How the requests of one stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that came.
    pub offered: u64,
    /// Answered by their deadline.
    pub in_time: u64,
    /// Answered after it.
    pub late: u64,
    /// Refused.
    pub refused: u64,
    /// Refused within 5 ms of arrival.
    pub refused_early: u64,
    /// Refused after the deadline, having been on no replica.
    pub refused_late: u64,
}

impl Outcome {
    /// The share of the offered that was answered in time.
    pub fn attainment(&self) -> f64 {
        self.in_time as f64 / self.offered.max(1) as f64
    }

    /// The share of the answered that was late.
    pub fn lateness(&self) -> f64 {
        self.late as f64 / (self.in_time + self.late).max(1) as f64
    }

    /// This and `other` together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            in_time: self.in_time + other.in_time,
            late: self.late + other.late,
            refused: self.refused + other.refused,
            refused_early: self.refused_early + other.refused_early,
            refused_late: self.refused_late + other.refused_late,
        }
    }
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// By stream, without the warm-up.
    pub streams: Vec<Outcome>,
    /// Batches sent while counting.
    pub batches: u64,
    /// Rows in them.
    pub rows: u64,
    /// Requests by tenth of a second of arrival, over the whole run: answered in time, and offered.
    pub by_tenth: Vec<(u64, u64)>,
}

impl Report {
    /// All streams together.
    pub fn total(&self) -> Outcome {
        self.streams.iter().copied().fold(Outcome::default(), Outcome::plus)
    }

    /// Rows per batch.
    pub fn mean_batch(&self) -> f64 {
        self.rows as f64 / self.batches.max(1) as f64
    }

    /// The in-time share of what arrived in `from..to`, in whole tenths of a second.
    pub fn attainment_between(&self, from: Duration, to: Duration) -> f64 {
        let tenth = |at: Duration| (at.as_millis() / 100) as usize;
        let span = &self.by_tenth[tenth(from)..tenth(to)];
        let (in_time, offered) =
            span.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        in_time as f64 / u64::max(offered, 1) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive { stream: usize },
    Done { replica: u32, batch: u64 },
}

struct Pending {
    stream: usize,
    arrived: Moment,
    deadline: Moment,
    sent: bool,
    ended: bool,
}

struct World<'a> {
    scenario: &'a Scenario,
    dispatch: Dispatch,
    /// Apart, so that two rules meet the same arrivals.
    arrivals: Random,
    service: Random,
    events: BinaryHeap<Reverse<(Moment, u64, Event)>>,
    sequence: u64,
    pending: Vec<Pending>,
    batches: Vec<Batch>,
    busy: Vec<Moment>,
    report: Report,
}

/// Runs `scenario` under `rule`. The same scenario and rule give the same report.
pub fn run(scenario: &Scenario, rule: Box<dyn Rule>) -> Report {
    let mut dispatch = Dispatch::new(scenario.settings, rule);
    let weights: Vec<f64> = scenario.streams.iter().map(|stream| stream.weight).collect();
    dispatch.set_weights(&weights);
    for replica in 0..scenario.replicas {
        let warmup = scenario.curve.warmup(scenario.settings.max_batch);
        let effects = dispatch.add_replica(replica, &warmup, Moment::default());
        assert!(effects.is_empty());
    }
    let mut world = World {
        scenario,
        dispatch,
        arrivals: Random::new(scenario.seed),
        service: Random::new(!scenario.seed),
        events: BinaryHeap::new(),
        sequence: 0,
        pending: Vec::new(),
        batches: Vec::new(),
        busy: vec![Moment::default(); scenario.replicas as usize],
        report: Report {
            streams: vec![Outcome::default(); scenario.streams.len()],
            ..Report::default()
        },
    };
    for stream in 0..scenario.streams.len() {
        world.schedule_arrival(stream, Moment::default());
    }
    world.play();
    world.report
}

impl World<'_> {
    fn play(&mut self) {
        let mut effects = Vec::new();
        let mut now = Moment::default();
        loop {
            let next = self.events.peek().map_or(Moment::NEVER, |Reverse((at, ..))| *at);
            let wakes_at = self.dispatch.wakes_at();
            if wakes_at < next {
                now = now.max(wakes_at);
                self.dispatch.tick(now, &mut effects);
                let (again, seed) = (self.dispatch.wakes_at(), self.scenario.seed);
                assert!(again > now, "seed {seed}: woken at {now:?} only to be woken at {again:?}");
            } else if let Some(Reverse((at, _, event))) = self.events.pop() {
                now = at;
                match event {
                    Event::Arrive { stream } => self.arrive(stream, now, &mut effects),
                    Event::Done { replica, batch } => self.done(replica, batch, now, &mut effects),
                }
            } else {
                break;
            }
            for effect in effects.drain(..) {
                self.act(effect, now);
            }
        }
        let left = self.pending.iter().filter(|pending| !pending.ended).count();
        assert_eq!(left, 0, "seed {}: requests left behind", self.scenario.seed);
    }

    fn arrive(&mut self, stream: usize, now: Moment, effects: &mut Vec<Effect>) {
        self.schedule_arrival(stream, now);
        let id = self.pending.len() as u64;
        let deadline = now + self.scenario.settings.objective;
        self.pending.push(Pending { stream, arrived: now, deadline, sent: false, ended: false });
        if self.counts(now) {
            self.report.streams[stream].offered += 1;
        }
        self.tenth(now).1 += 1;
        let class = self.scenario.streams[stream].class;
        let arrival = Arrival { id, key: 0, deadline, rows: 1, tenant: stream as u32, class };
        if self.dispatch.arrive(arrival, now, effects).is_err() {
            self.refuse(id, now);
        }
    }

    fn done(&mut self, replica: u32, batch: u64, now: Moment, effects: &mut Vec<Effect>) {
        self.dispatch.finished(replica, batch, Ended::Done, now, effects);
        let place = self.batches.iter().position(|sent| sent.id == batch);
        let sent = self.batches.swap_remove(place.expect("only sent batches come back"));
        for id in sent.requests {
            let pending = &mut self.pending[id as usize];
            if pending.ended {
                continue;
            }
            pending.ended = true;
            let (stream, arrived) = (pending.stream, pending.arrived);
            let in_time = now <= pending.deadline;
            self.tenth(arrived).0 += u64::from(in_time);
            if self.counts(arrived) {
                let outcome = &mut self.report.streams[stream];
                outcome.in_time += u64::from(in_time);
                outcome.late += u64::from(!in_time);
            }
        }
    }

    fn act(&mut self, effect: Effect, now: Moment) {
        match effect {
            Effect::Send(batch) => self.send(batch, now),
            Effect::Refuse { id, .. } | Effect::Fail { id } => self.refuse(id, now),
            Effect::Cancel { .. } => {}
        }
    }

    fn send(&mut self, batch: Batch, now: Moment) {
        let mut mean = self.scenario.curve.mean(batch.rows);
        if let Some((from, factor)) = self.scenario.slowdown
            && now >= Moment::default() + from
        {
            mean = mean.mul_f64(factor);
        }
        let took = curve::draw(mean, self.scenario.noise, &mut self.service);
        let busy = &mut self.busy[batch.replica as usize];
        *busy = now.max(*busy) + took;
        let end = *busy;
        if self.counts(now) {
            self.report.batches += 1;
            self.report.rows += u64::from(batch.rows);
        }
        for id in &batch.requests {
            self.pending[*id as usize].sent = true;
        }
        self.push(end, Event::Done { replica: batch.replica, batch: batch.id });
        self.batches.push(batch);
    }

    fn refuse(&mut self, id: u64, now: Moment) {
        let pending = &mut self.pending[id as usize];
        assert!(!pending.ended, "seed {}: request {id} was answered twice", self.scenario.seed);
        pending.ended = true;
        let Pending { stream, arrived, deadline, sent, .. } = *pending;
        if self.counts(arrived) {
            let outcome = &mut self.report.streams[stream];
            outcome.refused += 1;
            outcome.refused_early += u64::from(now.since(arrived) <= EARLY);
            outcome.refused_late += u64::from(now > deadline && !sent);
        }
    }

    fn schedule_arrival(&mut self, stream: usize, now: Moment) {
        let at = now + self.arrivals.exponential(self.scenario.streams[stream].rate);
        if at < Moment::default() + self.scenario.duration {
            self.push(at, Event::Arrive { stream });
        }
    }

    fn push(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn counts(&self, arrived: Moment) -> bool {
        arrived >= Moment::default() + self.scenario.warmup
    }

    fn tenth(&mut self, at: Moment) -> &mut (u64, u64) {
        let tenth = (at.micros() / 100_000) as usize;
        if self.report.by_tenth.len() <= tenth {
            self.report.by_tenth.resize(tenth + 1, (0, 0));
        }
        &mut self.report.by_tenth[tenth]
    }
}
