//! `[etcd]`: where several routers agree on the leader.

use std::time::Duration;

use crate::{
    key::{
        Effect, Given, TableSpec,
        kinds::{Own, Seconds, Word, plain},
        table,
    },
    problems::{At, Notes},
    tree::{OneOrMore, Read},
};

const PREFIX: &str = "/sluice";
/// The port of etcd where an endpoint names none.
const PORT: u16 = 2379;

pub(crate) const ETCD: TableSpec = TableSpec {
    name: "etcd",
    title: "[etcd]",
    about: "Where several routers agree on the leader and store jobs and overrides; for `sluice \
            router`. Absent: this router is alone.",
    whole: Effect::Restart,
};

table! {
    /// Where several routers agree on the leader.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Etcd {
        /// URL of each etcd member, plain `http`.
        members: Vec<String> = "endpoints" need, Own(read_members, plain, "URL, or a list"), Restart;
        /// What every key in etcd begins with.
        prefix: String = "prefix" or(PREFIX.to_owned()), Own(read_prefix, plain, "path"), Restart;
        /// Leader lease: how long the others wait for a leader that vanished.
        lease: Duration = "lease_s" or(Duration::from_secs(2)), Seconds(2..=60), Restart;
        /// Name of this router among the others. Absent: its address.
        name: Option<String> = "name" maybe, Word, Restart;
        /// Address where the others reach its admin API. Absent: `admin_listen`.
        advertise: Option<String> = "advertise" maybe, Own(read_address, plain, "host and port"), Restart;
    }
}

fn read_prefix(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<String> {
    let value = String::read(given.key, given.value, notes)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let trimmed = value.trim_end_matches('/');
    if !trimmed.starts_with('/') || !trimmed.chars().all(plain) || trimmed.len() > 128 {
        notes.problem(given.place, format!("prefix is {value:?}; give one such as {PREFIX:?}"));
    }
    Some(trimmed.to_owned())
}

fn read_members(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let OneOrMore::<String>(all) = Read::read(given.key, given.value, notes)?;
    if all.is_empty() {
        notes.problem(given.place, "endpoints is empty; give one such as \"http://10.0.0.1:2379\"");
    }
    let mut members = Vec::new();
    for At { value, place } in all {
        match member(&value) {
            Some(found) => members.push(found),
            None => {
                let message = format!(
                    "endpoints has {value:?}; give a member's address, such as \
                     \"http://10.0.0.1:2379\": plain http"
                );
                notes.problem(place, message);
            }
        }
    }
    Some(members)
}

fn member(endpoint: &str) -> Option<String> {
    let uri = endpoint.parse::<http::Uri>().ok()?;
    let bare = uri.path().trim_matches('/').is_empty() && uri.query().is_none();
    let plain = uri.scheme_str() == Some("http") && !uri.authority()?.as_str().contains('@');
    let host = uri.host().filter(|host| !host.is_empty())?;
    (bare && plain).then(|| format!("{host}:{}", uri.port_u16().unwrap_or(PORT)))
}

fn read_address(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<String> {
    let value = String::read(given.key, given.value, notes)?;
    let is_address = value.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !is_address {
        let message =
            format!("advertise is {value:?}; give a host and a port, such as \"10.0.0.1:8002\"");
        notes.problem(given.place, message);
    }
    Some(value)
}
