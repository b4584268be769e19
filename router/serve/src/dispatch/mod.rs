//! Dispatch: the shell around [`policy::dispatch::Dispatch`].
//!
//! Each event takes the model's lock, tells the machine what happened, carries out what it answers
//! and lets go. Nothing waits under the lock: sending to a connection, answering a client and
//! setting the alarm are all immediate.

mod answer;
mod keys;
mod process;
mod shared;
mod state;
mod tally;
mod ticket;
mod traced;
mod view;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use policy::{
    dispatch::{Arrival, Class, Dispatch, Refusal, Settings, Until},
    moment::Moment,
};
use protocol::Reply;
use tokio::{
    sync::{Notify, oneshot},
    task::{AbortHandle, yield_now},
};

use self::{
    process::Passing,
    state::{Attached, Came, Counted, Fault, Pending, State},
    tally::Tally,
};
pub use self::{
    process::Process,
    shared::Caller,
    ticket::Ticket,
    view::{Limit, SetBy, View},
};
use crate::{
    alarm::Alarm,
    clock::Clock,
    count::{ModelMetrics, Outcome},
    error::InferError,
    request::{Answer, Request, Spent},
    transport::{Link, LinkError},
};

/// What a client is told to wait when no replica is there at all, at least.
const NO_REPLICA_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Dispatcher {
    name: String,
    clock: Clock,
    alarm: Alarm,
    /// Requests came that no batch was formed of yet.
    came: Notify,
    metrics: ModelMetrics,
    state: Mutex<State>,
    tasks: OnceLock<[AbortHandle; 2]>,
    /// Milliseconds that a replica takes to load.
    loads_in_ms: AtomicU64,
    /// What requests without a replica wait for, in words.
    absence: Mutex<Arc<str>>,
}

#[derive(Debug)]
pub struct Replica {
    pub id: u32,
    /// Its id on its worker, which its executor knows it by.
    pub replica: u32,
    pub slice: String,
    pub profile: String,
    pub link: Link,
    pub process: Arc<Process>,
    /// Nothing while nothing was measured.
    pub measured: Vec<(u32, Duration)>,
    /// The same by shape, of a model of free dimensions.
    pub shapes: Vec<Shape>,
    pub signature: Arc<oip::Signature>,
}

/// What a replica was measured at with inputs of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The dimensions of each input, without the batch, in the order of the signature.
    pub tails: Vec<Vec<u64>>,
    pub measured: Vec<(u32, Duration)>,
}

impl Dispatcher {
    /// A dispatcher without replicas. Must be made inside a runtime, which keeps its time.
    pub fn start(model: &config::Model, clock: Clock) -> io::Result<Arc<Self>> {
        let machine = Dispatch::new(settings(model), model.batching.rule());
        let dispatcher = Arc::new(Self {
            name: model.name.clone(),
            clock,
            alarm: Alarm::new()?,
            came: Notify::new(),
            metrics: ModelMetrics::new(&model.name),
            state: Mutex::new(State::new(machine, model)),
            tasks: OnceLock::new(),
            loads_in_ms: AtomicU64::new(0),
            absence: Mutex::new("".into()),
        });
        let time = tokio::spawn(Self::keep_time(Arc::clone(&dispatcher)));
        let gathering = tokio::spawn(Self::gather(Arc::clone(&dispatcher)));
        dispatcher.tasks.get_or_init(|| [time.abort_handle(), gathering.abort_handle()]);
        Ok(dispatcher)
    }

    /// Ends its tasks, when there is nobody left who could ask it anything.
    pub fn close(&self) {
        self.tasks.get().into_iter().flatten().for_each(AbortHandle::abort);
    }

    /// Has those who find no replica come back after this time.
    pub fn expect_within(&self, load_time: Duration) {
        let millis = u64::try_from(load_time.as_millis()).unwrap_or(u64::MAX);
        self.loads_in_ms.store(millis, Ordering::Relaxed);
    }

    /// Has those who find no replica told why.
    pub fn explain_absence(&self, why: &str) {
        let mut absence = self.absence.lock();
        if **absence != *why {
            *absence = why.into();
        }
    }

    /// Why there is no replica, if there is none; empty before anybody said so.
    pub fn absence(&self) -> Arc<str> {
        Arc::clone(&self.absence.lock())
    }

    pub fn metrics(&self) -> &ModelMetrics {
        &self.metrics
    }

    /// Puts new settings in force; requests already here keep their deadlines.
    pub fn reconfigure(&self, model: &config::Model, weights: &[f64]) {
        let mut state = self.state.lock();
        (state.objective, state.timeout) = (model.slo, model.timeout());
        state.machine.reconfigure(settings(model), model.batching.rule());
        state.machine.set_weights(weights);
        let process = |(id, attached): (&u32, &Attached)| (*id, Arc::clone(&attached.process));
        let processes: Vec<_> = state.links.iter().map(process).collect();
        Self::let_go(state);
        for (replica, process) in processes {
            process.change(replica, model.slo);
        }
    }

