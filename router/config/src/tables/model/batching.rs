//! The rule that batches are formed by, as the file chooses it.

use std::time::Duration;

use policy::rule::Batching;

use super::Draft;
use crate::{
    key::kinds::{OneOf, number},
    problems::{At, Notes},
};

pub(super) fn batchings() -> OneOf<Batching> {
    let timeout = Batching::Timeout { batch: 1, delay: Duration::ZERO };
    let all = [
        Batching::Slo,
        Batching::Aimd,
        Batching::Deadline,
        Batching::EarlyDrop,
        Batching::Deferred,
        timeout,
    ];
    OneOf(all.map(|choice| (choice.name(), choice)).to_vec())
}

/// What is wrong with the time a batch waits, if anything.
pub(crate) fn bad_delay_ms(delay_ms: f64, slo_ms: Option<f64>) -> Option<String> {
    let most = slo_ms.unwrap_or(3_600_000.0);
    let which = if slo_ms.is_some() { "slo_ms, which is " } else { "" };
    let is_good = (0.0..most).contains(&delay_ms);
    (!is_good).then(|| format!("batch_delay_ms is {delay_ms}; give 0 to less than {which}{most}"))
}

pub(super) fn batching_rule(draft: &mut Draft, notes: &mut Notes<'_>) -> Option<Batching> {
    let chosen = draft.batching.batching;
    let is_given = draft.batching_found.place_of("batching").is_some();
    if !draft.batching_found.is_good("batching") || draft.has("batching") != is_given {
        return None;
    }
    if let Batching::Timeout { .. } = chosen {
        return timeout_rule(draft, notes);
    }
    for key in ["batch_size", "batch_delay_ms"] {
        if let Some(place) = draft.batching_found.place_of(key) {
            let message = format!(
                "{key} is only for batching \"timeout\"; batching {:?} derives it from slo_ms",
                chosen.name()
            );
            notes.problem(place, message);
        }
    }
    draft.batching_found.hide(&["batch_size", "batch_delay_ms"]);
    Some(chosen)
}

fn timeout_rule(draft: &mut Draft, notes: &mut Notes<'_>) -> Option<Batching> {
    let place = draft.batching_found.blame("batching");
    let (size, delay) = (&draft.batching.batch_size, &draft.batching.batch_delay_ms);
    for key in ["batch_size", "batch_delay_ms"] {
        if !draft.has(key) {
            notes.missing(place, format!("batching \"timeout\" needs `{key}`"));
        }
    }
    let max_batch = draft.keys.max_batch;
    if let Some(At { value, place }) = size
        && !(1..=u64::from(max_batch)).contains(value)
    {
        let message = format!("batch_size is {value}; give 1 to max_batch, which is {max_batch}");
        notes.problem(*place, message);
    }
    let given = draft.found.place_of("slo_ms").filter(|_| draft.found.is_good("slo_ms"));
    let slo_ms = given.map(|_| draft.keys.slo.as_secs_f64() * 1e3);
    if let Some(At { value, place }) = delay
        && let Some(message) = bad_delay_ms(*value, slo_ms)
    {
        notes.problem(*place, message);
        return None;
    }
    let (batch, delay_ms) = (u32::try_from(size.as_ref()?.value).ok()?, delay.as_ref()?.value);
    draft.batching_found.show("batch_size", batch);
    draft.batching_found.show("batch_delay_ms", number(delay_ms));
    Some(Batching::Timeout { batch, delay: Duration::from_secs_f64(delay_ms / 1000.0) })
}
