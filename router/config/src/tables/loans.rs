//! `[loans]`: terms on which idle slices are lent to training jobs.

use std::{path::PathBuf, time::Duration};

use policy::loan::{Loaning, order};

use crate::{
    key::{
        Effect, Found, Given, TableSpec,
        kinds::{DAY_S, File, Flag, OneOf, Own, Seconds, Whole, plain},
        table, whole,
    },
    problems::{At, Notes},
    tree::{Read, Section},
};

/// The most of anything counted in MiB.
const MOST_MIB: u64 = 1 << 40;

pub(crate) const LOANS: TableSpec = TableSpec {
    name: "loans",
    title: "[loans]",
    about: "Idle slices lent to training jobs. In a router's file the table says which job gets \
            what; in a worker's, what a job may use there. Absent: there are no jobs.",
    whole: Effect::Live,
};

table! {
    /// Terms on which idle slices are lent to training jobs.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Loans {
        /// Programs a job may start, as its command names them. Empty: no job can run.
        allow: Vec<String> = "allow" or(Vec::new()), Own(read_allow, plain, "list of programs"), Live;
        /// Notice period: time from the stop signal to `SIGKILL`.
        notice: Duration = "notice_s" or(Duration::from_secs(10)), Seconds(1..=3600), Live;
        /// Loan lease: how long a loan lasts unless renewed.
        lease: Duration = "lease_s" or(Duration::from_secs(60)), Seconds(1..=DAY_S), Live;
        /// Scheduling policy: which job goes first.
        order: &'static str = "order" or(orders().0[0].1), orders(), Live;
        /// Which slices are lent and reclaimed.
        rule: Loaning = "rule" or(Loaning::Sluice), OneOf(Loaning::ALL.map(|rule| (rule.name(), rule)).to_vec()), Live;
        /// Whether the tenant that had least of its share goes first, before `order` decides.
        fair_tenants: bool = "fair_tenants" or(true), Flag, Live;
        /// Most slices that one tenant's jobs hold. Absent: no limit.
        tenant_slices: Option<u32> = "tenant_slices" maybe, Whole(1..=u64::from(u32::MAX)), Live;
        /// Most unfinished jobs of one tenant.
        tenant_jobs: u32 = "tenant_jobs" or(100), Whole(1..=10_000), Live;
        /// Directory of the jobs' folders. Absent: beside the worker's own files.
        directory: Option<PathBuf> = "directory" maybe, File, Restart;
        /// User that jobs run as; needs `directory`. Absent: the worker's own.
        user: Option<String> = "user" maybe, Own(read_user, plain, "name of a user"), Restart;
        /// Niceness of jobs.
        nice: u32 = "nice" or(10), Whole(0..=19), Live;
        /// Most processors that one rank uses. Absent: no limit.
        cpus: Option<u32> = "cpus" maybe, Whole(1..=1024), Live;
        /// Most host memory of one process of a rank. Absent: no limit.
        memory_mib: Option<u64> = "memory_mib" maybe, Whole(1..=MOST_MIB), Live;
        /// Most that a job's folder holds. Absent: no limit.
        disk_mib: Option<u64> = "disk_mib" maybe, Whole(1..=MOST_MIB), Live;
        /// Most that is stored of one rank's output.
        log_mib: u64 = "log_mib" or(16), Whole(1..=MOST_MIB), Live;
    }
}

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (Loans, Found) {
    let (loans, found) = whole(section, notes, Loans::read);
    let (notice_s, lease_s) = (loans.notice.as_secs(), loans.lease.as_secs());
    if notice_s > lease_s {
        let place = found.place_of("notice_s").or_else(|| found.place_of("lease_s"));
        let message = format!("notice_s {notice_s} is longer than lease_s {lease_s}");
        notes.problem(place.unwrap_or(found.place), message);
    }
    if loans.allow.is_empty() {
        notes.warn(found.place, "[loans] allows no program: no job can run");
    }
    if let (Some(user), None) = (found.place_of("user"), found.place_of("directory")) {
        notes.problem(user, "user needs a directory that this user may enter; give directory");
    }
    (loans, found)
}

fn read_allow(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let programs: Vec<At<String>> = Read::read(given.key, given.value, notes)?;
    for At { value, place } in &programs {
        if value.is_empty() || value.contains('\0') {
            notes.problem(*place, "allow holds no program; give a program's name or path");
        }
    }
    Some(programs.into_iter().map(|program| program.value).collect())
}

/// The first is the default.
fn orders() -> OneOf<&'static str> {
    OneOf(order::all().iter().map(|order| (order.name(), order.name())).collect())
}

fn read_user(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<String> {
    let name = String::read(given.key, given.value, notes)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        let message = format!("user is {name:?}; give a name of this machine's users");
        notes.problem(given.place, message);
    }
    Some(name)
}
