//! The connection to one replica.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use oip::{Signature, TensorSpec};
use protocol::{ReadyReplica, Reply, Shapes, TensorShape, WarmPoint, WarmShape};
use tls::ClientConfig;
use tokio::{
    sync::{Notify, watch},
    time::{Interval, MissedTickBehavior, interval, sleep},
};

use crate::{
    dispatch::{Process, Replica, Shape},
    model::Model,
    transport::{self, Hello, Link, LinkError, Received},
};

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(1);
/// The same for an executor that was given up: each try may cost it a batch.
const RETRY_HUNG_LONGEST: Duration = Duration::from_secs(60);

/// How often an executor is asked whether it is there. One that computes says so too.
const PING_EVERY: Duration = Duration::from_millis(200);
/// How many times in a row it may not answer. Turns are counted rather than time, so that a router
/// that was paused itself blames nobody.
const MISSED: u32 = 4;
/// The same where those who wait have nowhere else to go.
const MISSED_ALONE: u32 = 14;
/// The same while a batch that is large for the way there is being written, behind which pings wait.
const MISSED_WRITING: u32 = 50;

/// How a connection is, and what it is asked to do.
#[derive(Debug, Default)]
pub(super) struct Flags {
    pub(super) connected: AtomicBool,
    /// It is in rotation.
    pub(super) attached: AtomicBool,
    /// The replica is given no more, and goes when it has none.
    pub(super) draining: AtomicBool,
    admitted: AtomicBool,
    admission: Notify,
}

impl Flags {
    pub(super) fn admit(&self) {
        if !self.admitted.swap(true, Ordering::AcqRel) {
            self.admission.notify_one();
        }
    }

    async fn admission(&self) {
        while !self.admitted.load(Ordering::Acquire) {
            self.admission.notified().await;
        }
    }
}

pub(super) struct Serving {
    pub(super) number: u32,
    pub(super) replica: u32,
    pub(super) slice: String,
    pub(super) profile: String,
    pub(super) digest: u64,
    pub(super) version: String,
    pub(super) model: Arc<Model>,
    pub(super) hello: Hello,
    /// By whom executors that speak TLS are known, as of now.
    pub(super) authority: Arc<ArcSwapOption<ClientConfig>>,
    pub(super) process: Arc<Process>,
    pub(super) ready: ReadyReplica,
    /// What to begin with; a small one, if nothing is known.
    pub(super) batch_limit: Option<u32>,
    pub(super) flags: Arc<Flags>,
    pub(super) changed: Arc<watch::Sender<()>>,
}

