//! On what terms loans are made, and what is reported of them.

use std::{collections::HashMap, time::Duration};

use config::Loans;
use policy::{
    fleet::SliceId,
    job,
    loan::{Loaning, Rules, order},
};
use protocol::{RankEnd, RankReport, RankState};

use crate::fleet::Seen;

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

/// What a worker reports of a rank, as decisions see it.
pub(super) fn rank(report: &RankReport) -> job::Rank {
    let progress = report.progress.map(|told| job::RankProgress {
        step: told.step,
        steps: told.steps,
        checkpoint: told.checkpoint,
        checkpoint_age_ms: told.checkpoint_age_ms,
    });
    let state = match &report.state {
        RankState::Starting => job::RankState::Starting,
        RankState::Running { .. } => job::RankState::Running,
        RankState::Checkpointing => job::RankState::Checkpointing,
        RankState::Stopping => job::RankState::Stopping,
        RankState::Ended(end) => job::RankState::Ended(match end.clone() {
            RankEnd::Exited { code } => job::RankEnd::Exited { code },
            RankEnd::Killed { signal, overdue } => job::RankEnd::Killed { signal, overdue },
            RankEnd::Exceeded { what } => job::RankEnd::Exceeded { what },
            RankEnd::Expired => job::RankEnd::Expired,
            RankEnd::Lost { reason } => job::RankEnd::Lost { reason },
        }),
    };
    job::Rank { run: report.run, state, progress }
}

/// The notice and the lease in force.
pub(crate) fn terms(loans: Option<&Loans>) -> (Duration, Duration) {
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
