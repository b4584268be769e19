//! From draft to configuration: every check, each value's default.
//!
//! A check that fails notes a problem and goes on with some other value; none
//! of those escapes, because one problem is enough to refuse the whole.

mod access;
mod engine;
mod join;
mod loans;
pub(crate) mod model;
mod objective;
mod router;
mod tensors;
mod tls;
mod tracing;
mod worker;

use std::{collections::HashMap, ops::RangeInclusive};

pub(super) use self::{
    model::{bad_delay_ms, bad_slo_ms, bad_slo_target},
    objective::too_tight,
};

use super::{
    Config, Planner, Source,
    draft::Draft,
    effective,
    problems::{At, Notes, Place},
    tree::nearest,
};

/// The most tables of one kind. Names become metric labels, which must stay few.
const MAX_TABLES: usize = 1000;

/// Checks the whole draft. `None` only if a problem was noted.
pub(super) fn run(mut draft: Draft, source: &Source<'_>, notes: &mut Notes<'_>) -> Option<Config> {
    router::from_environment(&mut draft.router, &source.environment);
    count(&draft, notes);
    let router = router::check(&draft.router, source.base_dir, notes);
    let models: Vec<_> =
        draft.models.iter().map(|model| model::check(model, source.base_dir, notes)).collect();
    let tenants: Vec<_> =
        draft.tenants.iter().map(|tenant| access::tenant(tenant, notes)).collect();
    let keys: Vec<_> = draft.keys.iter().map(|key| access::key(key, notes)).collect();
    let loans = draft.loans.as_ref().map(|draft| loans::check(draft, source.base_dir, notes));
    let kept = router.state_dir.is_some() || draft.etcd.is_some() || draft.join.is_some();
    if let (Some(draft), false) = (&draft.loans, kept) {
        loans::unkept(draft, notes);
    }
    let planner = draft.planner.as_ref().map_or_else(Planner::default, |draft| draft.check(notes));
    let tracing = draft.tracing.as_ref().map(|tracing| tracing::check(tracing, notes));
    let etcd = draft.etcd.as_ref().map(|etcd| etcd.check(notes));
    if let (Some(etcd), Some(_)) = (&draft.etcd, &router.state_dir) {
        let message =
            "jobs and overrides are stored in etcd; state_dir stores only learned model data";
        notes.warn(etcd.place, message);
    }
    let tls = draft.tls.as_ref().map(|draft| tls::check(draft, source.base_dir, notes));
    let join = draft.join.as_ref().map(|join| join::check(join, source.base_dir, notes));
    let workers: Vec<_> =
        draft.workers.iter().map(|draft| worker::check(draft, source.base_dir, notes)).collect();
    if join.is_some() {
        join::only(&draft, notes);
    }

    unique("model", draft.models.iter().map(|model| model.name.as_ref()), notes);
    unique("tenant", draft.tenants.iter().map(|tenant| tenant.name.as_ref()), notes);
    unique("key", draft.keys.iter().map(|key| key.name.as_ref()), notes);
    access::distinct_hashes(&draft, notes);
    access::guarded(&router, &draft, notes);
    worker::fits(&draft.models, &models, &workers, notes);

    let mut config = Config {
        router,
        models: all(models)?,
        tenants: all(tenants)?,
        keys: all(keys)?,
        loans,
        planner,
        tracing: match tracing {
            Some(checked) => Some(checked?),
            None => None,
        },
        etcd: match etcd {
            Some(checked) => Some(checked?),
            None => None,
        },
        tls: match tls {
            Some(tls) => Some(tls?),
            None => None,
        },
        join: match join {
            Some(join) => Some(join?),
            None => None,
        },
        workers: all(workers)?,
        effective: effective::Effective::default(),
    };
    config.effective = effective::list(&config, &draft, notes);
    Some(config)
}

/// The values, if none was refused. Only once all were checked: collecting stops at the first.
pub(crate) fn all<T>(checked: Vec<Option<T>>) -> Option<Vec<T>> {
    checked.into_iter().collect()
}

fn count(draft: &Draft, notes: &mut Notes<'_>) {
    let tables = [
        ("model", draft.models.len()),
        ("tenant", draft.tenants.len()),
        ("key", draft.keys.len()),
        ("worker", draft.workers.len()),
    ];
    for (name, found) in tables {
        if found > MAX_TABLES {
            let message = format!("{found} [[{name}]] tables; give at most {MAX_TABLES}");
            notes.problem(Place::Offset(0), message);
        }
    }
    if draft.models.is_empty() && draft.join.is_none() {
        notes.warn(Place::Offset(0), "no [[model]]: nothing would be served");
    }
}

/// The number given, if within `range`, or `default`.
pub(crate) fn within(
    key: &str,
    given: Option<&At<u64>>,
    range: RangeInclusive<u64>,
    default: u64,
    notes: &mut Notes<'_>,
) -> u64 {
    let Some(At { value, place }) = given else { return default };
    if range.contains(value) {
        return *value;
    }
    let (least, most) = (range.start(), range.end());
    notes.problem(*place, format!("{key} is {value}; give {least} to {most}"));
    default
}

/// As [`within`], for what is counted in 32 bits.
pub(crate) fn within_u32(
    key: &str,
    given: Option<&At<u64>>,
    range: RangeInclusive<u32>,
    default: u32,
    notes: &mut Notes<'_>,
) -> u32 {
    let range = u64::from(*range.start())..=u64::from(*range.end());
    u32::try_from(within(key, given, range, u64::from(default), notes)).unwrap_or(default)
}

/// The choice whose word was given.
fn one_of<T: Copy>(
    key: &str,
    given: &At<String>,
    choices: &[(&str, T)],
    notes: &mut Notes<'_>,
) -> Option<T> {
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == given.value) {
        return Some(*choice);
    }
    let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
    let advice = match nearest(&given.value, &words) {
        Some(word) => format!("did you mean {word:?}?"),
        None => format!("give one of {}", words.join(", ")),
    };
    notes.problem(given.place, format!("{key} is {:?}; {advice}", given.value));
    None
}

/// A word that is safe in a path, a label and a log line.
pub(crate) fn word(key: &str, given: &At<String>, notes: &mut Notes<'_>) -> String {
    let At { value, place } = given;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let begins = value.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if value.len() > 128 || !begins || !value.chars().all(plain) {
        let shown: String = value.chars().take(40).collect();
        let message = format!(
            "{key} is {shown:?}; give 1 to 128 letters, digits, `.`, `_` or `-`, \
             the first a letter or digit"
        );
        notes.problem(*place, message);
    }
    value.clone()
}

pub(crate) fn unique<'d>(
    what: &str,
    names: impl Iterator<Item = Option<&'d At<String>>>,
    notes: &mut Notes<'_>,
) {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    for At { value, place } in names.flatten() {
        if let Some(first) = seen.get(value.as_str()) {
            let first = line(*first, notes);
            notes
                .problem(*place, format!("{what} {value:?} is named twice, first on line {first}"));
        } else {
            seen.insert(value, *place);
        }
    }
}

fn line(place: Place, notes: &Notes<'_>) -> usize {
    match place {
        Place::Offset(offset) => notes.line(offset),
        Place::Environment(_) => 0,
    }
}