impl Serving {
    pub(super) async fn keep(self) {
        let mut pause = RETRY_FIRST;
        loop {
            let ended = self.serve(&mut pause).await;
            self.flags.connected.store(false, Ordering::Release);
            self.flags.attached.store(false, Ordering::Release);
            self.model.dispatcher().detach(self.number);
            self.changed.send_replace(());
            let (model, slice) = (&self.model.config().name, &self.slice);
            tracing::warn!(model, slice, cause = %chain(&ended), "a replica's connection ended");
            if let LinkError::GivenUp = ended {
                pause = (pause * 2).clamp(RETRY_LONGEST, RETRY_HUNG_LONGEST);
                sleep(pause).await;
            } else {
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_LONGEST.max(pause));
            }
        }
    }

    async fn serve(&self, pause: &mut Duration) -> LinkError {
        let (link, mut received) =
            match transport::connect(&self.hello, self.authority.load_full()).await {
                Ok(connected) => connected,
                Err(error) => return error,
            };
        self.flags.connected.store(true, Ordering::Release);
        self.changed.send_replace(());
        tokio::select! {
            () = self.flags.admission() => {}
            // It was asked nothing, so whatever it says is the end; no reply can be lost here.
            said = received.next() => match said {
                Ok(_) => return protocol::FrameError::OutOfTurn.into(),
                Err(error) => return error,
            },
        }
        let (pulse, mut ticks) = (link.clone(), interval(PING_EVERY));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let replica = Replica {
            id: self.number,
            replica: self.replica,
            slice: self.slice.clone(),
            profile: self.profile.clone(),
            link,
            process: Arc::clone(&self.process),
            measured: measured(&self.ready.warmup),
            shapes: shapes(&self.ready),
            signature: Arc::new(signature(&self.ready.signature)),
        };
        self.model.came(self.digest, &self.version);
        self.model.attach(replica, &self.ready.platform, self.ready.max_batch);
        if let Some(rows) = self.batch_limit {
            self.model.dispatcher().resume_limit(self.number, rows);
        }
        self.flags.attached.store(true, Ordering::Release);
        if self.flags.draining.load(Ordering::Acquire) {
            self.model.dispatcher().drain(self.number);
        }
        self.changed.send_replace(());
        tracing::info!(model = self.model.config().name, slice = self.slice, "replica in rotation");
        let dispatcher = self.model.dispatcher();
        loop {
            match self.next(&mut received, &pulse, &mut ticks).await {
                Ok((reply, body)) => {
                    if let Err(error) = dispatcher.returned(self.number, &reply, &body) {
                        return error;
                    }
                }
                Err(error) => return error,
            }
            // Only an answer shows that it is worth asking; to listen is easy.
            *pause = RETRY_FIRST;
            let draining = self.flags.draining.load(Ordering::Acquire);
            if draining && !dispatcher.is_busy(self.number) {
                self.changed.send_replace(());
            }
        }
    }

    /// The next reply, of an executor that is there.
    async fn next(
        &self,
        received: &mut Received,
        link: &Link,
        ticks: &mut Interval,
    ) -> Result<(Reply, Bytes), LinkError> {
        let mut reply = pin!(received.next());
        let (mut heard, mut missed) = (link.received(), 0);
        loop {
            tokio::select! {
                biased;
                reply = &mut reply => return reply,
                _ = ticks.tick() => {}
            }
            let now = link.received();
            missed = if now == heard { missed + 1 } else { 0 };
            heard = now;
            let most = if link.is_writing() {
                MISSED_WRITING
            } else if self.model.dispatcher().replicas() > 1 {
                MISSED
            } else {
                MISSED_ALONE
            };
            if missed > most {
                return Err(LinkError::Silent(PING_EVERY * missed));
            }
            link.ping();
        }
    }
}

/// What was measured of each shape that was warmed, of those that fit the signature.
fn shapes(ready: &ReadyReplica) -> Vec<Shape> {
    let of = |warmed: &WarmShape| {
        let tail = |input: &TensorShape| warmed.inputs.get(&input.name).cloned();
        let tails: Option<Vec<Vec<u64>>> = ready.signature.inputs.iter().map(tail).collect();
        let point = |(rows, micros): &(u32, u64)| (*rows, Duration::from_micros(*micros));
        let measured: Vec<_> = warmed.points.iter().map(point).collect();
        (!measured.is_empty()).then_some(Shape { tails: tails?, measured })
    };
    ready.shapes.iter().filter_map(of).collect()
}

/// The middle time of each warmed size; none if it was not warmed.
fn measured(warmup: &[WarmPoint]) -> Vec<(u32, Duration)> {
    let middle = |point: &WarmPoint| {
        let mut times = point.compute_us.clone();
        times.sort_unstable();
        times.get(times.len() / 2).map(|micros| (point.batch, Duration::from_micros(*micros)))
    };
    warmup.iter().filter_map(middle).collect()
}

fn signature(shapes: &Shapes) -> Signature {
    let specs = |tensors: &[TensorShape]| {
        tensors
            .iter()
            .filter_map(|tensor| {
                let datatype = tensor.datatype.parse().ok()?;
                Some(TensorSpec {
                    name: tensor.name.clone(),
                    datatype,
                    shape: tensor.shape.clone(),
                })
            })
            .collect()
    };
    Signature { inputs: specs(&shapes.inputs), outputs: specs(&shapes.outputs) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
