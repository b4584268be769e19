//! Sends a plan's requests when they are due and measures what comes back.
//!
//! One thread, one epoll, one timer, sockets read and written directly: a request costs about one
//! write and one read, and nothing stands between the schedule and the wire. Latency counts from
//! the moment a request was due, so neither a slow server nor a slow client can hide waiting; how
//! late the client itself was is measured beside it.

mod drive;
mod pool;
mod socket;
mod traffic;

use std::{collections::VecDeque, os::fd::OwnedFd, sync::atomic::AtomicBool, time::Duration};

use hdrhistogram::Histogram;
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{TimerfdClockId, TimerfdFlags, timerfd_create},
};

use self::{pool::Pool, socket::Flight};
use crate::{
    clock,
    plan::{Pacing, Plan, Schedule, Stream},
    random::Random,
    tally::{Counts, Reply, Tally, histogram},
};

const TIMER: u64 = u64::MAX;
/// Descriptors for everything that is not a connection.
const SPARE_FILES: u64 = 64;
const READ_BUFFER_BYTES: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
#[error("the kernel refused to {what}")]
pub struct EngineError {
    what: &'static str,
    #[source]
    source: Errno,
}

/// The state of a run, told while it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub elapsed: Duration,
    pub in_flight: usize,
    /// Requests that ended since the last telling, warm-up included.
    pub ended: Counts,
    /// How long `ended` covers.
    pub covers: Duration,
    /// Median latency among `ended`.
    pub p50: Duration,
    /// 99th percentile latency among `ended`.
    pub p99: Duration,
}

/// How a run is watched and ended from outside.
pub struct Control<'a> {
    /// Ends the run early when set.
    pub stop: &'a AtomicBool,
    /// Is told the state a few times a second; must not block.
    pub tell: &'a mut dyn FnMut(Live),
}

#[derive(Debug)]
pub struct Measured {
    /// One for each stream of the plan.
    pub tallies: Vec<Tally>,
    /// When the measured stretch began, by the machine's clock.
    pub began: Duration,
    pub length: Duration,
    pub client: Client,
}

/// The client's own share in what was measured.
#[derive(Clone, Debug)]
pub struct Client {
    /// How long after it was due each request was sent, in microseconds.
    pub send_lag_us: Histogram<u64>,
    pub processor: Duration,
    pub elapsed: Duration,
    pub connections_opened: u64,
    pub connections_most: usize,
    /// Requests that found every connection busy and no more allowed.
    pub waited_for_connection: u64,
    /// Requests sent a second time because an idle connection had closed.
    pub resent: u64,
}

pub fn run(plan: &Plan, control: &mut Control<'_>) -> Result<Measured, EngineError> {
    assert!(!plan.streams.is_empty(), "a plan has a stream");
    assert!(plan.streams.iter().all(|stream| !stream.requests.is_empty()), "a stream has requests");
    assert!(plan.connections > 0, "a plan allows a connection");
    allow_files(plan.connections as u64 + SPARE_FILES);
    let mut engine = Engine::new(plan)?;
    engine.get_ready()?;
    engine.drive(control)?;
    Ok(engine.finish())
}

struct Engine<'a> {
    plan: &'a Plan,
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Duration,
    pool: Pool,
    schedule: Option<Schedule>,
    /// Closed loop only: requests to send as soon as possible.
    respawn: usize,
    random: Random,
    variants: Vec<usize>,
    waiting: VecDeque<Flight>,
    in_flight: usize,
    started: Duration,
    ends: Duration,
    processor: Duration,
    tallies: Vec<Tally>,
    send_lag_us: Histogram<u64>,
    waited: u64,
    resent: u64,
    told: Told,
    buffer: Vec<u8>,
}

/// What has happened since progress was last told.
struct Told {
    at: Duration,
    ended: Counts,
    latency_us: Histogram<u32>,
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan) -> Result<Self, EngineError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(cannot("create an epoll"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, flags).map_err(cannot("create a timer"))?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)
            .map_err(cannot("watch a timer"))?;
        let tally = |stream: &Stream| Tally::new(plan.length, stream.allowed());
        Ok(Self {
            plan,
            epoll,
            timer,
            armed: Duration::ZERO,
            pool: Pool::new(plan.address, plan.secure.clone(), plan.connections),
            schedule: matches!(plan.pacing, Pacing::Open).then(|| Schedule::new(plan)),
            respawn: 0,
            random: Random::new(plan.seed),
            variants: vec![0; plan.streams.len()],
            waiting: VecDeque::new(),
            in_flight: 0,
            started: Duration::ZERO,
            ends: Duration::MAX,
            processor: Duration::ZERO,
            tallies: plan.streams.iter().map(tally).collect(),
            send_lag_us: histogram(3),
            waited: 0,
            resent: 0,
            told: Told { at: Duration::ZERO, ended: Counts::default(), latency_us: histogram(2) },
            buffer: vec![0; READ_BUFFER_BYTES],
        })
    }

    fn live(&mut self, now: Duration) -> Live {
        let quantile = |q| Duration::from_micros(self.told.latency_us.value_at_quantile(q));
        let live = Live {
            elapsed: now - self.started,
            in_flight: self.in_flight,
            ended: self.told.ended,
            covers: now - self.told.at,
            p50: quantile(0.5),
            p99: quantile(0.99),
        };
        self.told.at = now;
        self.told.ended = Counts::default();
        self.told.latency_us.reset();
        live
    }

    fn finish(mut self) -> Measured {
        let elapsed = clock::now() - self.started;
        let stopped = self.ends < self.started + self.plan.warmup + self.plan.length;
        if !stopped {
            let carried: Vec<Flight> = self.pool.sockets().filter_map(|s| s.flight).collect();
            for flight in std::mem::take(&mut self.waiting).into_iter().chain(carried) {
                self.end(flight, Reply::Unanswered);
            }
        }
        self.tallies.iter_mut().for_each(Tally::settle);
        let client = Client {
            send_lag_us: self.send_lag_us,
            processor: clock::processor().saturating_sub(self.processor),
            elapsed,
            connections_opened: self.pool.opened(),
            connections_most: self.pool.high(),
            waited_for_connection: self.waited,
            resent: self.resent,
        };
        let began = self.started + self.plan.warmup;
        let length = self.ends.saturating_sub(began);
        Measured { tallies: self.tallies, began, length, client }
    }
}

/// Raises the soft limit on descriptors where it is lower than wanted, as far as it may be raised.
fn allow_files(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.map_or(wanted, |most| wanted.min(most));
    if limit.current.is_some_and(|current| current < allowed) {
        let raised = Rlimit { current: Some(allowed), maximum: limit.maximum };
        // If refused, requests wait for a connection, and the report says so.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

fn cannot(what: &'static str) -> impl Fn(Errno) -> EngineError {
    move |source| EngineError { what, source }
}
