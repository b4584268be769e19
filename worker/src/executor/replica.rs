//! One loaded model.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use protocol::{Answer, Batch, Blame, Facts, Outcome, Part};

use super::link::failed;
use crate::{
    clock,
    engine::{Done, Engine, Lost, Pace, RunError},
    signature::{Refusal, Signature},
};

pub(super) struct Ready {
    pub(super) signature: Signature,
    pub(super) max_batch: u32,
}

pub(super) struct Replica {
    id: u32,
    ready: RwLock<Option<Ready>>,
    model: Mutex<Model>,
    /// Of an engine that only pretends to work.
    pace: OnceLock<Pace>,
    closed: AtomicBool,
    /// Microseconds that the last batch took.
    last_us: AtomicU64,
}

/// No batch has been run.
const NEVER: u64 = u64::MAX;

impl Replica {
    pub(super) fn new(id: u32) -> Self {
        let (ready, model, pace) = (RwLock::default(), Mutex::default(), OnceLock::new());
        let (closed, last_us) = (AtomicBool::new(false), AtomicU64::new(NEVER));
        Self { id, ready, model, pace, closed, last_us }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn open(&self, engine: Box<dyn Engine>, ready: Ready) {
        // A replica is opened by its own thread, once.
        if let Some(pace) = engine.pace() {
            let _ = self.pace.set(pace);
        }
        *self.model.lock() = Model::Here(engine);
        *self.ready.write() = Some(ready);
    }

    /// Slows its engine down, if that only pretends to work.
    pub(super) fn pace(&self, factor: f64) {
        if let Some(pace) = self.pace.get() {
            pace.slow_down(factor);
        }
    }

    pub(super) fn retire(&self) {
        *self.model.lock() = Model::Unloaded;
    }

    /// Whether it takes no more batches. Written by the lane alone, under its lock.
    pub(super) fn closed(&self) -> &AtomicBool {
        &self.closed
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether it can take `batch`, queues aside; none if it is not ready.
    pub(super) fn check(&self, batch: &Batch) -> Option<Result<(), Refusal>> {
        self.ready.read().as_ref().map(|ready| ready.signature.check(batch, ready.max_batch))
    }

    pub(super) fn run(&self, batch: &Batch, body: &Bytes) -> (Outcome, Facts, Vec<Bytes>) {
        let mut model = self.model.lock();
        let began = clock::now();
        let result = match &mut *model {
            Model::Here(engine) => {
                let run = AssertUnwindSafe(|| engine.run(batch, body));
                catch_unwind(run)
                    .unwrap_or_else(|panic| Err(RunError::Model { reason: said(&*panic) }))
            }
            Model::Lost(lost) => Err(RunError::Lost(lost.clone())),
            Model::Unloaded => Err(RunError::Model { reason: "it is unloaded".to_owned() }),
        };
        if let Err(RunError::Lost(lost)) = &result {
            self.lose(&mut model, lost);
        }
        self.note_time(clock::now() - began);
        ending(batch, result)
    }

    pub(super) fn note_time(&self, took: Duration) {
        self.last_us.store(clock::micros(took), Ordering::Relaxed);
    }

    pub(super) fn last_took(&self) -> Option<Duration> {
        let micros = self.last_us.load(Ordering::Relaxed);
        (micros != NEVER).then(|| Duration::from_micros(micros))
    }

    pub(super) fn look(&self) -> Result<(), Lost> {
        let mut model = self.model.lock();
        let looked = match &mut *model {
            Model::Here(engine) => engine.look(),
            Model::Lost(lost) => Err(lost.clone()),
            Model::Unloaded => Ok(()),
        };
        looked.inspect_err(|lost| self.lose(&mut model, lost))
    }

    /// Whether it was opened and its model is not known to be gone. Waits for no batch.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.read().is_some()
    }

    /// Takes no more batches; those it has fail for want of a model.
    fn lose(&self, model: &mut Model, lost: &Lost) {
        *self.ready.write() = None;
        *model = Model::Lost(lost.clone());
    }
}

#[derive(Default)]
enum Model {
    #[default]
    Unloaded,
    Here(Box<dyn Engine>),
    Lost(Lost),
}

/// What a panic said, if it said anything.
pub(super) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}

fn ending(batch: &Batch, result: Result<Done, RunError>) -> (Outcome, Facts, Vec<Bytes>) {
    match result {
        Ok(done) => {
            let facts = Facts {
                waited_us: 0,
                input_us: clock::micros(done.input),
                compute_us: clock::micros(done.compute),
                output_us: clock::micros(done.output),
            };
            let (answer, body) = answer(batch, done);
            (Outcome::Done(answer), facts, body)
        }
        Err(error) => {
            let blame = match &error {
                RunError::Refused(_) | RunError::Inputs { .. } => Blame::Request,
                RunError::Model { .. } | RunError::Lost(_) => Blame::Replica,
            };
            (failed(blame, &error), Facts::default(), Vec::new())
        }
    }
}

fn answer(batch: &Batch, done: Done) -> (Answer, Vec<Bytes>) {
    let part = |(index, part): (usize, &Part)| Part {
        rows: part.rows,
        bytes: done.outputs.iter().map(|output| output.lengths[index]).collect(),
    };
    let requests = batch.requests.iter().enumerate().map(part).collect();
    let (mut heads, mut body) = (Vec::new(), Vec::new());
    for output in done.outputs {
        heads.push(output.head);
        body.extend(output.data);
    }
    (Answer { outputs: heads, requests }, body)
}
