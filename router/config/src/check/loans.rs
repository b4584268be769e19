//! `[loans]`.

use std::{path::Path, time::Duration};

use policy::loan::{Loaning, order};

use super::{
    super::{
        Limits, Loans,
        draft::LoansDraft,
        problems::{At, Notes, Place},
        tree::nearest,
    },
    one_of, within, within_u32,
};

/// A day, in seconds: longer leases are mistakes of unit.
const DAY_S: u64 = 86_400;
/// The most of anything counted in MiB.
const MOST_MIB: u64 = 1 << 40;

pub(super) fn check(draft: &LoansDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Loans {
    let notice_s = within("notice_s", draft.notice_s.as_ref(), 1..=3600, 10, notes);
    let lease_s = within("lease_s", draft.lease_s.as_ref(), 1..=DAY_S, 60, notes);
    if notice_s > lease_s {
        let at = draft.notice_s.as_ref().or(draft.lease_s.as_ref());
        let message = format!("notice_s {notice_s} is longer than lease_s {lease_s}");
        notes.problem(at.map_or(draft.place, |at| at.place), message);
    }
    let tenant_slices = draft.tenant_slices.as_ref();
    let rules = Loaning::ALL.map(|rule| (rule.name(), rule));
    let rule = draft.rule.as_ref().and_then(|given| one_of("rule", given, &rules, notes));
    Loans {
        allow: allow(draft, notes),
        notice: Duration::from_secs(notice_s),
        lease: Duration::from_secs(lease_s),
        order: order_name(draft.order.as_ref(), notes),
        rule: rule.unwrap_or(Loaning::Sluice),
        fair_tenants: draft.fair_tenants.as_ref().is_none_or(|given| given.value),
        tenant_slices: tenant_slices
            .map(|given| within_u32("tenant_slices", Some(given), 1..=u32::MAX, 1, notes)),
        tenant_jobs: within_u32("tenant_jobs", draft.tenant_jobs.as_ref(), 1..=10_000, 100, notes),
        limits: limits(draft, base_dir, notes),
    }
}

/// Warns that a router without a state directory forgets its jobs.
pub(super) fn unkept(draft: &LoansDraft, notes: &mut Notes<'_>) {
    if draft.allow.as_ref().is_some_and(|allow| !allow.value.is_empty()) {
        let message = "without state_dir in [router], jobs and what they kept go with the router";
        notes.warn(draft.place, message);
    }
}

fn allow(draft: &LoansDraft, notes: &mut Notes<'_>) -> Vec<String> {
    let mut allow = Vec::new();
    for At { value, place } in draft.allow.iter().flat_map(|allow| &allow.value) {
        if value.is_empty() || value.contains('\0') {
            notes.problem(*place, "allow holds no program; give a program's name or path");
        }
        allow.push(value.clone());
    }
    if allow.is_empty() {
        notes.warn(draft.place, "[loans] allows no program: no job can run");
    }
    allow
}

fn order_name(given: Option<&At<String>>, notes: &mut Notes<'_>) -> &'static str {
    let names: Vec<&'static str> = order::all().iter().map(|order| order.name()).collect();
    let default = names.first().copied().unwrap_or_default();
    let Some(At { value, place }) = given else { return default };
    if let Some(name) = names.iter().find(|name| *name == value) {
        return name;
    }
    let advice = match nearest(value, &names) {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("give one of {}", names.join(", ")),
    };
    notes.problem(*place, format!("order is {value:?}; {advice}"));
    default
}

fn limits(draft: &LoansDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Limits {
    let mib = |key, given: &Option<At<u64>>, notes: &mut Notes<'_>| {
        given.as_ref().map(|given| within(key, Some(given), 1..=MOST_MIB, 1, notes))
    };
    let cpus = draft.cpus.as_ref();
    if let Some(At { value, place }) = &draft.user {
        user(value, *place, notes);
        if draft.directory.is_none() {
            let message = "user needs a directory that this user may enter; give directory";
            notes.problem(*place, message);
        }
    }
    Limits {
        directory: draft.directory.as_ref().map(|given| base_dir.join(&given.value)),
        user: draft.user.as_ref().map(|given| given.value.clone()),
        nice: within_u32("nice", draft.nice.as_ref(), 0..=19, 10, notes),
        cpus: cpus.map(|given| within_u32("cpus", Some(given), 1..=1024, 1, notes)),
        memory_mib: mib("memory_mib", &draft.memory_mib, notes),
        disk_mib: mib("disk_mib", &draft.disk_mib, notes),
        log_mib: within("log_mib", draft.log_mib.as_ref(), 1..=MOST_MIB, 16, notes),
    }
}

fn user(name: &str, place: Place, notes: &mut Notes<'_>) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        notes.problem(place, format!("user is {name:?}; give a name of this machine's users"));
    }
}
