//! The inference endpoint: from a body to a request, from an answer to a reply.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use config::Class;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use oip::{Encoded, Memory, Parameters, Signature, Value};
use tokio::task::spawn_blocking;

use super::{ServerState, backend::Backend};
use crate::{
    body::{
        self,
        buffer_budget::Share,
        coding::{Coding, MIN_PACKED_BYTES},
    },
    error::InferError,
    layers::Call,
    listener::Peer,
    model::{Availability, Served, UNLOADED},
    reply::{self, JSON, OCTETS, Reply},
    request::Request,
};

/// The length of the JSON part of a body, both ways.
const HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// The caller's deadline, for those that cannot edit the body.
const TIMEOUT_MS: HeaderName = HeaderName::from_static("sluice-timeout-ms");
/// The caller's class, likewise.
const CLASS: HeaderName = HeaderName::from_static("sluice-class");

/// Work on a body larger than this would hold up the other connections of its thread.
const INLINE_BYTES: usize = 256 << 10;
/// The same for compressing, which is slower.
const INLINE_PACKED_BYTES: usize = 32 << 10;
/// When to ask again for a model that has said nothing of itself yet.
const UNKNOWN_WAIT: Duration = Duration::from_secs(1);

/// Answers `POST /v2/models/{model}[/versions/{version}]/infer` of a client that may ask.
pub(super) async fn infer<B: Backend>(
    state: &ServerState<B>,
    call: &mut Call,
    found: Result<Arc<B::Model>, InferError>,
) -> Result<Response<Reply>, InferError> {
    let model = found.inspect_err(|error| state.backend.refused(None, error))?;
    let underway = call.context.access.metrics(call.context.caller).begin();
    let answered = answer(state, call, &*model).await;
    underway.told(answered.as_ref().err());
    answered
}

async fn answer<B: Backend>(
    state: &ServerState<B>,
    call: &mut Call,
    model: &B::Model,
) -> Result<Response<Reply>, InferError> {
    let prepared = prepare(state, call, model).await;
    let (decoded, request, _share) =
        prepared.inspect_err(|error| state.backend.refused(Some(model), error))?;
    let answer = model.infer(request).await?;
    if let (Some(note), Some(spent)) = (&call.context.note, answer.spent) {
        note.spent(spent);
    }
    let response = oip::Response {
        model_name: model.name().to_owned(),
        model_version: model.version(),
        id: decoded.id.clone(),
        parameters: Parameters::default(),
        outputs: answer.outputs,
    };
    let encoded = encode(response, decoded).await?;
    write(encoded, Coding::of_reply(&call.head.headers)).await
}

/// Reads and checks the request; nothing that fails here has reached a queue.
async fn prepare<B: Backend>(
    state: &ServerState<B>,
    call: &mut Call,
    model: &B::Model,
) -> Result<(oip::Request, Request, Share), InferError> {
    let Call { head, body, context } = call;
    let headers = &head.headers;
    let signature = known_signature(model)?;
    let header_length = header_length(headers)?;
    let (body, share) = body::read(headers, body, state.body_limits(), context.arrived).await?;
    let mut decoded = decode(&context.peer, body, header_length, &signature).await?;
    let rows = signature.check(&mut decoded, model.max_batch())?;
    context.access.charge_rows(context.caller, rows);
    let request = Request {
        rows,
        arrived: context.arrived,
        timeout: timeout(headers, &decoded.parameters)?,
        class: class(headers, &decoded.parameters)?.unwrap_or_else(|| model.class()),
        tenant: context.caller.tenant,
        inputs: std::mem::take(&mut decoded.inputs),
        traced: context.traced.take(),
    };
    Ok((decoded, request, share))
}

fn known_signature(model: &impl Served) -> Result<Arc<Signature>, InferError> {
    let out_of_service =
        matches!(model.availability(), Availability::Unavailable { .. } | Availability::Unloaded);
    model.signature().filter(|_| !out_of_service).ok_or_else(|| no_replica(model))
}

/// Why a model that has no signature, or is not ready, cannot be asked.
pub(super) fn no_replica(model: &impl Served) -> InferError {
    let name = model.name().to_owned();
    match model.availability() {
        Availability::Ready | Availability::Loading { .. } | Availability::Asleep => {
            let why = model.absence().to_string();
            InferError::NoReplica { model: name, why, retry_after: UNKNOWN_WAIT }
        }
        Availability::Unloaded => InferError::Unavailable { model: name, why: UNLOADED.to_owned() },
        Availability::Unavailable { reason } => {
            InferError::Unavailable { model: name, why: reason }
        }
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, InferError> {
    whole(headers, HEADER_LENGTH, "inference-header-content-length")
}

/// A header that holds a whole number.
fn whole(
    headers: &HeaderMap,
    header: HeaderName,
    name: &'static str,
) -> Result<Option<usize>, InferError> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    let text = value.to_str().unwrap_or("?");
    match text.trim().parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => {
            let found = text[..text.floor_char_boundary(80)].to_owned();
            Err(InferError::BadValue { name, found, wanted: "a whole number" })
        }
    }
}

