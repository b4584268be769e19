//! What one model's lock protects.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use metrics::Histogram;
use oip::{Signature, Tensor, TensorSpec};
use policy::{
    dispatch::{Arrival, Batch, Dispatch, Effect, Ended, Learned, Refusal, Until},
    moment::Moment,
};
use protocol::{Blame, Outcome, Part, Reply, TensorHead, ToExecutor};
use slab::Slab;
use tokio::sync::oneshot;

use super::{
    Dispatcher, Shape, answer,
    keys::Keys,
    process::{Passing, Process},
    tally::Tally,
};
use crate::{
    error::InferError,
    request::Answer,
    trace::{BatchSpan, Traced},
    transport::Link,
};

/// Bits of a request's id that are its place; the rest count up, so that ids are unique.
const PLACE_BITS: u32 = 24;

#[derive(Debug)]
pub(super) struct State {
    pub(super) machine: Dispatch,
    pub(super) objective: Duration,
    /// How long an answer is wanted; at least the objective.
    pub(super) timeout: Duration,
    pub(super) signature: Option<Arc<Signature>>,
    pub(super) links: HashMap<u32, Attached>,
    pub(super) batches: HashMap<u64, Sent>,
    pub(super) effects: Vec<Effect>,
    /// What others in shared processes must hear of.
    pub(super) passing: Vec<Passing>,
    pub(super) tally: Tally,
    pub(super) fault: Fault,
    pub(super) pending: Slab<Pending>,
    next: u64,
    keys: Keys,
}

/// A replica's slice and connection, and what its executor calls it.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) replica: u32,
    pub(super) slice: String,
    pub(super) link: Link,
    pub(super) process: Arc<Process>,
    /// How long its batches, and those of its like, took.
    pub(super) took: Histogram,
    pub(super) signature: Arc<Signature>,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) id: u64,
    pub(super) key: u32,
    pub(super) came: Came,
    pub(super) rows: u32,
    pub(super) inputs: Vec<Tensor>,
    pub(super) counted: Counted,
    pub(super) traced: Option<Arc<Traced>>,
    pub(super) reply: oneshot::Sender<Result<Answer, InferError>>,
}

/// When a request came, and how long it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) arrived: Moment,
    /// When it had been read whole, and reached the machine.
    pub(super) entered: Moment,
    pub(super) until: Until,
}

/// Where it is counted how a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// In the dispatcher: it has one caller.
    Here,
    /// With each of its callers.
    ByCaller,
}

#[derive(Debug)]
pub(super) struct Sent {
    pub(super) replica: u32,
    pub(super) at: Moment,
    pub(super) requests: Vec<u64>,
    /// Of each of them.
    pub(super) rows: Vec<u32>,
    /// Present if some of them are traced.
    pub(super) span: Option<Box<BatchSpan>>,
}

impl State {
    pub(super) fn new(machine: Dispatch, model: &config::Model) -> Self {
        Self {
            machine,
            objective: model.slo,
            timeout: model.timeout(),
            signature: None,
            links: HashMap::new(),
            batches: HashMap::new(),
            effects: Vec::new(),
            passing: Vec::new(),
            tally: Tally::default(),
            fault: Fault::of_replica(String::new()),
            pending: Slab::new(),
            next: 0,
            keys: Keys::default(),
        }
    }

    /// Whether the model's first dimension is the batch.
    pub(super) fn batches_rows(&self) -> bool {
        self.signature.as_ref().is_none_or(|signature| signature.batches())
    }

    fn slice(&self, replica: u32) -> &str {
        self.links.get(&replica).map_or("", |attached| &attached.slice)
    }

    pub(super) fn key_of(&mut self, inputs: &[Tensor]) -> Option<u32> {
        if self.keys.is_full() && self.machine.waiting() == 0 && self.batches.is_empty() {
            self.keys.clear();
            self.machine.forget_keys();
        }
        let batches = self.batches_rows();
        let known = self.keys.len();
        let key = self.keys.of(inputs, batches)?;
        if self.keys.len() > known {
            self.describe(key);
        }
        Some(key)
    }

    /// Tells the machine of a new key, if the model takes more than one shape.
    fn describe(&mut self, key: u32) {
        let batches = self.batches_rows();
        let is_free = |input: &TensorSpec| {
            input.shape.iter().skip(usize::from(batches)).any(|dimension| *dimension < 0)
        };
        if self.signature.as_ref().is_some_and(|all| all.inputs.iter().any(is_free)) {
            self.machine.describe_key(key, self.keys.elements(key));
        }
    }

