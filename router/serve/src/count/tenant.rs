//! What happened to one tenant's requests, whatever the model.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};

use super::{Outcome, Reason};
use crate::error::InferError;

#[derive(Debug, Default)]
pub struct TenantMetrics {
    served: AtomicU64,
    refused: AtomicU64,
    quota: AtomicU64,
    abandoned: AtomicU64,
    failed: AtomicU64,
    rows: AtomicU64,
}

impl TenantMetrics {
    /// A request was let in; it is abandoned unless told otherwise.
    pub fn begin(self: &Arc<Self>) -> Underway {
        Underway { metrics: Arc::clone(self), told: false }
    }

    /// A request was refused for the tenant's own limits.
    pub fn over_quota(&self) {
        self.quota.fetch_add(1, Ordering::Relaxed);
    }

    /// A request of so many rows was read.
    pub fn asked(&self, rows: u32) {
        self.rows.fetch_add(u64::from(rows), Ordering::Relaxed);
    }

    pub fn totals(&self) -> TenantTotals {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TenantTotals {
            served: read(&self.served),
            refused: read(&self.refused),
            quota: read(&self.quota),
            abandoned: read(&self.abandoned),
            failed: read(&self.failed),
            rows: read(&self.rows),
        }
    }
}

/// A tenant's request that has not ended. Dropped before it is [told](Underway::told), its caller
/// has hung up.
#[derive(Debug)]
pub struct Underway {
    metrics: Arc<TenantMetrics>,
    told: bool,
}

impl Underway {
    pub fn told(mut self, error: Option<&InferError>) {
        self.told = true;
        let counter = match error.map(Outcome::from) {
            None | Some(Outcome::Served { .. }) => &self.metrics.served,
            Some(Outcome::Refused(Reason::Quota)) => &self.metrics.quota,
            Some(Outcome::Refused(
                Reason::Overloaded
                | Reason::TooLate
                | Reason::TooShort
                | Reason::NoReplica
                | Reason::Invalid,
            )) => &self.metrics.refused,
            Some(Outcome::Abandoned) => &self.metrics.abandoned,
            Some(Outcome::Failed) => &self.metrics.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if !self.told {
            self.metrics.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantTotals {
    pub served: u64,
    /// Requests refused for another reason than the limits of the tenant.
    pub refused: u64,
    /// Requests refused for the limits of the tenant.
    pub quota: u64,
    pub abandoned: u64,
    pub failed: u64,
    /// Rows of the requests that were read.
    pub rows: u64,
}

impl TenantTotals {
    pub fn outcomes(&self) -> [(&'static str, u64); 5] {
        let Self { served, refused, quota, abandoned, failed, rows: _ } = *self;
        [
            ("served", served),
            ("refused", refused),
            ("quota", quota),
            ("abandoned", abandoned),
            ("failed", failed),
        ]
    }
}
