//! Sending spans to the collector, some at a time.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use config::Tracing;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{Build, Span, SpanMetrics, otlp};

/// Spans in one request, at most, and how long they wait for company.
const MOST: usize = 512;
const WAIT: Duration = Duration::from_secs(1);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A collector that is away is reported so often, at most.
const COMPLAIN: Duration = Duration::from_secs(60);
const MAX_REPLY_BYTES: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("no connection")]
    Connect(#[from] io::Error),
    #[error("the connection broke")]
    Broken(#[from] hyper::Error),
    #[error("the address cannot be asked")]
    Unaskable(#[from] http::Error),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("no answer within {PATIENCE:?}")]
    Slow,
}

#[derive(Debug)]
pub(super) struct Collector {
    authority: String,
    path: String,
    build: Build,
    metrics: Arc<SpanMetrics>,
}

impl Collector {
    pub(super) fn new(settings: &Tracing, build: &Build, metrics: Arc<SpanMetrics>) -> Self {
        let (authority, path) = (settings.authority.clone(), settings.path.clone());
        Self { authority, path, build: build.clone(), metrics }
    }

    /// Sends what comes until it is stopped or nobody can send more, and then what is left.
    pub(super) async fn run(
        self,
        mut spans: mpsc::Receiver<Span>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut quiet_until = Instant::now();
        while let Some(batch) = gather(&mut spans, &mut stopped).await {
            let count = batch.len() as u64;
            let sent = timeout(PATIENCE, self.post(otlp::body(&batch, &self.build))).await;
            match sent.unwrap_or(Err(ExportError::Slow)) {
                Ok(()) => self.metrics.exported.fetch_add(count, Ordering::Relaxed),
                Err(error) => {
                    if quiet_until <= Instant::now() {
                        quiet_until = Instant::now() + COMPLAIN;
                        let collector = &self.authority;
                        tracing::warn!(collector, %error, "traces could not be exported");
                    }
                    self.metrics.dropped.fetch_add(count, Ordering::Relaxed)
                }
            };
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), ExportError> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(body)))?;
        let asked = async {
            let reply = sender.send_request(request).await?;
            let status = reply.status();
            // Read to its end, so that the collector's words do not meet a closed door.
            let _ = Limited::new(reply.into_body(), MAX_REPLY_BYTES).collect().await;
            if status.is_success() { Ok(()) } else { Err(ExportError::Refused(status)) }
        };
        tokio::pin!(asked, connection);
        tokio::select! {
            answered = &mut asked => answered,
            ended = &mut connection => {
                ended?;
                asked.await
            }
        }
    }
}

/// The next spans to send together; none once no more can come.
async fn gather(
    spans: &mut mpsc::Receiver<Span>,
    stopped: &mut oneshot::Receiver<()>,
) -> Option<Vec<Span>> {
    let mut batch = Vec::new();
    let mut until = None;
    while batch.len() < MOST {
        tokio::select! {
            span = spans.recv() => {
                let Some(span) = span else { break };
                batch.push(span);
                until.get_or_insert_with(|| Instant::now() + WAIT);
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
            // One that is gone without a word is replaced, and its spans are still good.
            _ = &mut *stopped, if !spans.is_closed() => spans.close(),
        }
    }
    (!batch.is_empty()).then_some(batch)
}