    /// Takes a request in, or says at once why not.
    pub fn submit(self: &Arc<Self>, request: Request) -> Result<Ticket, InferError> {
        self.take_in(request, Counted::Here)
    }

    fn take_in(self: &Arc<Self>, request: Request, counted: Counted) -> Result<Ticket, InferError> {
        let now = self.clock.now();
        let arrived = self.clock.moment(request.arrived);
        let (reply, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        let wanted = request.timeout.map_or(state.timeout, |own| own.min(state.timeout));
        let until = Until { due: arrived + state.objective, deadline: arrived + wanted };
        let came = Came { arrived, entered: now, until };
        let Some(key) = state.key_of(&request.inputs) else {
            let why = "too many different input shapes are waiting".to_owned();
            let error = InferError::Unavailable { model: self.name.clone(), why };
            return Err(self.turned_away(&mut state, counted, now.since(arrived), error));
        };
        let (rows, inputs, traced) = (request.rows, request.inputs, request.traced);
        let pending = Pending { id: 0, key, came, rows, inputs, counted, traced, reply };
        let id = state.hold(pending);
        let class = match request.class {
            config::Class::Interactive => Class::Interactive,
            config::Class::Batch => Class::Batch,
        };
        let arrival = Arrival { id, key, until, rows: request.rows, tenant: request.tenant, class };
        let admitted = state.enter(arrival, now);
        self.carry_out(&mut state, now);
        if let Err(why) = admitted {
            state.release(id);
            let error = self.refusal(why, came, now);
            let error = self.turned_away(&mut state, counted, now.since(arrived), error);
            Self::let_go(state);
            return Err(error);
        }
        Self::let_go(state);
        self.came.notify_one();
        Ok(Ticket::new(Arc::clone(self), id, key, until, receiver))
    }

    pub fn attach(self: &Arc<Self>, replica: Replica) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Replica { id, replica, slice, profile, link, process, measured, shapes, signature } =
            replica;
        let took = self.metrics.batch_time(&profile);
        state.signature = Some(Arc::clone(&signature));
        let process_of = Arc::clone(&process);
        let attached = Attached { replica, slice, link, process: process_of, took, signature };
        state.links.insert(id, attached);
        // What was measured of several shapes is not of any one.
        let measured = if shapes.is_empty() { measured } else { Vec::new() };
        state.effects = state.machine.add_replica(id, &measured, now);
        state.teach(id, &shapes);
        self.carry_out(&mut state, now);
        let objective = state.objective;
        Self::let_go(state);
        process.join(self, id, objective);
    }

    /// Gives a replica the batch limit it had in the process that this one replaced.
    pub fn resume_limit(&self, replica: u32, rows: u32) {
        self.state.lock().machine.resume_limit(replica, rows);
    }

    /// The most rows the next batch of a replica may hold; none if it is not in rotation.
    pub fn batch_limit(&self, replica: u32) -> Option<u32> {
        let state = self.state.lock();
        state.machine.limits().find(|limit| limit.replica == replica).map(|limit| limit.rows)
    }

    /// Gives a replica no more batches; it is detached once it has none left.
    pub fn drain(&self, replica: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.machine.drain_replica(replica);
        self.carry_out(&mut state, now);
        Self::let_go(state);
    }

    pub fn is_busy(&self, replica: u32) -> bool {
        self.state.lock().batches.values().any(|sent| sent.replica == replica)
    }

    /// Takes a replica out of rotation that is there no more.
    pub fn detach(&self, replica: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(gone) = state.links.remove(&replica) else { return };
        state.batches.retain(|_, sent| sent.replica != replica);
        state.fault = Fault::of_replica("its replica stopped".to_owned());
        state.lose(replica, now);
        self.carry_out(&mut state, now);
        Self::let_go(state);
        gone.process.leave(replica);
    }

