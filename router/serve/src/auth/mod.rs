//! Who is calling, what they may do, and how much of it.
//!
//! Callers are known by the SHA-256 of their key, so neither the configuration nor a dump of memory
//! holds a key. Tenants infer; `[[key]]` tables open administration. Where no key is configured for
//! administration, being on this machine is the key.

mod bucket;
mod in_flight_limit;

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use config::{Key, KeyHash, Scope, Tenant};
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::in_flight_limit::Pass;
use self::{bucket::Bucket, in_flight_limit::InFlight};
use crate::{
    count::{TenantMetrics, TenantTotals},
    error::InferError,
};

/// The index of callers that are no configured tenant.
pub const NO_TENANT: u32 = 0;
/// What they are called together.
const OTHERS: &str = "other";

/// Everyone who is known, and what is left of their rates.
#[derive(Debug)]
pub struct Access {
    since: Instant,
    tenants: Vec<Known>,
    others: Arc<TenantMetrics>,
    by_key: HashMap<KeyHash, u32>,
    keys: HashMap<KeyHash, Arc<Key>>,
}

/// A caller that may infer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// [`NO_TENANT`], or one more than the tenant's place in the configuration.
    pub tenant: u32,
}

impl Caller {
    /// Of no tenant, or not asked.
    pub const UNKNOWN: Self = Self { tenant: NO_TENANT };
}

/// A caller that was let in.
#[derive(Debug)]
pub struct Admitted {
    pub caller: Caller,
    /// To be kept for as long as its request is under way, if it is a tenant's.
    pub pass: Option<Pass>,
}

/// What the admin listener shows of a tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantView {
    pub name: String,
    pub index: u32,
    pub rate_rps: Option<f64>,
    /// The most requests it may have under way, if that is limited.
    pub max_in_flight: Option<u32>,
    pub share: f64,
    /// Requests it could send at this moment, if it has a rate.
    pub left: Option<u64>,
    /// Requests it has under way; of those that are no tenant nobody keeps count.
    pub in_flight: Option<u32>,
    pub totals: TenantTotals,
}

#[derive(Debug)]
struct Known {
    tenant: Tenant,
    name: Arc<str>,
    bucket: Option<Arc<Bucket>>,
    in_flight: Arc<InFlight>,
    metrics: Arc<TenantMetrics>,
}

impl Access {
    /// Full buckets for all of `tenants`.
    pub fn new(tenants: &[Tenant], keys: &[Key]) -> Self {
        Self::build(tenants, keys, None)
    }

    /// The same for a new configuration; a tenant whose rate did not change keeps what it has used.
    pub fn renewed(&self, tenants: &[Tenant], keys: &[Key]) -> Self {
        Self::build(tenants, keys, Some(self))
    }

    fn build(tenants: &[Tenant], keys: &[Key], previous: Option<&Self>) -> Self {
        let known = |tenant: &Tenant| {
            let kept = previous.and_then(|access| access.named(&tenant.name));
            Known {
                bucket: tenant.rate_rps.map(|rate| {
                    let same = kept.filter(|known| known.tenant.rate_rps == Some(rate));
                    let used = same.and_then(|known| known.bucket.clone());
                    used.unwrap_or_else(|| Arc::new(Bucket::new(rate)))
                }),
                in_flight: kept.map(|known| Arc::clone(&known.in_flight)).unwrap_or_default(),
                metrics: kept.map(|known| Arc::clone(&known.metrics)).unwrap_or_default(),
                tenant: tenant.clone(),
                name: tenant.name.as_str().into(),
            }
        };
        Self {
            since: previous.map_or_else(Instant::now, |access| access.since),
            tenants: tenants.iter().map(known).collect(),
            others: previous.map(|access| Arc::clone(&access.others)).unwrap_or_default(),
            by_key: (1..)
                .zip(tenants)
                .flat_map(|(index, tenant)| tenant.keys.iter().map(move |key| (*key, index)))
                .collect(),
            keys: keys
                .iter()
                .map(|key| Arc::new(key.clone()))
                .flat_map(|key| {
                    key.keys.clone().into_iter().map(move |hash| (hash, Arc::clone(&key)))
                })
                .collect(),
        }
    }

    fn named(&self, name: &str) -> Option<&Known> {
        self.tenants.iter().find(|known| known.tenant.name == name)
    }

    /// The name of the caller's tenant, if it is of one.
    pub(crate) fn name(&self, caller: Caller) -> Option<Arc<str>> {
        self.known(caller).map(|known| Arc::clone(&known.name))
    }

    /// What becomes of a caller's requests; those of no tenant are counted together.
    pub fn metrics(&self, caller: Caller) -> &Arc<TenantMetrics> {
        self.known(caller).map_or(&self.others, |known| &known.metrics)
    }

    /// The caller of an inference request, one request poorer; or why it may not call.
    pub fn admit(&self, headers: &HeaderMap, now: Instant) -> Result<Admitted, InferError> {
        let caller = self.caller(headers)?;
        let Some(known) = self.known(caller) else { return Ok(Admitted { caller, pass: None }) };
        let entered = known.enter(self.at(now)).inspect_err(|_| known.metrics.over_quota());
        Ok(Admitted { caller, pass: Some(entered?) })
    }

    fn caller(&self, headers: &HeaderMap) -> Result<Caller, InferError> {
        if self.tenants.is_empty() {
            return Ok(Caller::UNKNOWN);
        }
        let hash = bearer(headers).map(KeyHash::of).ok_or(InferError::Unauthorized)?;
        if let Some(&tenant) = self.by_key.get(&hash) {
            return Ok(Caller { tenant });
        }
        match self.keys.get(&hash) {
            Some(key) if key.scopes.contains(&Scope::Infer) => Ok(Caller::UNKNOWN),
            Some(_) => Err(InferError::Forbidden { needed: "a key with the infer scope" }),
            None => Err(InferError::Unauthorized),
        }
    }

