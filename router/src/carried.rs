//! The capacity that is shown: what slices add up to, and no more than was carried end to end.

use std::{thread, time::Duration};

use control::fleet::LOCAL;
use parking_lot::Mutex;
use policy::moment::Moment;
use rustix::time::{ClockId, clock_gettime};
use serve::count::carried::{Carried, ROUTER_ROWS, Work};

use crate::{fleet::View, plan::PlannedModel};

/// What this router carried, and how busy that kept it.
#[derive(Debug)]
pub(crate) struct RouterCarried(Mutex<Carried>);

impl Default for RouterCarried {
    fn default() -> Self {
        Self(Mutex::new(Carried::new(ROUTER_ROWS)))
    }
}

impl RouterCarried {
    /// Takes the counts of `now`: rows of all models since the start. Cores of `views` that are
    /// slices are not the router's to use.
    pub(crate) fn take(&self, now: Moment, rows: u64, views: &[View]) {
        let there = thread::available_parallelism().map_or(1, usize::from);
        let cores = there.saturating_sub(local_cores(views)).max(1);
        self.0.lock().take(now, Work { rows, busy: cpu_time() }, cores as f64);
    }

    /// Rows per second that the router can carry on `cores` of its own by that.
    fn whole_rps(&self, views: &[View]) -> Option<f64> {
        let there = thread::available_parallelism().map_or(1, usize::from);
        let cores = there.saturating_sub(local_cores(views)).max(1);
        Some(self.0.lock().whole_rps()? * cores as f64)
    }

    /// The models of a plan with the capacity that was carried; `by_model` says what replicas did.
    pub(crate) fn show(
        &self,
        models: &mut [PlannedModel],
        views: &[View],
        by_model: impl Fn(&str) -> Option<f64>,
    ) {
        let router_rps = self.whole_rps(views);
        for planned in models {
            let replicas_rps = by_model(&planned.model);
            let shown = bounded(planned.slices_rps, replicas_rps, router_rps);
            planned.capacity_rps = shown.map(|(rps, _)| rps);
            planned.limit = shown.map(|(_, limit)| limit.to_owned());
        }
    }
}

/// The least of what is known, and whose it is; nothing if nothing was carried.
fn bounded(
    slices_rps: Option<f64>,
    replicas_rps: Option<f64>,
    router_rps: Option<f64>,
) -> Option<(f64, &'static str)> {
    if replicas_rps.is_none() && router_rps.is_none() {
        return None;
    }
    let slices = [slices_rps, replicas_rps].into_iter().flatten().map(|rps| (rps, "slices"));
    let router = router_rps.map(|rps| (rps, "router"));
    slices.chain(router).min_by(|(a, _), (b, _)| a.total_cmp(b))
}

/// Cores of this process's own worker that are slices.
fn local_cores(views: &[View]) -> usize {
    let local = views.iter().filter(|view| view.name == LOCAL);
    let gpus = local.filter_map(|view| view.report.as_ref()).flat_map(|report| &report.gpus);
    let kinds = gpus.filter_map(|gpu| mig::device(gpu.kind.as_deref()?).ok());
    kinds.filter(|kind| kind.is_cores()).map(|kind| usize::from(kind.compute_slices)).sum()
}

/// The time processors have spent on this process.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(spent.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bound_is_shown_and_named() {
        let fast = bounded(Some(572_861.0), Some(470_000.0), Some(36_000.0));
        assert_eq!(fast, Some((36_000.0, "router")));
        assert_eq!(bounded(Some(70.0), Some(65.0), Some(30_000.0)), Some((65.0, "slices")));
        assert_eq!(bounded(Some(60.0), Some(65.0), None), Some((60.0, "slices")));
    }

    #[test]
    fn nothing_is_shown_before_traffic() {
        assert_eq!(bounded(Some(572_861.0), None, None), None);
    }

    #[test]
    fn this_process_has_used_a_processor() {
        assert!(cpu_time() > Duration::ZERO);
    }
}
