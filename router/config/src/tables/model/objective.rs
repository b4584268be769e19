//! Whether the measurements leave room for the objective and for the limits.

use std::time::Duration;

use super::ModelKeys;
use crate::{
    key::{Found, kinds::number},
    problems::{At, Notes},
    profile::{Profile, latency_ms},
};

/// An hour, as of objectives.
const MOST_MS: f64 = 3_600_000.0;

/// The best case of some batch over every measured profile.
struct Best {
    profile: String,
    batch: u32,
    latency_ms: f64,
}

/// Notes an objective no profile can meet, and a `max_batch` that can never be reached.
pub(super) fn reachable(keys: &ModelKeys, found: &Found, notes: &mut Notes<'_>) {
    let (Some(profile), Some((csv, _))) = (&keys.profile, found.text("profile_csv")) else {
        return;
    };
    let Some(slo) = found.place_of("slo_ms").filter(|_| found.is_good("slo_ms")) else { return };
    let (slo_ms, max_batch) = (keys.slo.as_secs_f64() * 1e3, keys.max_batch);
    if let Some(message) = too_tight(slo_ms, profile) {
        notes.problem(slo, format!("{message} in {csv}"));
        return;
    }
    let curves = curves(profile);
    let place = found.blame("max_batch");
    let largest = curves.iter().filter_map(|(_, curve)| curve.last()).map(|(batch, _)| *batch);
    let measured = largest.max().unwrap_or(1);
    let first_late = (1..=max_batch.min(measured))
        .filter_map(|batch| best(&curves, batch))
        .find(|best| best.latency_ms > slo_ms);
    if let Some(Best { profile, batch, latency_ms }) = first_late {
        let message = format!(
            "max_batch {max_batch} can never be reached: a batch of {batch} takes \
             {latency_ms:.1} ms at best, on {profile}, against slo_ms {slo_ms}"
        );
        notes.warn(place, message);
    } else if measured < max_batch {
        let message = format!(
            "max_batch is {max_batch} but {csv} stops at batch {measured}; what lies beyond is \
             not measured"
        );
        notes.warn(place, message);
    }
}

/// How long an answer is wanted, if that is said and no less than the objective.
pub(super) fn timeout(
    keys: &ModelKeys,
    found: &mut Found,
    notes: &mut Notes<'_>,
) -> Option<Duration> {
    let At { value, place } = keys.timeout.as_ref()?;
    if !found.is_good("slo_ms") {
        return None;
    }
    let least = keys.slo.as_secs_f64() * 1e3;
    if !(least..=MOST_MS).contains(value) {
        let message = format!("timeout_ms is {value}; give slo_ms, which is {least}, to {MOST_MS}");
        notes.problem(*place, message);
        return None;
    }
    found.show("timeout_ms", number(*value));
    Some(Duration::from_secs_f64(value / 1e3))
}

/// Why no slice can keep an objective, if none can.
pub(crate) fn too_tight(slo_ms: f64, profile: &Profile) -> Option<String> {
    let curves = curves(profile);
    let smallest = curves.iter().filter_map(|(_, curve)| curve.first()).map(|(batch, _)| *batch);
    let fastest = best(&curves, smallest.min().unwrap_or(1))?;
    let Best { profile, batch, latency_ms } = fastest;
    (latency_ms > slo_ms).then(|| {
        format!(
            "slo_ms is {slo_ms} but a batch of {batch} takes {latency_ms} ms at best, on {profile}"
        )
    })
}

fn curves(profile: &Profile) -> Vec<(&str, Vec<(u32, f64)>)> {
    profile.profiles().into_iter().map(|name| (name, profile.curve(name))).collect()
}

fn best(curves: &[(&str, Vec<(u32, f64)>)], batch: u32) -> Option<Best> {
    let at = |(profile, curve): &(&str, Vec<(u32, f64)>)| {
        let latency_ms = latency_ms(curve, batch)?;
        Some(Best { profile: (*profile).to_owned(), batch, latency_ms })
    };
    curves.iter().filter_map(at).min_by(|a, b| a.latency_ms.total_cmp(&b.latency_ms))
}