    /// Charges the rows of a request beyond the one that [`Access::admit`] took.
    ///
    /// Rows are known only once the body is read, so they are not refused but owed: a caller gets no
    /// more rows a second by sending them in fewer requests.
    pub fn charge_rows(&self, caller: Caller, rows: u32) {
        self.metrics(caller).asked(rows);
        if let Some(bucket) = self.known(caller).and_then(|known| known.bucket.as_ref()) {
            bucket.charge(rows.saturating_sub(1));
        }
    }

    /// Whether the caller may do what `scope` opens.
    pub fn require(
        &self,
        scope: Scope,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Result<(), InferError> {
        if self.keys.is_empty() {
            return if is_local(headers, peer) {
                Ok(())
            } else {
                Err(InferError::Forbidden { needed: "a call from this machine, or a [[key]]" })
            };
        }
        let hash = bearer(headers).map(KeyHash::of).ok_or(InferError::Unauthorized)?;
        match self.keys.get(&hash) {
            Some(key) if key.scopes.contains(&scope) => Ok(()),
            Some(_) => Err(InferError::Forbidden { needed: needed(scope) }),
            None if self.by_key.contains_key(&hash) => {
                Err(InferError::Forbidden { needed: needed(scope) })
            }
            None => Err(InferError::Unauthorized),
        }
    }

    /// The name of the key a caller shows, if it is one of the configuration's.
    pub fn key_name(&self, headers: &HeaderMap) -> Option<&str> {
        let hash = KeyHash::of(bearer(headers)?);
        self.keys.get(&hash).map(|key| key.name.as_str())
    }

    /// What the audit log calls whoever made this call.
    pub fn name_of(&self, headers: &HeaderMap, peer: SocketAddr) -> String {
        let Some(hash) = bearer(headers).map(KeyHash::of) else {
            let trusted = self.keys.is_empty() && is_local(headers, peer);
            return if trusted { "this machine" } else { "nobody known" }.to_owned();
        };
        if let Some(key) = self.keys.get(&hash) {
            return format!("key {}", key.name);
        }
        let tenant = self.by_key.get(&hash).and_then(|&tenant| self.known(Caller { tenant }));
        tenant.map_or_else(
            || "an unknown key".to_owned(),
            |known| format!("tenant {}", known.tenant.name),
        )
    }

    /// What is known of every tenant, in the order of the configuration, and of all others as one.
    pub fn tenants(&self, now: Instant) -> Vec<TenantView> {
        let view = |(index, known): (u32, &Known)| TenantView {
            name: known.tenant.name.clone(),
            index,
            rate_rps: known.tenant.rate_rps,
            max_in_flight: known.tenant.max_in_flight,
            share: known.tenant.share,
            left: known.bucket.as_ref().map(|bucket| bucket.left(self.at(now))),
            in_flight: Some(known.in_flight.count()),
            totals: known.metrics.totals(),
        };
        let others = TenantView {
            name: OTHERS.to_owned(),
            index: NO_TENANT,
            rate_rps: None,
            max_in_flight: None,
            share: 1.0,
            left: None,
            in_flight: None,
            totals: self.others.totals(),
        };
        (1..).zip(&self.tenants).map(view).chain([others]).collect()
    }

    fn known(&self, caller: Caller) -> Option<&Known> {
        self.tenants.get(caller.tenant.checked_sub(1)? as usize)
    }

    fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl Known {
    /// Lets one more request in. One that has no room does not use up the rate.
    fn enter(&self, now: Duration) -> Result<Pass, InferError> {
        let Tenant { name, rate_rps, max_in_flight, .. } = &self.tenant;
        let pass = self.in_flight.enter(*max_in_flight).map_err(|in_flight| {
            let max_in_flight = max_in_flight.unwrap_or(u32::MAX);
            InferError::Crowded { tenant: name.clone(), in_flight, max_in_flight }
        })?;
        let taken = self.bucket.as_ref().map_or(Ok(()), |bucket| bucket.take(now));
        taken.map_err(|retry_after| InferError::Quota {
            tenant: name.clone(),
            rate_rps: rate_rps.unwrap_or_default(),
            retry_after,
        })?;
        Ok(pass)
    }
}

fn needed(scope: Scope) -> &'static str {
    match scope {
        Scope::Infer => "a key with the infer scope",
        Scope::Jobs => "a key with the jobs scope",
        Scope::Admin => "a key with the admin scope",
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, key) = value.split_at_checked(SCHEME.len())?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(SCHEME) && !key.is_empty()).then_some(key)
}

/// Whether the call was made on this machine, by a program and not by some web page.
///
/// A page open in a browser here can send to loopback addresses too. It gives itself away by an
/// `origin` that is not ours, or, where it made its own name point at us, by that name in `host`.
fn is_local(headers: &HeaderMap, peer: SocketAddr) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST);
    let named_locally = host.is_none_or(|host| {
        let name = host
            .rsplit_once(':')
            .map_or(host, |(name, port)| if port.ends_with(']') { host } else { name });
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
    });
    let same_origin = text(header::ORIGIN).is_none_or(|origin| {
        let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some() && named == host
    });
    peer.ip().to_canonical().is_loopback() && named_locally && same_origin
}

#[cfg(test)]
mod tests;