    /// Tells the machine what `replica` was measured at, shape by shape.
    pub(super) fn teach(&mut self, replica: u32, shapes: &[Shape]) {
        for shape in shapes {
            let known = self.keys.len();
            let Some(key) = self.keys.number(shape.tails.iter().map(Vec::as_slice)) else { return };
            if self.keys.len() > known {
                self.describe(key);
            }
            self.machine.teach(replica, key, &shape.measured);
        }
    }

    pub(super) fn hold(&mut self, pending: Pending) -> u64 {
        self.next += 1;
        let place = self.pending.vacant_key() as u64;
        assert!(place < 1 << PLACE_BITS, "the queue is bounded far below this");
        let id = self.next << PLACE_BITS | place;
        self.pending.insert(Pending { id, ..pending });
        id
    }

    /// Lets go of a request; none if it was answered before.
    pub(super) fn release(&mut self, id: u64) -> Option<Pending> {
        self.place(id).map(|place| self.pending.remove(place))
    }

    pub(super) fn place(&self, id: u64) -> Option<usize> {
        let place = (id & ((1 << PLACE_BITS) - 1)) as usize;
        self.pending.get(place).filter(|pending| pending.id == id).map(|_| place)
    }

    pub(super) fn enter(&mut self, arrival: Arrival, now: Moment) -> Result<(), Refusal> {
        self.machine.enter(arrival, now, &mut self.effects)
    }

    pub(super) fn cancel(&mut self, id: u64, key: u32, until: Until) {
        self.machine.cancel(id, key, until, &mut self.effects);
    }

    /// Has the machine drop requests that can only be late until they held `bytes`, and says how
    /// much they did.
    pub(super) fn drop_late(&mut self, bytes: u64) -> u64 {
        let mut dropped = 0;
        while dropped < bytes
            && let Some(id) = self.machine.drop_late(&mut self.effects)
        {
            let inputs = self.place(id).map(|place| &self.pending[place].inputs);
            let held = inputs.into_iter().flatten().map(|input| input.data.len() as u64);
            dropped += held.sum::<u64>();
        }
        dropped
    }

    pub(super) fn tick(&mut self, now: Moment) {
        self.machine.tick(now, &mut self.effects);
    }

    pub(super) fn lose(&mut self, replica: u32, now: Moment) {
        self.machine.lost(replica, now, &mut self.effects);
    }

    pub(super) fn finish(
        &mut self,
        replica: u32,
        batch: u64,
        ended: Ended,
        now: Moment,
    ) -> Option<Learned> {
        self.machine.finished(replica, batch, ended, now, &mut self.effects)
    }

    pub(super) fn step_up(&mut self, replica: u32, now: Moment) {
        self.machine.step_up(replica, now, &mut self.effects);
    }

    /// Passes the turn on in the process a batch came back from, if it is shared.
    pub(super) fn came_back(&mut self, replica: u32) {
        let process = self.links.get(&replica).map(|attached| &attached.process);
        if let Some(process) = process.filter(|process| process.is_shared()) {
            process.back(replica);
            self.passing.push(Passing::Back { process: Arc::clone(process) });
        }
    }

    /// Takes back a batch that `replica` has; none if it has no such batch.
    pub(super) fn take_back(&mut self, replica: u32, batch: u64) -> Option<Sent> {
        let sent = self.batches.remove(&batch)?;
        if sent.replica == replica {
            return Some(sent);
        }
        self.batches.insert(batch, sent);
        None
    }

    /// How `reply` ended `sent`. An answer that cannot be one is the replica's fault.
    pub(super) fn judge(&mut self, sent: &Sent, reply: &Reply) -> Ended {
        match &reply.outcome {
            Outcome::Done(answer) => {
                let attached = self.links.get(&sent.replica);
                match attached.map(|one| answer::check(answer, sent, &one.signature)) {
                    None | Some(Ok(())) => Ended::Done,
                    Some(Err(message)) => {
                        self.fault = Fault::of_replica(message);
                        Ended::ReplicaFault
                    }
                }
            }
            Outcome::Cancelled => Ended::Cancelled,
            Outcome::Failed(failure) => {
                let message = failure.message.clone();
                match failure.blame {
                    Blame::Request => {
                        // Of several nobody can say whose fault it is; they are tried apart.
                        self.fault = Fault { message, of_request: sent.requests.len() == 1 };
                        Ended::RequestFault
                    }
                    Blame::Replica => {
                        self.fault = Fault::of_replica(message);
                        Ended::ReplicaFault
                    }
                }
            }
        }
    }

