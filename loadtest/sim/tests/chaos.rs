//! Whatever happens, every request ends exactly once and no replica is asked too much.
//!
//! Replicas come, drain, die, hang, fail and blame requests; callers leave; requests differ in rows,
//! class, tenant, deadline and shape. The machine is checked after every event. A failure names its
//! seed.

use std::time::Duration;

use policy::{
    dispatch::{Arrival, Batch, Class, Dispatch, Effect, Ended, GRACE, Settings, Until},
    moment::Moment,
    rule::{Aimd, Deadline, Deferred, EarlyDrop, Rule, Slo, Timeout},
};
use sim::{curve::Curve, random::Random};

const SEEDS: u64 = 240;
const EVENTS: u32 = 1_500;
const RULES: u64 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Sent { batch: u64 },
    Ended,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    key: u32,
    until: Until,
    rows: u32,
    state: State,
}

struct Sent {
    batch: Batch,
    ends_at: Moment,
}

struct World {
    seed: u64,
    random: Random,
    settings: Settings,
    dispatch: Dispatch,
    now: Moment,
    arrives_at: Moment,
    per_second: f64,
    requests: Vec<Request>,
    sent: Vec<Sent>,
    alive: Vec<u32>,
    replicas_made: u32,
    curve: Curve,
    seen: Seen,
}

/// What happened, to show that the dice reach every corner.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sent_ahead: u64,
    called_off: u64,
    failed: u64,
    deaths: u64,
    retried: u64,
    given_up: u64,
    served: u64,
}

fn rule(random: &mut Random, seed: u64, max_batch: u32) -> Box<dyn Rule> {
    match seed % RULES {
        0 => Box::new(Slo),
        1 => Box::new(Aimd),
        2 => Box::new(Deadline),
        3 => Box::new(EarlyDrop),
        4 => Box::new(Deferred),
        _ => Box::new(Timeout {
            batch: 1 + random.below(u64::from(max_batch)) as u32,
            delay: Duration::from_millis(random.below(20)),
        }),
    }
}