async fn decode(
    peer: &Peer,
    body: Bytes,
    header_length: Option<usize>,
    signature: &Signature,
) -> Result<oip::Request, InferError> {
    match header_length {
        Some(0) => Ok(signature.raw_request(body)?),
        Some(length) if length <= Memory::MOST_BYTES => {
            Ok(peer.said.lock().decode(body, header_length)?)
        }
        length if length.unwrap_or(body.len()) <= INLINE_BYTES => {
            Ok(oip::Request::decode(body, header_length)?)
        }
        Some(_) | None => {
            match spawn_blocking(move || oip::Request::decode(body, header_length)).await {
                Ok(decoded) => Ok(decoded?),
                Err(_) => Err(InferError::Internal { what: "decoding the request" }),
            }
        }
    }
}

/// The shorter of the caller's limits: `timeout` in microseconds, `sluice-timeout-ms`; 0 is none.
fn timeout(headers: &HeaderMap, parameters: &Parameters) -> Result<Option<Duration>, InferError> {
    let in_header = whole(headers, TIMEOUT_MS, "sluice-timeout-ms")?
        .map(|millis| Duration::from_millis(millis as u64));
    let in_body = parameter(parameters, "timeout", "a whole number of microseconds, 0 or more")?
        .map(Duration::from_micros);
    Ok([in_header, in_body].into_iter().flatten().filter(|limit| !limit.is_zero()).min())
}

/// The class named by `sluice-class`, or else meant by `priority`: 1 is the highest and
/// interactive, anything lower is batch, and 0 is the model's own.
fn class(headers: &HeaderMap, parameters: &Parameters) -> Result<Option<Class>, InferError> {
    let priority = parameter(parameters, "priority", "a whole number, 0 or more")?;
    if let Some(value) = headers.get(CLASS) {
        return match value.as_bytes() {
            b"interactive" => Ok(Some(Class::Interactive)),
            b"batch" => Ok(Some(Class::Batch)),
            other => Err(InferError::BadValue {
                name: "sluice-class",
                found: String::from_utf8_lossy(&other[..other.len().min(80)]).into_owned(),
                wanted: "interactive or batch",
            }),
        };
    }
    Ok(match priority {
        None | Some(0) => None,
        Some(1) => Some(Class::Interactive),
        Some(_) => Some(Class::Batch),
    })
}

/// A parameter that holds a whole number; a number in a string will do, as some clients send it.
fn parameter(
    parameters: &Parameters,
    name: &'static str,
    wanted: &'static str,
) -> Result<Option<u64>, InferError> {
    let Some(value) = parameters.get(name) else { return Ok(None) };
    let number = match value {
        Value::String(text) => text.parse().ok(),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Float(_) => {
            parameters.get_u64(name)
        }
    };
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(InferError::BadValue { name, found: value.to_string(), wanted }),
    }
}

async fn encode(response: oip::Response, request: oip::Request) -> Result<Encoded, InferError> {
    let in_json = response.outputs.iter().filter(|output| !request.wants_binary(&output.name));
    let bytes: usize = in_json.map(|output| output.data.len()).sum();
    if bytes <= INLINE_BYTES {
        return Ok(response.encode(&request)?);
    }
    match spawn_blocking(move || response.encode(&request)).await {
        Ok(encoded) => Ok(encoded?),
        Err(_) => Err(InferError::Internal { what: "encoding the reply" }),
    }
}

async fn write(encoded: Encoded, coding: Option<Coding>) -> Result<Response<Reply>, InferError> {
    let length = encoded.content_length();
    let header_length = encoded.header_length;
    let kind = if header_length.is_some() { OCTETS } else { JSON };
    let coding = coding.filter(|_| length >= MIN_PACKED_BYTES);
    let reply = match coding {
        None => Reply::of_parts(encoded.parts),
        Some(coding) => {
            let packed = if length <= INLINE_PACKED_BYTES {
                coding.pack(&encoded.parts).ok()
            } else {
                let pack = spawn_blocking(move || coding.pack(&encoded.parts));
                pack.await.ok().and_then(Result::ok)
            };
            packed.ok_or(InferError::Internal { what: "packing the reply" })?.into()
        }
    };
    let mut response = reply::of(StatusCode::OK, kind, reply);
    let headers = response.headers_mut();
    if let Some(length) = header_length {
        headers.insert(HEADER_LENGTH, HeaderValue::from(length));
    }
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, coding.value());
    }
    Ok(response)
}