    fn message(&self, batch: &Batch) -> (ToExecutor, Vec<Bytes>) {
        let members = || {
            batch.requests.iter().map(|id| {
                let place = self.place(*id).expect("a request in the machine is held here");
                &self.pending[place]
            })
        };
        let key = members().next().map_or(0, |pending| pending.key);
        let inputs = self.signature.as_ref().map_or(&[][..], |signature| &signature.inputs);
        let heads = inputs.iter().zip(self.keys.shape(key)).map(|(spec, tail)| TensorHead {
            name: spec.name.clone(),
            datatype: spec.datatype.name().to_owned(),
            tail: tail.clone(),
        });
        let parts = members().map(|pending| Part {
            rows: pending.rows,
            bytes: pending.inputs.iter().map(|input| input.data.len() as u32).collect(),
        });
        let message = protocol::Batch {
            id: batch.id,
            replica: self.links.get(&batch.replica).map_or(0, |attached| attached.replica),
            inputs: heads.collect(),
            requests: parts.collect(),
        };
        let inputs = members().flat_map(|pending| &pending.inputs);
        let body = inputs.map(|input| input.data.clone()).collect();
        (ToExecutor::Batch(message), body)
    }
}

/// What was the matter with the last batch that failed.
#[derive(Debug)]
pub(super) struct Fault {
    message: String,
    /// Whether the one request in it is to blame.
    of_request: bool,
}

impl Fault {
    pub(super) fn of_replica(message: String) -> Self {
        Self { message, of_request: false }
    }

    fn error(&self, model: &str) -> InferError {
        let (model, message) = (model.to_owned(), self.message.clone());
        if self.of_request {
            InferError::Unfit { model, message }
        } else {
            InferError::Replica { model, message }
        }
    }
}

impl Dispatcher {
    pub(super) fn carry_out(&self, state: &mut State, now: Moment) {
        let mut effects = std::mem::take(&mut state.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send(batch) => self.send(state, batch, now),
                Effect::Refuse { id, why } => {
                    let Some(place) = state.place(id) else { continue };
                    let error = self.refusal(why, state.pending[place].came, now);
                    self.end(state, id, Err(error), now);
                }
                Effect::Fail { id } => {
                    let error = state.fault.error(&self.name);
                    self.end(state, id, Err(error), now);
                }
                Effect::Retry { replica, batch, requests } => {
                    let (model, slice) = (&self.name, state.slice(replica));
                    let requests = requests.len();
                    tracing::info!(
                        model,
                        slice,
                        batch,
                        requests,
                        "a batch is overdue; its requests are tried elsewhere"
                    );
                }
                Effect::GiveUp { replica } => {
                    if let Some(attached) = state.links.get(&replica) {
                        attached.link.hang_up();
                    }
                }
                Effect::Cancel { batch, replica } => {
                    if let Some(attached) = state.links.get(&replica) {
                        let cancel = ToExecutor::Cancel { batch };
                        attached.link.send(&cancel, Vec::new()).expect("a cancel is a small frame");
                    }
                }
            }
        }
        // Handing the buffer back keeps its room for the next event.
        state.effects = effects;
        let wakes_at = state.machine.wakes_at();
        if wakes_at != Moment::NEVER {
            self.alarm.set(wakes_at, now);
        }
    }

    fn send(&self, state: &mut State, batch: Batch, now: Moment) {
        let (message, body) = state.message(&batch);
        self.metrics.sent(batch.rows, batch.closed_by);
        for id in &batch.requests {
            let Some(place) = state.place(*id) else { continue };
            let waited = now.since(state.pending[place].came.arrived);
            state.tally.waited(waited);
            self.metrics.dispatched(waited);
        }
        let span = self.trace_send(state, &batch, now);
        let Some(attached) = state.links.get(&batch.replica) else { return };
        let sent = attached.link.send(&message, body);
        if attached.process.is_shared() {
            attached.process.sent(batch.replica);
            let (process, replica) = (Arc::clone(&attached.process), batch.replica);
            state.passing.push(Passing::Sent { process, replica, ends: batch.ends });
        }
        if let Err(error) = sent {
            tracing::error!(model = self.name, %error, "a batch could not be framed");
        }
        let rows_of = |id: &u64| state.place(*id).map_or(0, |place| state.pending[place].rows);
        let rows = batch.requests.iter().map(rows_of).collect();
        let Batch { replica, requests, .. } = batch;
        state.batches.insert(batch.id, Sent { replica, at: now, requests, rows, span });
    }
}
