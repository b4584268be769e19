//! `[tracing]`.

use super::super::{
    Tracing,
    draft::TracingDraft,
    problems::{At, Notes},
};

/// What OTLP over HTTP serves traces at, under the collector's address.
const PATH: &str = "/v1/traces";
const DEFAULT_RATIO: f64 = 0.01;

/// `None` only if a problem was noted.
pub(super) fn check(draft: &TracingDraft, notes: &mut Notes<'_>) -> Option<Tracing> {
    let endpoint = draft.otlp_endpoint.as_ref().and_then(|given| endpoint(given, notes));
    let mut sample_ratio = DEFAULT_RATIO;
    if let Some(At { value, place }) = &draft.sample_ratio {
        if (0.0..=1.0).contains(value) {
            sample_ratio = *value;
        } else {
            notes.problem(*place, format!("sample_ratio is {value}; give 0 to 1"));
        }
    }
    let (authority, path) = endpoint?;
    Some(Tracing { authority, path, sample_ratio })
}

fn endpoint(given: &At<String>, notes: &mut Notes<'_>) -> Option<(String, String)> {
    let uri = given.value.parse::<http::Uri>().ok();
    let plain = uri.filter(|uri| uri.scheme_str() == Some("http") && uri.query().is_none());
    let found = plain.as_ref().and_then(|uri| {
        let host = uri.host().filter(|host| !host.is_empty())?;
        let authority = uri.authority()?.as_str();
        let bare = !authority.contains('@');
        let port = uri.port_u16().unwrap_or(4318);
        let path = uri.path().trim_end_matches('/');
        bare.then(|| (format!("{host}:{port}"), format!("{path}{PATH}")))
    });
    if found.is_none() {
        let message = format!(
            "otlp_endpoint is {:?}; give the collector's address, such as \
             \"http://127.0.0.1:4318\": plain http, without {PATH}",
            given.value
        );
        notes.problem(given.place, message);
    }
    found
}
