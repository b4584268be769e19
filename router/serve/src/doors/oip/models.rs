//! What is said about the server and its models, and the repository extension.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use oip::model::{
    IndexEntry, IndexRequest, ModelConfig, ModelMetadata, ModelState, ServerMetadata, Statistics,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    ServerState,
    backend::{Backend, Service},
    infer::no_replica,
    route::Question,
};
use crate::{
    body::{self, BodyLimits},
    error::InferError,
    layers::Call,
    model::{Availability, Served, UNLOADED},
    reply::{self, Reply},
};

/// The longest body a repository call has a use for.
const MAX_CALL_BYTES: u64 = 64 << 10;

/// What metadata says of a model on a GPU that does not exist.
const SIMULATED: &str = "simulated";

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const EXTENSIONS: &[&str] = &[
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
];

pub(super) fn server() -> Response<Reply> {
    let metadata = ServerMetadata {
        name: "sluice".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: EXTENSIONS.iter().map(|name| (*name).to_owned()).collect(),
    };
    reply::json(StatusCode::OK, &metadata)
}

/// `GET /`: where everything is, for people who meet the port first.
pub(super) fn root<B: Backend>(state: &ServerState<B>, headers: &HeaderMap) -> Response<Reply> {
    let settings = state.settings.load();
    let scheme = if state.tls.load().is_some() { "https" } else { "http" };
    // A port of the system's choice is known to whoever started the router.
    let admin = Some(settings.admin_listen).filter(|at| at.port() != 0);
    let admin = admin.map(|at| format!("{scheme}://{at}"));
    let accept = headers.get(http::header::ACCEPT).and_then(|value| value.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("json")) {
        let places = json!({
            "name": "sluice",
            "version": env!("CARGO_PKG_VERSION"),
            "server": "/v2",
            "models": "/v2/models",
            "metadata": "/v2/models/{model}",
            "infer": "/v2/models/{model}/infer",
            "ready": "/v2/health/ready",
            "admin": admin,
        });
        return reply::json(StatusCode::OK, &places);
    }
    let admin = match admin {
        Some(url) => format!("The console is at {url}/, metrics at {url}/metrics."),
        None => "The console and metrics are on the admin port.".to_owned(),
    };
    let text = format!(
        "sluice {}: inference, by the Open Inference Protocol over HTTP\n\n\
         GET  /v2/models                the models\n\
         GET  /v2/models/MODEL          a model's inputs and outputs\n\
         POST /v2/models/MODEL/infer    inference\n\
         GET  /v2/health/ready          readiness\n\n\
         {admin}\n",
        env!("CARGO_PKG_VERSION")
    );
    reply::of(StatusCode::OK, TEXT, Bytes::from(text).into())
}

/// `GET /v2/models`: names only, as KServe has it; the index has states.
pub(super) fn names<B: Backend>(state: &ServerState<B>) -> Response<Reply> {
    let models = state.backend.models();
    let names: Vec<&str> = models.iter().map(|model| model.name()).collect();
    reply::json(StatusCode::OK, &json!({ "models": names }))
}

/// `GET /v2/health/live`: that this process can answer, and nothing else.
pub(super) fn live() -> Response<Reply> {
    reply::json(StatusCode::OK, &json!({"live": true}))
}

pub fn ready<B: Backend>(state: &ServerState<B>) -> Response<Reply> {
    let problems = state.problems();
    if problems.is_empty() {
        return reply::json(StatusCode::OK, &json!({"live": true, "ready": true}));
    }
    let error = format!("not ready: {}", problems.join("; "));
    let reason = if state.drain.is_draining() { "draining" } else { "no_replica" };
    let body = json!({"error": error, "reason": reason, "live": true, "ready": false});
    reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
}

