//! Where several routers agree on who leads, as checked.

use std::time::Duration;

use super::{
    check::{within, word},
    problems::{At, Notes, Place},
    tree::{OneOrMore, Section},
};

/// How long a leader that vanished is waited for, in seconds.
const LEASE_S: u64 = 2;
const PREFIX: &str = "/sluice";
/// The port of etcd where an endpoint names none.
const PORT: u16 = 2379;

/// Where several routers agree on who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// `host:port` of each member. At least one.
    pub members: Vec<String>,
    /// What every key begins with, without a `/` at its end.
    pub prefix: String,
    /// How long a leader that vanished is waited for.
    pub lease: Duration,
    /// This router's name among them; absent, where its admin is reached.
    pub name: Option<String>,
    /// Where the others reach its admin, `host:port`; absent, at `admin_listen`.
    pub advertise: Option<String>,
}

/// `[etcd]` as written.
pub(crate) struct EtcdDraft {
    pub(super) place: Place,
    pub(super) endpoints: Option<At<OneOrMore<String>>>,
    pub(super) prefix: Option<At<String>>,
    pub(super) lease_s: Option<At<u64>>,
    pub(super) name: Option<At<String>>,
    pub(super) advertise: Option<At<String>>,
}

impl EtcdDraft {
    pub(crate) fn read(mut section: Section<'_>, notes: &mut Notes<'_>) -> Self {
        let draft = Self {
            place: section.place(),
            endpoints: section.need("endpoints", notes),
            prefix: section.get("prefix", notes),
            lease_s: section.get("lease_s", notes),
            name: section.get("name", notes),
            advertise: section.get("advertise", notes),
        };
        section.finish(notes);
        draft
    }

    /// `None` only if a problem was noted.
    pub(crate) fn check(&self, notes: &mut Notes<'_>) -> Option<Etcd> {
        let lease_s = within("lease_s", self.lease_s.as_ref(), 2..=60, LEASE_S, notes);
        let prefix = self.prefix.as_ref().map_or(PREFIX, |given| prefix(given, notes));
        let name = self.name.as_ref().map(|name| word("name", name, notes));
        if let Some(At { value, place }) = &self.advertise
            && !is_address(value)
        {
            let message = format!(
                "advertise is {value:?}; give a host and a port, such as \"10.0.0.1:8002\""
            );
            notes.problem(*place, message);
        }
        let members = self.endpoints.as_ref().and_then(|given| members(given, notes))?;
        Some(Etcd {
            members,
            prefix: prefix.to_owned(),
            lease: Duration::from_secs(lease_s),
            name,
            advertise: self.advertise.as_ref().map(|at| at.value.clone()),
        })
    }
}

fn prefix<'d>(At { value, place }: &'d At<String>, notes: &mut Notes<'_>) -> &'d str {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let trimmed = value.trim_end_matches('/');
    if !trimmed.starts_with('/') || !trimmed.chars().all(plain) || trimmed.len() > 128 {
        let message = format!("prefix is {value:?}; give one such as {PREFIX:?}");
        notes.problem(*place, message);
    }
    trimmed
}

fn members(given: &At<OneOrMore<String>>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let OneOrMore(all) = &given.value;
    if all.is_empty() {
        notes.problem(given.place, "endpoints is empty; give one such as \"http://10.0.0.1:2379\"");
        return None;
    }
    let mut members = Vec::new();
    for At { value, place } in all {
        match member(value) {
            Some(found) => members.push(found),
            None => {
                let message = format!(
                    "endpoints has {value:?}; give a member's address, such as \
                     \"http://10.0.0.1:2379\": plain http"
                );
                notes.problem(*place, message);
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

fn is_address(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}
