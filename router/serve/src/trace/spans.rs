//! The spans of a request and of a batch, each recorded when it ends.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use protocol::Facts;
use tokio::time::Instant;

use super::{Parent, Tracer};

#[derive(Debug)]
pub struct Span {
    pub(super) name: &'static str,
    pub(super) kind: SpanKind,
    pub(super) identity: Identity,
    pub(super) parent: Option<u64>,
    pub(super) state: Option<Arc<str>>,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) links: Vec<Identity>,
    pub(super) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) trace: u128,
    pub(super) span: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attribute {
    Text(String),
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u32> for Attribute {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

fn micros(micros: u64) -> Attribute {
    Attribute::Number(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// A traced request. Dropped before it is [answered](RequestSpan::answered), its client hung up.
#[derive(Debug)]
pub struct RequestSpan {
    traced: Arc<Traced>,
    arrived: Instant,
    model: String,
    ended: bool,
}

/// What the parts of a traced request share.
#[derive(Debug)]
pub struct Traced {
    tracer: Arc<Tracer>,
    identity: Identity,
    parent: Option<Parent>,
}

impl RequestSpan {
    pub(super) fn new(tracer: Arc<Tracer>, parent: Option<Parent>, arrived: Instant) -> Self {
        let trace = parent.as_ref().map_or_else(|| tracer.ids.trace(), |parent| parent.trace);
        let identity = Identity { trace, span: tracer.ids.span() };
        let traced = Arc::new(Traced { tracer, identity, parent });
        Self { traced, arrived, model: String::new(), ended: false }
    }

    pub fn asks(&mut self, model: &str) {
        self.model = model.to_owned();
    }

    /// What its parts need to know of it.
    pub fn traced(&self) -> Arc<Traced> {
        Arc::clone(&self.traced)
    }

    /// The header that tells the caller where to look.
    pub fn response(&self) -> Option<HeaderValue> {
        let Identity { trace, span } = self.traced.identity;
        HeaderValue::from_str(&format!("00-{trace:032x}-{span:016x}-01")).ok()
    }

    /// It was answered so; `reason` is why not, if it was refused or failed.
    pub fn answered(mut self, status: StatusCode, reason: Option<&'static str>) {
        let mut attributes = vec![("http.response.status_code", u32::from(status.as_u16()).into())];
        attributes.extend(reason.map(|reason| ("sluice.reason", reason.into())));
        let failed = status.is_server_error();
        let error = reason.filter(|_| failed).map(str::to_owned);
        self.end(attributes, error);
    }

    fn end(&mut self, more: Vec<(&'static str, Attribute)>, error: Option<String>) {
        self.ended = true;
        let Traced { tracer, identity, parent } = &*self.traced;
        let mut attributes = vec![("http.request.method", "POST".into())];
        attributes.push(("sluice.model", Attribute::Text(std::mem::take(&mut self.model))));
        attributes.extend(more);
        tracer.record(Span {
            name: "request",
            kind: SpanKind::Server,
            identity: *identity,
            parent: parent.as_ref().map(|parent| parent.span),
            state: parent.as_ref().and_then(|parent| parent.state.clone()),
            start_ns: tracer.clock.nanos(self.arrived),
            end_ns: tracer.clock.nanos(Instant::now()),
            attributes,
            links: Vec::new(),
            error,
        });
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Vec::new(), Some("abandoned".to_owned()));
        }
    }
}

/// A batch under way with traced requests in it. Dropped before it [ends](BatchSpan::end), its
/// replica was lost.
#[derive(Debug)]
pub struct BatchSpan {
    tracer: Arc<Tracer>,
    identity: Identity,
    parent: u64,
    links: Vec<Identity>,
    sent: Instant,
    attributes: Vec<(&'static str, Attribute)>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct BatchSpanEnd<'a> {
    pub at: Instant,
    pub facts: &'a Facts,
    pub error: Option<&'a str>,
}

impl BatchSpan {
    /// A batch sent now; none if no request in it is traced.
    ///
    /// It stands in the trace of the first of them and links to all.
    pub fn send(requests: &[Arc<Traced>], sent: Instant) -> Option<Self> {
        let first = requests.first()?;
        let tracer = Arc::clone(&first.tracer);
        let identity = Identity { trace: first.identity.trace, span: tracer.ids.span() };
        Some(Self {
            identity,
            parent: first.identity.span,
            links: requests.iter().map(|request| request.identity).collect(),
            sent,
            attributes: Vec::new(),
            ended: false,
            tracer,
        })
    }

    /// What it holds and where it went.
    pub fn describe(&mut self, rows: u32, requests: usize, closed_by: &str, slice: &str) {
        self.attributes = vec![
            ("sluice.batch.rows", rows.into()),
            ("sluice.batch.requests", u32::try_from(requests).unwrap_or(u32::MAX).into()),
            ("sluice.batch.closed_by", closed_by.into()),
            ("sluice.slice", slice.into()),
        ];
    }

    /// A request in it waited from `arrived`; its span links to the batch it waited for.
    pub fn waited(&self, request: &Traced, arrived: Instant) {
        let clock = request.tracer.clock;
        request.tracer.record(Span {
            name: "queue",
            kind: SpanKind::Internal,
            identity: Identity { trace: request.identity.trace, span: request.tracer.ids.span() },
            parent: Some(request.identity.span),
            state: None,
            start_ns: clock.nanos(arrived),
            end_ns: clock.nanos(self.sent),
            attributes: Vec::new(),
            links: vec![self.identity],
            error: None,
        });
    }

    pub fn end(mut self, end: BatchSpanEnd<'_>) {
        let BatchSpanEnd { at, facts, error } = end;
        let Facts { waited_us, input_us, compute_us, output_us } = *facts;
        let clock = self.tracer.clock;
        self.tracer.record(Span {
            name: "executor",
            kind: SpanKind::Internal,
            identity: Identity { trace: self.identity.trace, span: self.tracer.ids.span() },
            parent: Some(self.identity.span),
            state: None,
            // The executor keeps no clock of ours: its work is put where it ended, at the latest.
            start_ns: clock
                .nanos(at.checked_sub(facts.worked()).unwrap_or(self.sent).max(self.sent)),
            end_ns: clock.nanos(at),
            attributes: vec![
                ("sluice.executor.waited_us", micros(waited_us)),
                ("sluice.executor.input_us", micros(input_us)),
                ("sluice.executor.compute_us", micros(compute_us)),
                ("sluice.executor.output_us", micros(output_us)),
            ],
            links: Vec::new(),
            error: None,
        });
        self.finish(at, error.map(str::to_owned));
    }

    fn finish(&mut self, at: Instant, error: Option<String>) {
        self.ended = true;
        self.tracer.record(Span {
            name: "batch",
            kind: SpanKind::Client,
            identity: self.identity,
            parent: Some(self.parent),
            state: None,
            start_ns: self.tracer.clock.nanos(self.sent),
            end_ns: self.tracer.clock.nanos(at),
            attributes: std::mem::take(&mut self.attributes),
            links: std::mem::take(&mut self.links),
            error,
        });
    }
}

impl Drop for BatchSpan {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Instant::now(), Some("the replica was lost".to_owned()));
        }
    }
}
