//! The event loop: virtual time, the router's own decisions, simulated GPUs.
//!
//! Every model has its own [`Dispatch`], as in the router, and every GPU its own
//! [`simgpu::Device`]. Events of one moment happen in the order they were made, so a fleet and a
//! seed name exactly one run. Who comes and goes on a batch's own slice changes its pace at once;
//! what changes on other slices while it runs is felt by the next one.

mod check;
mod faults;
mod interference;
mod serve;
mod turns;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    time::Duration,
};

use loadtest::{arrivals::Arrivals, plan::Source, random::Random as Drawn};
use policy::{
    dispatch::{Arrival, Dispatch, Effect, Until},
    moment::Moment,
    rule::Rule,
};
use simgpu::{Device, random::Random};

use self::{
    faults::InForce,
    interference::Slowdowns,
    serve::{Running, Slice},
};
use crate::{
    claims::{Broken, Claim},
    fleet::{SimFleet, SimModel, Stream, Terms},
    report::{Outcome, Report, Served, Tenth},
    slots::{Request, Slots},
};

pub use self::check::{Checks, OwnClaim};

/// A refusal this soon after the arrival leaves the client time to go elsewhere.
const EARLY: Duration = Duration::from_millis(5);
const TRAIL: usize = 12;

pub type MakeRule<'a> = &'a dyn Fn() -> Box<dyn Rule>;

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive { stream: u32 },
    Wake { model: u32 },
    Finish { replica: u32, turn: u32 },
    Answer { replica: u32, epoch: u32 },
    Ready { replica: u32, epoch: u32 },
    Break { fault: u32 },
    Silent { fault: u32 },
    Mend { fault: u32 },
}

/// An event and its place in time; those of one moment keep the order in which they were made.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Moment,
    sequence: u64,
    event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

struct Serving {
    dispatch: Dispatch,
    wake: Moment,
    live: usize,
}

enum Coming {
    Drawn(Arrivals),
    Listed(std::vec::IntoIter<Duration>),
}

impl Coming {
    fn next(&mut self) -> Option<Duration> {
        match self {
            Self::Drawn(arrivals) => arrivals.next(),
            Self::Listed(list) => list.next(),
        }
    }
}

struct RequestWorld<'a> {
    fleet: &'a SimFleet,
    rules: &'a [MakeRule<'a>],
    checks: Checks<'a>,
    now: Moment,
    sequence: u64,
    events: BinaryHeap<Reverse<Due>>,
    trail: VecDeque<(Moment, Event)>,
    coming: Vec<Coming>,
    /// Apart, so that two rules meet the same arrivals.
    chance: Random,
    service: Random,
    models: Vec<Serving>,
    replicas: Vec<Running>,
    devices: Vec<Device>,
    /// By GPU and slice.
    slices: Vec<Vec<Slice>>,
    requests: Slots,
    offered: u64,
    ended: u64,
    network: Duration,
    report_delay: Duration,
    in_force: InForce,
    /// Kept only where some model says what it asks of its neighbours.
    slowdowns: Option<Slowdowns>,
    effects: Vec<Effect>,
    report: Report,
}

pub fn run(fleet: &SimFleet, checks: Checks<'_>) -> Result<Report, Broken> {
    let makers: Vec<_> = fleet
        .models
        .iter()
        .map(|model| {
            let batching = model.batching;
            move || batching.rule()
        })
        .collect();
    let rules: Vec<MakeRule<'_>> = makers.iter().map(|make| make as MakeRule<'_>).collect();
    run_with(fleet, &rules, checks)
}

