//! The admin listener: health, metrics, and what an operator may see and do.
//!
//! It has its own port and its own connections, so that a front door that is full or closing can
//! still be looked at. Health and metrics are open; everything under `/admin` needs the admin scope.

mod views;

use std::{fmt, future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    config::Scope,
    drain::Phase,
    error::InferError,
    http::{
        Call, ServerState,
        backend::Backend,
        listen::{self, Answer, Limits},
        reply::{self, Reply},
        unknown,
    },
};

/// Connections the admin listener keeps, whatever the front door may.
const MAX_CONNECTIONS: u32 = 256;
/// How long the listener waits for its last replies once told to stop.
const LAST_REPLIES: Duration = Duration::from_secs(1);

const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const READ: &[&str] = &["GET", "HEAD"];
const WRITE: &[&str] = &["POST"];

/// A reload under way.
pub type Reloading = Pin<Box<dyn Future<Output = Result<Value, ReloadError>> + Send>>;

/// What the listener asks of the program around it.
pub struct Hooks {
    /// Every metric in Prometheus' text format.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Reads the configuration again and swaps it whole or not at all; the value says what changed.
    pub reload: Box<dyn Fn() -> Reloading + Send + Sync>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// Why a reload left everything as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The new configuration has problems (422).
    #[error("the new configuration has {} problems; the old one stays", .problems.len())]
    Invalid {
        /// Each as `file:line:column: message`.
        problems: Vec<String>,
    },
    /// It cannot be taken now, or not without a restart (409).
    #[error("{why}; the old configuration stays")]
    Conflict {
        /// What stands in the way.
        why: String,
    },
}

/// The admin listener's state.
#[derive(Debug)]
pub struct Admin<B> {
    shared: Arc<ServerState<B>>,
    hooks: Hooks,
}

impl<B: Backend> Admin<B> {
    /// The admin side of the router whose front door has `shared`.
    pub fn new(shared: Arc<ServerState<B>>, hooks: Hooks) -> Self {
        Self { shared, hooks }
    }

    async fn route(&self, call: &Call<'_>) -> Result<Response<Reply>, InferError> {
        let path = call.head.uri.path();
        let query = call.head.uri.query().unwrap_or("");
        let allow = |allowed| check_method(&call.head.method, allowed);
        match path {
            "/livez" | "/v2/health/live" => allow(READ).map(|()| text(StatusCode::OK, "ok\n")),
            "/readyz" | "/v2/health/ready" => {
                allow(READ)?;
                let verbose =
                    query.split('&').any(|part| part.split('=').next() == Some("verbose"));
                Ok(views::ready(&self.shared, verbose))
            }
            "/metrics" => {
                allow(READ)?;
                let metrics = Bytes::from((self.hooks.metrics)());
                Ok(reply::of(StatusCode::OK, METRICS, metrics.into()))
            }
            "/" => Err(InferError::Unsupported { what: "the console" }),
            _ => match path.strip_prefix("/admin/v1/") {
                Some(name) => {
                    self.shared.access.load().require(
                        Scope::Admin,
                        &call.head.headers,
                        call.peer,
                    )?;
                    self.admin(name, call).await
                }
                None => Err(unknown(path)),
            },
        }
    }

    async fn admin(&self, name: &str, call: &Call<'_>) -> Result<Response<Reply>, InferError> {
        let read = |view: &dyn Fn() -> Value| {
            check_method(&call.head.method, READ)?;
            Ok(reply::json(StatusCode::OK, &view()))
        };
        let backend = &self.shared.backend;
        match name {
            "state" => read(&|| backend.state()),
            "config" => read(&|| backend.config()),
            "workers" => read(&|| backend.workers()),
            "models" => read(&|| views::models(backend)),
            "tenants" => {
                read(&|| json!({"tenants": self.shared.access.load().tenants(call.arrived)}))
            }
            "reload" => {
                check_method(&call.head.method, WRITE)?;
                Ok(reloaded((self.hooks.reload)().await))
            }
            "drain" => {
                check_method(&call.head.method, WRITE)?;
                Ok(self.drain())
            }
            "plan" => Err(InferError::Unsupported { what: "a placement plan" }),
            _ if name == "jobs" || name.starts_with("jobs/") => {
                Err(InferError::Unsupported { what: "lending to training jobs" })
            }
            _ => Err(unknown(call.head.uri.path())),
        }
    }

    fn drain(&self) -> Response<Reply> {
        let settings = self.shared.settings.load();
        tracing::info!("drain asked for over HTTP");
        self.shared.drain.ask();
        let body = json!({
            "draining": true,
            "delay_s": settings.drain_delay.as_secs_f64(),
            "timeout_s": settings.drain_timeout.as_secs_f64(),
        });
        reply::json(StatusCode::ACCEPTED, &body)
    }
}

impl<B: Backend> Answer for Admin<B> {
    fn limits(&self) -> Limits {
        let limits = Limits::from(&**self.shared.settings.load());
        Limits { max_connections: MAX_CONNECTIONS, ..limits }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<Reply> {
        let arrived = Instant::now();
        let (head, body) = request.into_parts();
        let call = Call { head: &head, peer, arrived };
        let answered = self.route(&call).await;
        self.shared.finish(&call, body, answered)
    }
}

/// Serves administration on `tcp` until `stop`, draining or not.
pub async fn serve<B: Backend>(tcp: TcpListener, admin: Arc<Admin<B>>, stop: impl Future) {
    let (phase, watch) = watch::channel(Phase::Serving);
    let mut serving = std::pin::pin!(listen::serve(tcp, admin, watch));
    tokio::select! {
        () = serving.as_mut() => return,
        _ = stop => {}
    }
    phase.send_replace(Phase::Closing);
    if timeout(LAST_REPLIES, serving).await.is_err() {
        phase.send_replace(Phase::Cut);
    }
}

fn check_method(method: &Method, allowed: &'static [&'static str]) -> Result<(), InferError> {
    if allowed.contains(&method.as_str()) {
        Ok(())
    } else {
        Err(InferError::WrongMethod { method: method.clone(), allowed })
    }
}

fn reloaded(result: Result<Value, ReloadError>) -> Response<Reply> {
    match result {
        Ok(report) => reply::json(StatusCode::OK, &report),
        Err(error) => {
            let message = error.to_string();
            let (status, body) = match error {
                ReloadError::Invalid { problems } => (
                    StatusCode::UNPROCESSABLE_ENTITY,
                    json!({"error": message, "reason": "invalid", "problems": problems}),
                ),
                ReloadError::Conflict { .. } => {
                    (StatusCode::CONFLICT, json!({"error": message, "reason": "conflict"}))
                }
            };
            reply::json(status, &body)
        }
    }
}

fn text(status: StatusCode, words: &'static str) -> Response<Reply> {
    reply::of(status, TEXT, Bytes::from_static(words.as_bytes()).into())
}
