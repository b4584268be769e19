//! OTLP's JSON encoding of spans.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Build,
    spans::{Attribute, Identity, Span},
};

pub(super) fn body(spans: &[Span], build: &Build) -> Vec<u8> {
    let resource = [
        ("service.name", Attribute::Text("sluice".to_owned())),
        ("service.version", Attribute::Text(build.version.clone())),
    ];
    let scope = json!({ "name": "sluice.router", "version": build.version });
    let spans: Vec<SpanJson<'_>> = spans.iter().map(SpanJson::of).collect();
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: json!({ "attributes": attributes(&resource) }),
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    };
    serde_json::to_vec(&request).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Value,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Value,
    spans: Vec<SpanJson<'a>>,
}

/// Ids are hexadecimal and 64-bit numbers are text, as the encoding has it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpanJson<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'a str>,
    name: &'static str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Value>,
    links: Vec<Value>,
    status: Value,
}

impl<'a> SpanJson<'a> {
    fn of(span: &'a Span) -> Self {
        let link = |link: &Identity| json!({ "traceId": trace(*link), "spanId": hex(link.span) });
        Self {
            trace_id: trace(span.identity),
            span_id: hex(span.identity.span),
            parent_span_id: span.parent.map(hex),
            trace_state: span.state.as_deref(),
            name: span.name,
            kind: span.kind as u8,
            start_time_unix_nano: span.start_ns.to_string(),
            end_time_unix_nano: span.end_ns.to_string(),
            attributes: attributes(&span.attributes),
            links: span.links.iter().map(link).collect(),
            status: match &span.error {
                None => json!({}),
                Some(message) => json!({ "code": 2, "message": message }),
            },
        }
    }
}

fn trace(identity: Identity) -> String {
    format!("{:032x}", identity.trace)
}

fn hex(span: u64) -> String {
    format!("{span:016x}")
}

fn attributes(pairs: &[(&'static str, Attribute)]) -> Vec<Value> {
    let value = |attribute: &Attribute| match attribute {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
    };
    pairs.iter().map(|(key, found)| json!({ "key": key, "value": value(found) })).collect()
}
