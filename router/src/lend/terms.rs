//! On what terms loans are made, and what is reported of them.

use std::{collections::HashMap, time::Duration};

use policy::{
    fleet::SliceId,
    loan::{Loaning, Rules, order},
};
use protocol::RankReport;

use crate::{config::Loans, fleet::Seen};

/// The slices that are reported, and the rank on each.
pub(super) fn reported(seen: &[Seen]) -> HashMap<SliceId, Option<&RankReport>> {
    let mut reports = HashMap::new();
    for Seen { worker, report, .. } in seen {
        for gpu in &report.gpus {
            for slice in gpu.slices.iter().filter(|slice| slice.uuid.is_some()) {
                let position = slice.position.clone();
                let seat = SliceId { worker: worker.clone(), gpu: gpu.index, position };
                reports.insert(seat, slice.rank.as_ref());
            }
        }
    }
    reports
}

/// The notice and the lease in force.
pub(super) fn terms(loans: Option<&Loans>) -> (Duration, Duration) {
    let defaults = Rules::default();
    loans.map_or((defaults.notice, defaults.lease), |loans| (loans.notice, loans.lease))
}

/// How loans are made; without terms for them, none are.
pub(super) fn rules(loans: Option<&Loans>) -> Rules {
    let defaults = Rules::default();
    let Some(loans) = loans else {
        return Rules { loaning: Loaning::None, ..defaults };
    };
    let chosen = order::all().into_iter().find(|order| order.name() == loans.order);
    Rules {
        order: chosen.unwrap_or(defaults.order),
        fair_tenants: loans.fair_tenants,
        loaning: loans.rule,
        lease: loans.lease,
        notice: loans.notice,
        ..Rules::default()
    }
}