/// Replicas differ: every third is as fast as the curve says.
fn speed_of(replica: u32) -> f64 {
    f64::from(1 + replica % 3)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let max_batch = [1, 2, 8, 32][random.below(4) as usize];
        let settings = Settings {
            objective: Duration::from_millis(10 + random.below(90)),
            max_batch,
            way: Duration::from_micros([0, 300, 2_000][random.below(3) as usize]),
            lead: Duration::from_micros([0, 300, 2_000][random.below(3) as usize]),
            margin: Duration::from_micros([0, 1_000][random.below(2) as usize]),
        };
        let curve =
            Curve::Linear { fixed_ms: 0.5 + 9.0 * random.unit(), row_ms: 0.05 + random.unit() };
        let rule = rule(&mut random, seed, max_batch);
        let mut dispatch = Dispatch::new(settings, rule);
        dispatch.set_weights(&[1.0, 3.0, 0.5]);
        let capacity = f64::from(max_batch) / curve.mean(max_batch).as_secs_f64();
        Self {
            seed,
            per_second: capacity * (0.2 + 3.0 * random.unit()),
            random,
            settings,
            dispatch,
            now: Moment::default(),
            arrives_at: Moment::default(),
            requests: Vec::new(),
            sent: Vec::new(),
            alive: Vec::new(),
            replicas_made: 0,
            curve,
            seen: Seen::default(),
        }
    }

    fn step(&mut self) {
        let done = self.sent.iter().map(|sent| sent.ends_at).min().unwrap_or(Moment::NEVER);
        let wakes_at = self.dispatch.wakes_at();
        let next = self.arrives_at.min(done).min(wakes_at);
        assert!(next != Moment::NEVER || self.arrives_at == Moment::NEVER);
        self.now = self.now.max(next);
        let mut effects = Vec::new();
        if done <= self.now {
            self.finish(&mut effects);
        } else if wakes_at <= self.now {
            self.dispatch.tick(self.now, &mut effects);
            let (now, again) = (self.now, self.dispatch.wakes_at());
            assert!(again > now, "seed {}: woken at {now:?} to be woken at {again:?}", self.seed);
        } else {
            match self.random.below(200) {
                0 => self.add_replica(&mut effects),
                1 => self.lose_replica(&mut effects),
                2 => self.drain_replica(),
                3..=20 => self.cancel(&mut effects),
                _ => self.arrive(&mut effects),
            }
        }
        self.act(effects);
        self.check();
    }

    fn arrive(&mut self, effects: &mut Vec<Effect>) {
        self.arrives_at = self.now + self.random.exponential(self.per_second);
        let id = self.requests.len() as u64;
        let objective = self.settings.objective;
        let allowed = match self.random.below(5) {
            0 => objective.mul_f64(self.random.unit()),
            1 => objective.mul_f64(1.0 + 4.0 * self.random.unit()),
            _ => objective,
        };
        let request = Request {
            key: [0, 0, 0, 1, 7][self.random.below(5) as usize],
            until: Until { due: self.now + objective, deadline: self.now + allowed },
            rows: match self.random.below(4) {
                0 => 1 + self.random.below(u64::from(self.settings.max_batch)) as u32,
                _ => 1,
            },
            state: State::Waiting,
        };
        self.requests.push(request);
        let arrival = Arrival {
            id,
            key: request.key,
            until: request.until,
            rows: request.rows,
            tenant: self.random.below(4) as u32,
            class: [Class::Interactive, Class::Interactive, Class::Batch]
                [self.random.below(3) as usize],
        };
        if self.dispatch.arrive(arrival, self.now, effects).is_err() {
            self.end(id, "refused at once");
        }
    }

    fn cancel(&mut self, effects: &mut Vec<Effect>) {
        let recent = self.requests.len().min(50) as u64;
        if recent == 0 {
            return;
        }
        let id = self.requests.len() as u64 - 1 - self.random.below(recent);
        let request = self.requests[id as usize];
        // The machine is told of a request that was answered, too: it must not mind.
        self.dispatch.cancel(id, request.key, request.until, effects);
        if request.state != State::Ended {
            self.end(id, "cancelled");
        }
    }

    fn add_replica(&mut self, effects: &mut Vec<Effect>) {
        if self.alive.len() < 4 {
            let id = self.replicas_made;
            self.replicas_made += 1;
            self.alive.push(id);
            let slower = speed_of(id);
            let measured = self.curve.warmup(self.settings.max_batch).into_iter();
            let measured: Vec<_> =
                measured.map(|(rows, took)| (rows, took.mul_f64(slower))).collect();
            effects.extend(self.dispatch.add_replica(id, &measured, self.now));
        }
    }

    fn pick(&mut self) -> Option<u32> {
        let count = self.alive.len() as u64;
        (count > 0).then(|| self.alive[self.random.below(count) as usize])
    }

    fn lose_replica(&mut self, effects: &mut Vec<Effect>) {
        let Some(id) = self.pick() else { return };
        self.seen.deaths += 1;
        self.lose(id, effects);
    }

    fn lose(&mut self, id: u32, effects: &mut Vec<Effect>) {
        self.alive.retain(|alive| *alive != id);
        self.forget(|sent| sent.batch.replica == id);
        self.dispatch.lost(id, self.now, effects);
    }

    fn drain_replica(&mut self) {
        if let Some(id) = self.pick() {
            self.alive.retain(|alive| *alive != id);
            self.dispatch.drain_replica(id);
        }
    }

    fn finish(&mut self, effects: &mut Vec<Effect>) {
        let place = (0..self.sent.len()).min_by_key(|place| self.sent[*place].ends_at);
        let Sent { batch, .. } = self.sent.swap_remove(place.expect("one is done"));
        let ended = match self.random.below(40) {
            0 => Ended::ReplicaFault,
            1 => Ended::RequestFault,
            2 => Ended::Cancelled,
            _ => Ended::Done,
        };
        for id in &batch.requests {
            let state = &mut self.requests[*id as usize].state;
            if ended == Ended::Done {
                // Though it may wait elsewhere by now: the first answer counts.
                self.seen.served += u64::from(*state != State::Ended);
                *state = State::Ended;
            } else if *state == (State::Sent { batch: batch.id }) {
                *state = State::Waiting;
            }
        }
        self.dispatch.finished(batch.replica, batch.id, ended, self.now, effects);
    }

    fn act(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(batch) => self.send(batch),
                Effect::Refuse { id, .. } => self.end(id, "refused"),
                Effect::Fail { id } => {
                    self.seen.failed += 1;
                    self.end(id, "failed");
                }
                Effect::Retry { batch, requests, .. } => {
                    self.seen.retried += requests.len() as u64;
                    for id in requests {
                        let state = &mut self.requests[id as usize].state;
                        assert_eq!(*state, State::Sent { batch }, "seed {}: retried", self.seed);
                        *state = State::Waiting;
                    }
                }
                Effect::GiveUp { replica } => {
                    self.seen.given_up += 1;
                    let mut effects = Vec::new();
                    self.lose(replica, &mut effects);
                    self.act(effects);
                }
                Effect::Cancel { batch, replica } => {
                    let seed = self.seed;
                    let known = self.sent.iter().any(|sent| sent.batch.id == batch);
                    assert!(known, "seed {seed}: batch {batch} on {replica} called off twice");
                    let live = self.requests.iter().any(|one| one.state == State::Sent { batch });
                    assert!(!live, "seed {seed}: batch {batch} called off while wanted");
                    self.seen.called_off += 1;
                    let ends_at = self.now;
                    self.forget(|sent| sent.batch.id == batch);
                    let mut effects = Vec::new();
                    let ended = Ended::Cancelled;
                    self.dispatch.finished(replica, batch, ended, ends_at, &mut effects);
                    self.act(effects);
                }
            }
        }
    }

    fn send(&mut self, batch: Batch) {
        let seed = self.seed;
        let id = batch.replica;
        assert!(self.alive.contains(&id), "seed {seed}: sent to replica {id}, which is gone");
        let there = self.sent.iter().filter(|sent| sent.batch.replica == id).count();
        assert!(there < 2, "seed {seed}: a third batch for replica {id}");
        self.seen.sent_ahead += there as u64;
        let members = batch.requests.iter().map(|id| self.requests[*id as usize]);
        let rows: u32 = members.clone().map(|request| request.rows).sum();
        assert_eq!(rows, batch.rows, "seed {seed}");
        assert!((1..=self.settings.max_batch).contains(&rows), "seed {seed}: {rows} rows");
        let keys: Vec<u32> = members.map(|request| request.key).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "seed {seed}: shapes mixed");
        for id in &batch.requests {
            let state = &mut self.requests[*id as usize].state;
            assert_eq!(*state, State::Waiting, "seed {seed}: request {id} sent");
            *state = State::Sent { batch: batch.id };
        }
        let before = self.sent.iter().filter(|sent| sent.batch.replica == id);
        let start = before.map(|sent| sent.ends_at).max().unwrap_or(self.now).max(self.now);
        let stuck = if self.random.below(60) == 0 { 20.0 } else { 1.0 };
        let slower = speed_of(id) * (0.6 + self.random.unit()) * stuck;
        let took = self.curve.mean(rows).mul_f64(slower);
        let hangs = self.random.below(500) == 0 && self.seen.served > 0;
        let ends_at = if hangs { Moment::NEVER } else { start + took };
        self.sent.push(Sent { batch, ends_at });
    }

    fn forget(&mut self, which: impl Fn(&Sent) -> bool) {
        for sent in self.sent.extract_if(.., |sent| which(sent)) {
            for id in sent.batch.requests {
                let state = &mut self.requests[id as usize].state;
                if *state == (State::Sent { batch: sent.batch.id }) {
                    *state = State::Waiting;
                }
            }
        }
    }

    fn end(&mut self, id: u64, how: &str) {
        let state = &mut self.requests[id as usize].state;
        assert_ne!(*state, State::Ended, "seed {}: request {id} was {how}, twice", self.seed);
        *state = State::Ended;
    }

    fn check(&mut self) {
        let seed = self.seed;
        let recent = &self.requests[self.requests.len().saturating_sub(4_000)..];
        let waiting = recent.iter().filter(|one| one.state == State::Waiting).count();
        assert_eq!(self.dispatch.waiting(), waiting, "seed {seed} at {:?}", self.now);
        let on_replicas =
            recent.iter().filter(|one| matches!(one.state, State::Sent { .. })).count();
        assert_eq!(self.dispatch.in_flight(), on_replicas, "seed {seed} at {:?}", self.now);
        for request in recent {
            let due = match request.state {
                State::Waiting => request.until.deadline,
                State::Sent { .. } => request.until.deadline + GRACE,
                State::Ended => continue,
            };
            assert!(due >= self.now, "seed {seed}: unanswered past its deadline: {request:?}");
            assert!(self.dispatch.wakes_at() <= due, "seed {seed}: will oversleep {request:?}");
        }
    }

    fn run(mut self) -> Seen {
        let mut effects = Vec::new();
        self.add_replica(&mut effects);
        for _ in 0..EVENTS {
            self.step();
        }
        self.arrives_at = Moment::NEVER;
        while !self.sent.is_empty() || self.dispatch.wakes_at() != Moment::NEVER {
            self.step();
        }
        let left = self.requests.iter().filter(|one| one.state != State::Ended).count();
        assert_eq!(left, 0, "seed {}: requests left behind", self.seed);
        assert!(self.dispatch.is_idle(), "seed {}", self.seed);
        self.seen
    }
}

#[test]
fn every_request_ends_exactly_once_whatever_happens() {
    let mut served = [0; RULES as usize];
    let (mut sent_ahead, mut called_off, mut failed, mut deaths) = (0, 0, 0, 0);
    let (mut retried, mut given_up) = (0, 0);
    for seed in 0..SEEDS {
        let seen = World::new(seed).run();
        let rule = (seed % RULES) as usize;
        served[rule] += seen.served;
        sent_ahead += seen.sent_ahead;
        called_off += seen.called_off;
        failed += seen.failed;
        deaths += seen.deaths;
        retried += seen.retried;
        given_up += seen.given_up;
    }
    assert!(served.iter().all(|served| *served > 1_000), "a rule served few: {served:?}");
    assert!(sent_ahead > 1_000 && called_off > 20, "{sent_ahead} {called_off}");
    assert!(failed > 200 && deaths > 100, "{failed} {deaths}");
    assert!(retried > 50 && given_up > 20, "{retried} {given_up}");
}
