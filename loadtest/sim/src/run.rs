//! One run: arrivals in, outcomes out.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use policy::{
    dispatch::{Arrival, Batch, Dispatch, Effect, Ended},
    moment::Moment,
    rule::Rule,
};

use crate::{
    random::Random,
    report::{Outcome, Report, Tenth},
    scenario::Scenario,
};

/// A refusal this soon after the arrival leaves the client time to go elsewhere.
const EARLY: Duration = Duration::from_millis(5);

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
        self.tenth(now).offered += 1;
        let class = self.scenario.streams[stream].class;
        let key = match self.scenario.shapes {
            1 => 0,
            shapes => self.arrivals.below(u64::from(shapes)) as u32,
        };
        let arrival = Arrival { id, key, deadline, rows: 1, tenant: stream as u32, class };
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
            let tenth = self.tenth(arrived);
            tenth.in_time += u64::from(in_time);
            tenth.late += u64::from(!in_time);
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
        let took = mean.mul_f64(self.service.spread(self.scenario.noise));
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

    fn tenth(&mut self, at: Moment) -> &mut Tenth {
        let tenth = (at.micros() / 100_000) as usize;
        if self.report.tenths.len() <= tenth {
            self.report.tenths.resize(tenth + 1, Tenth::default());
        }
        &mut self.report.tenths[tenth]
    }
}