/// Runs `fleet` with a rule per model.
///
/// The same fleet and rules give the same report.
pub fn run_with(
    fleet: &SimFleet,
    rules: &[MakeRule<'_>],
    checks: Checks<'_>,
) -> Result<Report, Broken> {
    let mut world = RequestWorld::new(fleet, rules, checks);
    match world.play() {
        Ok(()) => {
            let medians = world.slowdowns.map_or([None; 2], Slowdowns::medians);
            Ok(Report { slowdown_errors: medians, ..world.report })
        }
        Err(claim) => Err(world.broken(claim)),
    }
}

impl<'a> RequestWorld<'a> {
    fn new(fleet: &'a SimFleet, rules: &'a [MakeRule<'a>], checks: Checks<'a>) -> Self {
        let terms = fleet.terms;
        let devices = fleet.gpus.iter().map(|geometry| Device::new(geometry.clone(), terms.delays));
        let coming = fleet.streams.iter().enumerate();
        let coming = coming.map(|(index, stream)| coming_of(stream, index, fleet));
        let mut world = Self {
            fleet,
            rules,
            checks,
            now: Moment::default(),
            sequence: 0,
            events: BinaryHeap::new(),
            trail: VecDeque::with_capacity(TRAIL),
            coming: coming.collect(),
            chance: Random::new(terms.seed),
            service: Random::new(!terms.seed),
            models: Vec::new(),
            replicas: fleet.replicas.iter().map(|_| Running::default()).collect(),
            devices: devices.collect(),
            slices: serve::slices(fleet),
            requests: Slots::default(),
            offered: 0,
            ended: 0,
            network: terms.network,
            report_delay: Duration::ZERO,
            in_force: InForce::new(fleet.gpus.len()),
            slowdowns: fleet.declares_loads().then(|| Slowdowns::new(fleet.replicas.len())),
            effects: Vec::new(),
            report: Report {
                streams: vec![Outcome::default(); fleet.streams.len()],
                models: vec![Served::default(); fleet.models.len()],
                ..Report::default()
            },
        };
        world.models = world.machines();
        for stream in 0..fleet.streams.len() {
            world.schedule_arrival(stream);
        }
        for (index, fault) in fleet.faults.iter().enumerate() {
            world.push(Moment::default() + fault.at, Event::Break { fault: index as u32 });
        }
        world
    }

    fn machines(&self) -> Vec<Serving> {
        let models = self.fleet.models.iter().zip(self.rules);
        let machine = |(model, make): (&SimModel, &MakeRule<'_>)| {
            let mut dispatch = Dispatch::new(model.settings, make());
            dispatch.set_weights(&model.weights);
            Serving { dispatch, wake: Moment::NEVER, live: 0 }
        };
        models.map(machine).collect()
    }

    fn play(&mut self) -> Result<(), Claim> {
        self.join_all()?;
        while self.report.events < self.checks.most_events
            && let Some(Reverse(due)) = self.events.pop()
        {
            if due.at < self.now {
                return Err(Claim::Backwards { from: self.now });
            }
            self.now = due.at;
            if self.trail.len() == TRAIL {
                self.trail.pop_front();
            }
            self.trail.push_back((due.at, due.event));
            self.report.events += 1;
            self.happen(due.event)?;
            self.check()?;
        }
        self.sweep()?;
        if self.report.events == self.checks.most_events {
            return Ok(());
        }
        match self.requests.iter().next() {
            Some((request, _)) => Err(Claim::Overdue { request }),
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), Claim> {
        match event {
            Event::Arrive { stream } => self.arrive(stream as usize),
            Event::Wake { model } => self.wake(model as usize),
            Event::Finish { replica, turn } => self.finish(replica as usize, turn),
            Event::Answer { replica, epoch } => self.answer(replica as usize, epoch),
            Event::Ready { replica, epoch } => self.ready(replica as usize, epoch),
            Event::Break { fault } => self.break_down(fault as usize),
            Event::Silent { fault } => self.fall_silent(fault as usize),
            Event::Mend { fault } => self.mend(fault as usize),
        }
    }

    fn arrive(&mut self, index: usize) -> Result<(), Claim> {
        self.schedule_arrival(index);
        let stream = &self.fleet.streams[index];
        let model = &self.fleet.models[stream.model];
        let until =
            Until { due: self.now + model.settings.objective, deadline: self.now + model.timeout };
        let request = Request {
            stream: index as u32,
            model: stream.model as u32,
            arrived: self.now,
            until,
            sent: false,
        };
        let id = self.requests.insert(request);
        self.offered += 1;
        self.models[stream.model].live += 1;
        if self.counts(self.now) {
            self.report.streams[index].offered += 1;
        }
        self.tenth(self.now).offered += 1;
        if self.in_force.router_down() {
            return self.end(id, |outcome, _| outcome.failed += 1);
        }
        let key = match stream.shapes {
            0 | 1 => 0,
            shapes => self.chance.below(u64::from(shapes)) as u32,
        };
        let (tenant, class) = (stream.tenant, stream.class);
        let arrival = Arrival { id, key, until, rows: 1, tenant, class };
        let mut effects = std::mem::take(&mut self.effects);
        let dispatch = &mut self.models[stream.model].dispatch;
        if dispatch.arrive(arrival, self.now, &mut effects).is_err() {
            self.refuse(id)?;
        }
        self.act(stream.model, effects)
    }

    fn wake(&mut self, model: usize) -> Result<(), Claim> {
        // One that was put off, or is of a router that is no more.
        if self.models[model].wake != self.now {
            return Ok(());
        }
        self.models[model].wake = Moment::NEVER;
        let mut effects = std::mem::take(&mut self.effects);
        let dispatch = &mut self.models[model].dispatch;
        if dispatch.wakes_at() <= self.now {
            dispatch.tick(self.now, &mut effects);
            if dispatch.wakes_at() <= self.now {
                return Err(Claim::Restless { model: self.fleet.models[model].name.clone() });
            }
        }
        self.act(model, effects)
    }

    fn act(&mut self, model: usize, mut effects: Vec<Effect>) -> Result<(), Claim> {
        let mut next = 0;
        while next < effects.len() {
            let effect = std::mem::replace(&mut effects[next], Effect::Fail { id: u64::MAX });
            next += 1;
            match effect {
                Effect::Send(batch) => self.send(batch)?,
                Effect::Refuse { id, .. } => self.refuse(id)?,
                Effect::Fail { id } => self.end(id, |outcome, _| outcome.failed += 1)?,
                // What is slow here comes back in the end; and who waits again was counted.
                Effect::Retry { .. } | Effect::GiveUp { .. } => {}
                Effect::Cancel { batch, replica } => {
                    self.call_off(model, batch, replica, &mut effects);
                }
            }
        }
        effects.clear();
        self.effects = effects;
        self.wake_in_time(model);
        Ok(())
    }

    fn wake_in_time(&mut self, model: usize) {
        let serving = &mut self.models[model];
        let wakes_at = serving.dispatch.wakes_at();
        if wakes_at < serving.wake {
            let at = wakes_at.max(self.now);
            serving.wake = at;
            self.push(at, Event::Wake { model: model as u32 });
        }
    }

    fn refuse(&mut self, id: u64) -> Result<(), Claim> {
        let now = self.now;
        self.end(id, |outcome, request| {
            outcome.refused += 1;
            outcome.refused_early += u64::from(now.since(request.arrived) <= EARLY);
            outcome.refused_late += u64::from(now > request.until.deadline && !request.sent);
        })
    }

    fn end(&mut self, id: u64, note: impl FnOnce(&mut Outcome, &Request)) -> Result<(), Claim> {
        let request = self.requests.remove(id).ok_or(Claim::EndedTwice { request: id })?;
        self.ended += 1;
        self.models[request.model as usize].live -= 1;
        if self.counts(request.arrived) {
            note(&mut self.report.streams[request.stream as usize], &request);
        }
        Ok(())
    }

    fn schedule_arrival(&mut self, stream: usize) {
        if let Some(at) = self.coming[stream].next()
            && at < self.fleet.terms.duration
        {
            self.push(Moment::default() + at, Event::Arrive { stream: stream as u32 });
        }
    }

    fn push(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse(Due { at, sequence: self.sequence, event }));
    }

    fn counts(&self, arrived: Moment) -> bool {
        arrived >= Moment::default() + self.fleet.terms.warmup
    }

    fn tenth(&mut self, at: Moment) -> &mut Tenth {
        let tenth = (at.micros() / 100_000) as usize;
        if self.report.tenths.len() <= tenth {
            self.report.tenths.resize(tenth + 1, Tenth::default());
        }
        &mut self.report.tenths[tenth]
    }

    fn broken(&self, claim: Claim) -> Broken {
        let told =
            |(at, event): &(Moment, Event)| format!("{:.6} s {event:?}", at.micros() as f64 / 1e6);
        Broken {
            claim,
            seed: self.fleet.terms.seed,
            events: self.report.events,
            at: self.now,
            trail: self.trail.iter().map(told).collect(),
        }
    }
}

fn coming_of(stream: &Stream, index: usize, fleet: &SimFleet) -> Coming {
    let Terms { seed, duration, .. } = fleet.terms;
    match &stream.source {
        Source::Process(process) => {
            Coming::Drawn(process.arrivals(Drawn::part(seed, index as u64), duration))
        }
        Source::List(list) => Coming::Listed(list.clone().into_iter()),
    }
}