    /// A batch has come back. A replica that answers what it was not asked is not to be listened to.
    pub fn returned(&self, replica: u32, reply: &Reply, body: &Bytes) -> Result<(), LinkError> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let batch = reply.batch;
        let mut sent = state.take_back(replica, batch).ok_or(LinkError::Unasked { batch })?;
        // An executor may say of its time what it likes, but not more than passed here.
        let facts = reply.facts.at_most(now.since(sent.at));
        if let Some(span) = sent.span.take() {
            self.trace_end(*span, &reply.outcome, &facts);
        }
        let ended = state.judge(&sent, reply);
        let learned = state.finish(replica, reply.batch, ended, now);
        state.came_back(replica);
        // The next batch goes out before the answers of this one: the replica is waiting.
        self.carry_out(&mut state, now);
        if let (Some(learned), protocol::Outcome::Done(answer)) = (learned, &reply.outcome) {
            state.tally.batch(learned.rows, &facts);
            if let Some(attached) = state.links.get(&replica) {
                attached.took.record(facts.worked().as_secs_f64());
            }
            for (id, outputs) in answer::split(answer, body, &sent, state.batches_rows()) {
                let spent = state.place(id).map(|place| Spent {
                    queued: sent.at.since(state.pending[place].came.arrived),
                    ran: facts.worked(),
                });
                self.end(&mut state, id, Ok(Answer { outputs, spent }), now);
            }
        }
        Self::let_go(state);
        Ok(())
    }

    pub fn replicas(&self) -> usize {
        self.state.lock().links.len()
    }

    pub fn waiting(&self) -> usize {
        self.state.lock().machine.waiting()
    }

    pub fn view(&self) -> View {
        self.state.lock().view(self.clock.now())
    }

    /// Where requests' time went, for `/stats`.
    pub fn tally(&self) -> Tally {
        self.state.lock().tally.clone()
    }

    /// Refuses requests that can only be late until they held `bytes`, and says how much they did.
    pub fn drop_late(&self, bytes: u64) -> u64 {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let dropped = state.drop_late(bytes);
        self.carry_out(&mut state, now);
        Self::let_go(state);
        dropped
    }

    fn abandon(&self, id: u64, key: u32, until: Until) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(pending) = state.release(id) else { return };
        state.cancel(id, key, until);
        self.carry_out(&mut state, now);
        Self::let_go(state);
        if pending.counted == Counted::Here {
            self.metrics.ended(Outcome::Abandoned);
        }
    }

    fn turned_away(
        &self,
        state: &mut State,
        counted: Counted,
        took: Duration,
        error: InferError,
    ) -> InferError {
        if counted == Counted::Here {
            self.count(state, took, Some(&error));
        }
        error
    }

    /// Answers a request, and counts how it ended unless its callers are counted.
    fn end(&self, state: &mut State, id: u64, result: Result<Answer, InferError>, now: Moment) {
        let Some(pending) = state.release(id) else { return };
        if pending.counted == Counted::Here {
            self.count(state, now.since(pending.came.arrived), result.as_ref().err());
        }
        let _ = pending.reply.send(result);
    }

    /// Counts a request that was answered after `took`, if not with `error`.
    fn count(&self, state: &mut State, took: Duration, error: Option<&InferError>) {
        let outcome = match error {
            None => Outcome::Served { took, in_time: took <= state.objective },
            Some(error) => Outcome::from(error),
        };
        match error {
            None => state.tally.success(took),
            Some(_) => state.tally.fail(took),
        }
        self.metrics.ended(outcome);
    }

    fn refusal(&self, why: Refusal, came: Came, now: Moment) -> InferError {
        let model = self.name.clone();
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let slo_ms = millis(came.until.due.since(came.arrived));
        let timeout_ms = millis(came.until.deadline.since(came.arrived));
        let since_arrival = |from_entry| millis(came.entered.since(came.arrived) + from_entry);
        let count = |waiting| u32::try_from(waiting).unwrap_or(u32::MAX);
        match why {
            Refusal::Overloaded { waiting, predicted, retry_after } => InferError::Overloaded {
                model,
                waiting: count(waiting),
                predicted_ms: since_arrival(predicted),
                slo_ms,
                retry_after,
            },
            Refusal::TooShort { predicted } => {
                let predicted_ms = since_arrival(predicted);
                InferError::DeadlineTooShort { model, predicted_ms, timeout_ms, slo_ms }
            }
            Refusal::Full { waiting } => InferError::Overloaded {
                model,
                waiting: count(waiting),
                predicted_ms: slo_ms,
                slo_ms,
                retry_after: came.until.due.since(came.arrived),
            },
            Refusal::TooLate { .. } => {
                InferError::TooLate { model, waited: now.since(came.arrived) }
            }
            Refusal::NoReplica => {
                let loads_in = Duration::from_millis(self.loads_in_ms.load(Ordering::Relaxed));
                let (why, retry_after) =
                    (self.absence().to_string(), loads_in.max(NO_REPLICA_RETRY));
                InferError::NoReplica { model, why, retry_after }
            }
        }
    }

    /// Ticks the machine whenever the alarm rings.
    async fn keep_time(self: Arc<Self>) {
        loop {
            if let Err(error) = self.alarm.rings().await {
                tracing::error!(model = self.name, %error, "the dispatch timer failed");
                return;
            }
            self.tick();
        }
    }

    /// Ticks the machine once all requests that came together were told to it: a batch formed for
    /// the first of them would leave the others behind. The runtime sees to other tasks a bounded
    /// number of times before it comes back here.
    async fn gather(self: Arc<Self>) {
        loop {
            self.came.notified().await;
            yield_now().await;
            self.tick();
        }
    }

    fn tick(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.tick(now);
        self.carry_out(&mut state, now);
        Self::let_go(state);
    }

    /// Ends an event: those who share a process with what it did hear of it without the lock.
    fn let_go(mut state: MutexGuard<'_, State>) {
        let passing = std::mem::take(&mut state.passing);
        drop(state);
        passing.into_iter().for_each(Passing::on);
    }
}

fn settings(model: &config::Model) -> Settings {
    Settings::routed(model.slo, model.max_batch)
}
