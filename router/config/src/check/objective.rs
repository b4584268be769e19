//! Whether the measurements leave room for the objective and for the limits.

use super::super::{
    draft::ModelDraft,
    problems::Notes,
    profile::{Profile, latency_ms},
};

/// The best case of some batch over every measured profile.
struct Best {
    profile: String,
    batch: u32,
    latency_ms: f64,
}

/// Notes an objective no profile can meet, and a `max_batch` that can never be reached.
pub(super) fn reachable(
    draft: &ModelDraft,
    slo_ms: f64,
    max_batch: u32,
    profile: &Profile,
    notes: &mut Notes<'_>,
) {
    let (Some(slo), Some(csv)) = (&draft.slo_ms, &draft.profile_csv) else { return };
    if let Some(message) = too_tight(slo_ms, profile) {
        notes.problem(slo.place, format!("{message} in {}", csv.value));
        return;
    }
    let curves = curves(profile);
    let place = draft.max_batch.as_ref().map_or(draft.place, |at| at.place);
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
            "max_batch is {max_batch} but {} stops at batch {measured}; what lies beyond is \
             not measured",
            csv.value
        );
        notes.warn(place, message);
    }
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
