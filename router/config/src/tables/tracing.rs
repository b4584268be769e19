//! `[tracing]`: where traces go.

use crate::{
    key::{
        Effect, Found, Given, TableSpec,
        kinds::{Number, Own, written},
        table, whole,
    },
    problems::Notes,
    tree::{Read, Section},
};

/// What OTLP over HTTP serves traces at, under the collector's address.
const PATH: &str = "/v1/traces";

pub(crate) const TRACING: TableSpec = TableSpec {
    name: "tracing",
    title: "[tracing]",
    about: "Where traces go, and which requests are traced. Absent: no traces.",
    whole: Effect::Live,
};

/// Where traces go, and which requests are traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The collector's host and port.
    pub authority: String,
    /// The path that spans are posted to.
    pub path: String,
    /// Share of requests traced whose client does not say, 0 to 1.
    pub sample_ratio: f64,
}

table! {
    /// `[tracing]` as the file has it.
    pub(crate) struct TracingKeys {
        /// URL of the OTLP collector, plain `http`, without `/v1/traces`.
        endpoint: (String, String) = "otlp_endpoint" need, Own(read_endpoint, |_, given| written(given), "URL"), Live;
        /// Share of requests traced whose client does not say.
        sample_ratio: f64 = "sample_ratio" or(0.01), Number(|ratio| (0.0..=1.0).contains(&ratio), "0 to 1"), Live;
    }
}

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (Tracing, Found) {
    let (keys, found) = whole(section, notes, TracingKeys::read);
    let (authority, path) = keys.endpoint;
    (Tracing { authority, path, sample_ratio: keys.sample_ratio }, found)
}

fn read_endpoint(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<(String, String)> {
    let value = String::read(given.key, given.value, notes)?;
    let uri = value.parse::<http::Uri>().ok();
    let plain = uri.filter(|uri| uri.scheme_str() == Some("http") && uri.query().is_none());
    let found = plain.as_ref().and_then(|uri| {
        let host = uri.host().filter(|host| !host.is_empty())?;
        let bare = !uri.authority()?.as_str().contains('@');
        let port = uri.port_u16().unwrap_or(4318);
        let path = uri.path().trim_end_matches('/');
        bare.then(|| (format!("{host}:{port}"), format!("{path}{PATH}")))
    });
    if found.is_none() {
        let message = format!(
            "otlp_endpoint is {value:?}; give the collector's address, such as \
             \"http://127.0.0.1:4318\": plain http, without {PATH}"
        );
        notes.problem(given.place, message);
    }
    found
}
