//! The metrics of who leads, and their families.

use super::{
    Kind, Spec, Unit,
    page::{count, number},
};
use crate::{leader::Role, state::State};

pub(super) const LEADER: Spec = Spec::new(
    "sluice_leader",
    Unit::Count,
    Kind::Gauge,
    &[],
    "1 if this router plans: it leads, or is the only one.",
);
pub(super) const LED: Spec = Spec::new(
    "sluice_leader_terms_total",
    Unit::Count,
    Kind::Counter,
    &[],
    "How often this router became leader.",
);
pub(super) const ETCD: Spec = Spec::new(
    "sluice_etcd_requests_total",
    Unit::Count,
    Kind::Counter,
    &["result"],
    "Requests to etcd, by result: answered or failed.",
);
pub(super) const ETCD_WAIT: Spec = Spec::new(
    "sluice_etcd_wait_seconds_total",
    Unit::Seconds,
    Kind::Counter,
    &[],
    "Time spent waiting for responses of etcd.",
);

/// Who leads, and how etcd answers.
pub(super) fn record(state: &State) {
    let lead = &state.lead;
    let plans = matches!(lead.role, Role::Alone | Role::Leads);
    let etcd = lead.etcd.unwrap_or_default();
    number(&LEADER, [], f64::from(u8::from(plans)));
    count(&LED, [], lead.times_led);
    count(&ETCD, ["answered"], etcd.answered);
    count(&ETCD, ["failed"], etcd.failed);
    number(&ETCD_WAIT, [], etcd.waited_s);
}
