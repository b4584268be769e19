//! The metrics of who leads, and their families.

use super::{
    Kind, Spec, Unit,
    page::{Page, Sample},
    spec,
};
use crate::{leader::Role, state::State};

pub(super) const LEADER: Spec = spec(
    "sluice_leader",
    Unit::Count,
    Kind::Gauge,
    &[],
    "Whether this router plans: it leads, or is alone.",
);
pub(super) const LED: Spec = spec(
    "sluice_leader_terms_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "How often this router came to lead.",
);
pub(super) const ETCD: Spec = spec(
    "sluice_etcd_requests_total",
    Unit::Count,
    Kind::Counter,
    &["result"],
    "Requests to etcd, by what became of them: answered or failed.",
);
pub(super) const ETCD_WAIT: Spec = spec(
    "sluice_etcd_wait_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &[],
    "Time spent waiting for answers of etcd.",
);

/// Who leads, and how etcd answers.
pub(super) fn write(page: &mut Page, state: &State) {
    let lead = &state.lead;
    let plans = matches!(lead.role, Role::Alone | Role::Leads);
    let etcd = lead.etcd.unwrap_or_default();
    page.family(&LEADER, [Sample::number([], f64::from(u8::from(plans)))]);
    page.family(&LED, [Sample::count([], lead.times_led)]);
    let requests = [("answered", etcd.answered), ("failed", etcd.failed)];
    page.family(&ETCD, requests.map(|(result, count)| Sample::count([result], count)));
    page.family(&ETCD_WAIT, [Sample::number([], etcd.waited_s)]);
}
