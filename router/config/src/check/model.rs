//! One `[[model]]`.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    super::{
        Batching, Class, Model, Profile, Replicas,
        draft::ModelDraft,
        problems::{At, Notes, Place},
        profile::Bad,
    },
    engine, objective, one_of, within, within_u32, word,
};

/// The largest `max_batch`.
const MAX_BATCH: u32 = 1024;
/// An hour: longer objectives are mistakes of unit.
const MAX_SLO_MS: f64 = 3_600_000.0;

pub(super) fn check(draft: &ModelDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Model> {
    let name = draft.name.as_ref().map(|name| word("name", name, notes));
    let version = draft.version.as_ref().map(|version| word("version", version, notes));
    let slo_ms = draft.slo_ms.as_ref().and_then(|given| slo_ms(given, notes));
    let max_batch = within_u32("max_batch", draft.max_batch.as_ref(), 1..=MAX_BATCH, 32, notes);
    let profile = draft.profile_csv.as_ref().and_then(|given| profile(given, base_dir, notes));
    if let (Some(slo_ms), Some(profile)) = (slo_ms, &profile) {
        objective::reachable(draft, slo_ms, max_batch, profile, notes);
    }
    let engine = engine::check(draft, profile.as_ref(), base_dir, notes);
    let batching = batching(draft, slo_ms, max_batch, notes);
    let slo_target = slo_target(draft.slo_target.as_ref(), notes);
    let memory_mib = within("memory_mib", draft.memory_mib.as_ref(), 1..=1 << 24, 512, notes);
    let replicas = replicas(draft, notes);
    let cache_mib = within("cache_mib", draft.cache_mib.as_ref(), 0..=1 << 20, 0, notes);
    let class = class(draft.class.as_ref(), notes);
    Some(Model {
        name: name?,
        version: version.unwrap_or_else(|| "1".to_owned()),
        engine: engine?,
        profile,
        slo: Duration::from_secs_f64(slo_ms? / 1000.0),
        slo_target,
        max_batch,
        memory_mib,
        replicas,
        batching: batching?,
        cache_mib,
        class,
    })
}

pub(crate) fn slo_ms(given: &At<f64>, notes: &mut Notes<'_>) -> Option<f64> {
    match bad_slo_ms(given.value) {
        None => Some(given.value),
        Some(message) => {
            notes.problem(given.place, message);
            None
        }
    }
}

/// What is wrong with an objective, if anything.
pub(crate) fn bad_slo_ms(slo_ms: f64) -> Option<String> {
    let is_good = (1.0..=MAX_SLO_MS).contains(&slo_ms);
    (!is_good).then(|| format!("slo_ms is {slo_ms}; give 1 to {MAX_SLO_MS}"))
}

/// What is wrong with the share of requests that must be within an objective, if anything.
pub(crate) fn bad_slo_target(slo_target: f64) -> Option<String> {
    let is_good = slo_target > 0.0 && slo_target < 1.0;
    (!is_good).then(|| format!("slo_target is {slo_target}; give more than 0 and less than 1"))
}

/// What is wrong with the time a batch is waited for, if anything.
pub(crate) fn bad_delay_ms(delay_ms: f64, slo_ms: Option<f64>) -> Option<String> {
    let most = slo_ms.unwrap_or(MAX_SLO_MS);
    let which = if slo_ms.is_some() { "slo_ms, which is " } else { "" };
    let is_good = (0.0..most).contains(&delay_ms);
    (!is_good).then(|| format!("batch_delay_ms is {delay_ms}; give 0 to less than {which}{most}"))
}

fn slo_target(given: Option<&At<f64>>, notes: &mut Notes<'_>) -> f64 {
    let Some(At { value, place }) = given else { return 0.99 };
    if let Some(message) = bad_slo_target(*value) {
        notes.problem(*place, message);
    }
    *value
}

fn replicas(draft: &ModelDraft, notes: &mut Notes<'_>) -> Replicas {
    let given = &draft.replicas;
    let min = within_u32("replicas.min", given.min.as_ref(), 0..=4096, 1, notes);
    let max = within_u32("replicas.max", given.max.as_ref(), 1..=4096, min.max(1), notes);
    if min > max {
        let place = given.min.as_ref().map_or(draft.place, |at| at.place);
        notes.problem(place, format!("replicas.min is {min} but replicas.max is {max}"));
    }
    Replicas { min, max }
}

fn class(given: Option<&At<String>>, notes: &mut Notes<'_>) -> Class {
    let choices = [Class::Interactive, Class::Batch].map(|choice| (choice.name(), choice));
    given.and_then(|given| one_of("class", given, &choices, notes)).unwrap_or(Class::Interactive)
}

pub(crate) fn profile(
    given: &At<String>,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> Option<Arc<Profile>> {
    let path = base_dir.join(&given.value);
    match Profile::load(&path) {
        Ok(profile) => Some(Arc::new(profile)),
        Err(Bad::Unread(why)) => {
            notes.problem(given.place, format!("profile_csv {}: {why}", path.display()));
            None
        }
        Err(Bad::Wrong(problems)) => {
            for problem in problems {
                notes.elsewhere(given.place, problem);
            }
            None
        }
    }
}

fn batching(
    draft: &ModelDraft,
    slo_ms: Option<f64>,
    max_batch: u32,
    notes: &mut Notes<'_>,
) -> Option<Batching> {
    let timeout = Batching::Timeout { batch: 1, delay: Duration::ZERO };
    let choices = [
        Batching::Slo,
        Batching::Aimd,
        Batching::Deadline,
        Batching::EarlyDrop,
        Batching::Deferred,
        timeout,
    ]
    .map(|choice| (choice.name(), choice));
    let chosen = match &draft.batching {
        Some(given) => one_of("batching", given, &choices, notes)?,
        None if draft.has("batching") => return None,
        None => Batching::Slo,
    };
    if let Batching::Timeout { .. } = chosen {
        return timeout_rule(draft, slo_ms, max_batch, notes);
    }
    let alone = |place: Place, key, notes: &mut Notes<'_>| {
        let message = format!(
            "{key} is only for batching \"timeout\"; batching {:?} derives it from slo_ms",
            chosen.name()
        );
        notes.problem(place, message);
    };
    if let Some(given) = &draft.batch_size {
        alone(given.place, "batch_size", notes);
    }
    if let Some(given) = &draft.batch_delay_ms {
        alone(given.place, "batch_delay_ms", notes);
    }
    Some(chosen)
}

fn timeout_rule(
    draft: &ModelDraft,
    slo_ms: Option<f64>,
    max_batch: u32,
    notes: &mut Notes<'_>,
) -> Option<Batching> {
    let place = draft.batching.as_ref().map_or(draft.place, |at| at.place);
    let (size, delay) = (draft.batch_size.as_ref(), draft.batch_delay_ms.as_ref());
    for key in ["batch_size", "batch_delay_ms"] {
        if !draft.has(key) {
            notes.missing(place, format!("batching \"timeout\" needs `{key}`"));
        }
    }
    if let Some(At { value, place }) = size
        && !(1..=u64::from(max_batch)).contains(value)
    {
        let message = format!("batch_size is {value}; give 1 to max_batch, which is {max_batch}");
        notes.problem(*place, message);
    }
    if let Some(At { value, place }) = delay
        && let Some(message) = bad_delay_ms(*value, slo_ms)
    {
        notes.problem(*place, message);
        return None;
    }
    let batch = u32::try_from(size?.value).ok()?;
    Some(Batching::Timeout { batch, delay: Duration::from_secs_f64(delay?.value / 1000.0) })
}
