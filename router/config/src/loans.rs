//! Terms on which idle slices are lent to training jobs.

use std::{path::PathBuf, time::Duration};

use policy::loan::Loaning;

/// Terms on which idle slices are lent to training jobs.
///
/// In a router's file they say who gets what; in a worker's, what a job may do there.
#[derive(Clone, Debug, PartialEq)]
pub struct Loans {
    /// Programs a job may start, as its command names them; empty, no jobs.
    pub allow: Vec<String>,
    /// Time between the call to stop and the kill.
    pub notice: Duration,
    /// How long a loan lasts unless renewed.
    pub lease: Duration,
    /// The name of the order by which jobs go first.
    pub order: &'static str,
    /// How much is lent, and who gives it back.
    pub rule: Loaning,
    /// Whether tenants are kept even before the order decides.
    pub fair_tenants: bool,
    /// The most slices that one tenant's jobs may hold; absent, no limit.
    pub tenant_slices: Option<u32>,
    /// The most jobs of one tenant that have not ended.
    pub tenant_jobs: u32,
    /// What a job may use of the machine it runs on.
    pub limits: Limits,
}

/// What a job may use of the machine it runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Where jobs have their folders; absent, beside the worker's own files.
    pub directory: Option<PathBuf>,
    /// The user they run as; absent, the worker's own.
    pub user: Option<String>,
    /// How nice they are to others, 0 to 19.
    pub nice: u32,
    /// The most processors of the machine that one rank uses.
    pub cpus: Option<u32>,
    /// The most memory of the machine that one process of a rank has.
    pub memory_mib: Option<u64>,
    /// The most that a job's folder holds.
    pub disk_mib: Option<u64>,
    /// The most that is kept of what one rank prints.
    pub log_mib: u64,
}
