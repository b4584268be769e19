//! Traces: where a request's time went, sent to a collector by OTLP.
//!
//! A traced request has a span of its own and one for the time it waited; the batch it went with has
//! one that links to every traced request in it, with one below it for the executor's work. Spans are
//! written as OTLP's JSON and posted over plain HTTP, by hand: the format is a page long, and the
//! crates that speak it take longer to build than this program. Without `[tracing]` a request pays
//! for one look at an empty pointer.

mod context;
mod export;
mod otlp;
mod spans;

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use config::Tracing;
use http::HeaderMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout},
};

pub use self::{
    context::{Parent, TRACE_RESPONSE},
    spans::{BatchSpan, BatchSpanEnd, RequestSpan, Span, Traced},
};

/// Spans that may wait for the collector; more are dropped, and counted.
const QUEUE: usize = 8_192;
/// How long a stop waits for the collector.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// The program that runs, which collectors name spans by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub version: String,
    pub revision: String,
}

/// What became of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanTotals {
    pub exported: u64,
    /// Lost, because the collector was slow, gone or unwilling.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub struct SpanMetrics {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanMetrics {
    pub fn totals(&self) -> SpanTotals {
        SpanTotals {
            exported: self.exported.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}

/// Decides which requests are traced, names their spans and passes them on.
#[derive(Debug)]
pub struct Tracer {
    /// Of 2 to the 64th, how many trace ids are sampled.
    threshold: u64,
    ids: Ids,
    clock: WallClock,
    sender: mpsc::Sender<Span>,
    metrics: Arc<SpanMetrics>,
    exporter: Mutex<Option<Exporter>>,
}

#[derive(Debug)]
struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Tracer {
    /// Starts to export as `settings` say. Must be called inside a runtime.
    pub fn start(settings: &Tracing, build: &Build, metrics: Arc<SpanMetrics>) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let collector = export::Collector::new(settings, build, Arc::clone(&metrics));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(collector.run(receiver, stopped));
        Self {
            // A float's whole range, so that 1 is everyone.
            threshold: (settings.sample_ratio * u64::MAX as f64) as u64,
            ids: Ids::default(),
            clock: WallClock::start(),
            sender,
            metrics,
            exporter: Mutex::new(Some(Exporter { stop, task })),
        }
    }

    /// Sends what it has, for a while at most; what is recorded after that is dropped.
    pub async fn close(&self) {
        let exporter = self.exporter.lock().take();
        if let Some(Exporter { stop, task }) = exporter {
            // Nobody listens if it has ended, and one that hangs is left.
            let _ = stop.send(());
            let _ = timeout(LAST_EXPORT, task).await;
        }
    }

    /// A span for a request that arrived so, if it is to be traced.
    ///
    /// A caller that says whether it traces is followed; otherwise chance decides.
    pub fn begin(self: &Arc<Self>, headers: &HeaderMap, arrived: Instant) -> Option<RequestSpan> {
        let parent = Parent::of(headers);
        let sampled = match &parent {
            Some(parent) => parent.sampled,
            None => self.ids.next() <= self.threshold && self.threshold > 0,
        };
        sampled.then(|| RequestSpan::new(Arc::clone(self), parent, arrived))
    }

    fn record(&self, span: Span) {
        if self.sender.try_send(span).is_err() {
            self.metrics.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Numbers no two processes are likely to share.
#[derive(Debug)]
struct Ids {
    state: AtomicU64,
}

impl Default for Ids {
    fn default() -> Self {
        Self { state: AtomicU64::new(RandomState::new().hash_one(0)) }
    }
}

impl Ids {
    /// SplitMix64 over a counter.
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A span's id, which may not be zero.
    fn span(&self) -> u64 {
        self.next().max(1)
    }

    /// A trace's id, likewise.
    fn trace(&self) -> u128 {
        (u128::from(self.next()) << 64 | u128::from(self.next())).max(1)
    }
}

/// Turns instants into nanoseconds since 1970, which is what collectors read.
#[derive(Clone, Copy, Debug)]
struct WallClock {
    start: Instant,
    start_ns: u64,
}

impl WallClock {
    #[expect(clippy::disallowed_methods, reason = "spans of several programs meet in wall time")]
    fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        Self { start: Instant::now(), start_ns }
    }

    fn nanos(self, at: Instant) -> u64 {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match at.checked_duration_since(self.start) {
            Some(after) => self.start_ns.saturating_add(nanos(after)),
            None => self.start_ns.saturating_sub(nanos(self.start - at)),
        }
    }
}