/// `GET /v2/models/{model}[/versions/{version}][/...]`.
pub(super) fn about(
    model: &impl Served,
    question: Question,
) -> Result<Response<Reply>, InferError> {
    let signature = || model.signature().ok_or_else(|| no_replica(model));
    Ok(match question {
        Question::Metadata => {
            let (version, platform) = (model.version(), model.platform());
            let mut metadata =
                ModelMetadata::new(model.name(), &version, &platform, &*signature()?);
            if model.is_simulated() {
                metadata.parameters.insert("source".to_owned(), SIMULATED.to_owned());
            }
            reply::json(StatusCode::OK, &metadata)
        }
        Question::Config => {
            let (platform, batch) = (model.platform(), model.max_batch());
            let mut config = ModelConfig::new(model.name(), &platform, batch, &*signature()?);
            config.response_cache.enable = model.remembers();
            let (slo, target) = model.objective();
            config.set_parameter("slo_ms", &(slo.as_nanos() as f64 / 1e6));
            config.set_parameter("slo_target", &target);
            if model.is_simulated() {
                config.set_parameter("source", &SIMULATED);
            }
            reply::json(StatusCode::OK, &config)
        }
        Question::Stats => {
            reply::json(StatusCode::OK, &Statistics { model_stats: vec![model.stats()] })
        }
        Question::Ready
            if matches!(model.availability(), Availability::Ready | Availability::Asleep) =>
        {
            reply::json(StatusCode::OK, &json!({"name": model.name(), "ready": true}))
        }
        Question::Ready => return Err(no_replica(model)),
    })
}

/// `GET /v2/models/stats`.
pub(super) fn all_stats<B: Backend>(state: &ServerState<B>) -> Response<Reply> {
    let model_stats = state.backend.models().iter().map(|model| model.stats()).collect();
    reply::json(StatusCode::OK, &Statistics { model_stats })
}

/// `POST /v2/repository/index`.
pub(super) async fn index<B: Backend>(
    state: &ServerState<B>,
    call: &mut Call,
) -> Result<Response<Reply>, InferError> {
    let wanted: IndexRequest = read(state, call).await?;
    let entries: Vec<IndexEntry> = state
        .backend
        .models()
        .iter()
        .map(entry)
        .filter(|entry| !wanted.ready || entry.state == ModelState::Ready)
        .collect();
    Ok(reply::json(StatusCode::OK, &entries))
}

fn entry<M: Served>(model: &Arc<M>) -> IndexEntry {
    let (state, reason) = match model.availability() {
        Availability::Ready => (ModelState::Ready, String::new()),
        Availability::Loading { why } => (ModelState::Loading, why),
        Availability::Unloaded => (ModelState::Unavailable, UNLOADED.to_owned()),
        Availability::Asleep => (ModelState::Ready, "asleep until it is asked for".to_owned()),
        Availability::Unavailable { reason } => (ModelState::Unavailable, reason),
    };
    let version = Some(model.version());
    IndexEntry { name: model.name().to_owned(), version, state, reason }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoadRequest {
    parameters: serde_json::Map<String, serde_json::Value>,
}

/// `POST /v2/repository/models/{model}/load` and `unload`: puts a configured model back into
/// service, or takes it out.
pub(super) async fn order<B: Backend>(
    state: &ServerState<B>,
    call: &mut Call,
    found: Result<Arc<B::Model>, InferError>,
    in_service: bool,
) -> Result<Response<Reply>, InferError> {
    let request: LoadRequest = read(state, call).await?;
    if in_service && !request.parameters.is_empty() {
        return Err(InferError::Unsupported { what: "changing a model's configuration on load" });
    }
    let model = found?;
    let order = if in_service {
        Service::Load
    } else {
        let access = state.access.load();
        let by = access.key_name(&call.head.headers).unwrap_or("admin").to_owned();
        Service::Unload { by }
    };
    let report = state.backend.order(&model, order).await?;
    Ok(reply::json(StatusCode::OK, &report))
}

/// The body as JSON, or the default if there is none.
async fn read<B: Backend, T: Default + for<'de> Deserialize<'de>>(
    state: &ServerState<B>,
    call: &mut Call,
) -> Result<T, InferError> {
    let limits = BodyLimits {
        arriving_bytes: MAX_CALL_BYTES,
        unpacked_bytes: MAX_CALL_BYTES,
        ..state.body_limits()
    };
    let Call { head, body, context } = call;
    let (body, _share) = body::read(&head.headers, body, limits, context.arrived).await?;
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(&body)
        .map_err(|error| InferError::BadBody { problem: error.to_string() })
}
