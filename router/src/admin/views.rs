//! What the admin listener shows.

use std::fmt::Write;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use serve::{
    doors::oip::{
        ServerState,
        backend::{Backend, Check},
        models,
    },
    model::{Availability, Served, UNLOADED},
    reply::{self, Reply},
};

use super::TEXT;

/// `/readyz`: one word, or with `?verbose` every check, as the Kubernetes API server has it.
pub(super) fn ready<B: Backend>(state: &ServerState<B>, verbose: bool) -> Response<Reply> {
    if !verbose {
        return models::ready(state);
    }
    let mut lines = String::new();
    let mut ready = true;
    let draining = state.drain.is_draining().then(|| "a stop has begun".to_owned());
    let draining = Check::must("not draining", draining);
    for check in [draining].into_iter().chain(state.backend.checks()) {
        let Check { name, problem, note, counts } = check;
        ready &= problem.is_none() || !counts;
        // Writing to a string cannot fail.
        let _: std::fmt::Result = match (problem, note) {
            (None, None) => writeln!(lines, "[+]{name} ok"),
            (None, Some(note)) => writeln!(lines, "[+]{name} ok: {note}"),
            (Some(problem), _) => writeln!(lines, "[-]{name} failed: {problem}"),
        };
    }
    lines.push_str(if ready { "ready\n" } else { "not ready\n" });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    reply::of(status, TEXT, Bytes::from(lines).into())
}

pub(super) fn models<B: Backend>(backend: &B) -> Value {
    let models: Vec<Value> = backend.models().iter().map(|model| model_view(&**model)).collect();
    json!({ "models": models })
}

fn model_view(model: &impl Served) -> Value {
    let (state, reason) = match model.availability() {
        Availability::Ready => ("ready", None),
        Availability::Loading { why } => ("loading", Some(why)),
        Availability::Asleep => ("asleep", None),
        Availability::Unloaded => ("unloaded", Some(UNLOADED.to_owned())),
        Availability::Unavailable { reason } => ("unavailable", Some(reason)),
    };
    json!({
        "name": model.name(),
        "version": model.version(),
        "platform": model.platform(),
        "max_batch": model.max_batch(),
        "class": model.class().name(),
        "state": state,
        "reason": reason,
        "signature": model.signature(),
        "stats": model.stats(),
    })
}
