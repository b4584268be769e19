//! One `[[model]]` of a plan file.

use std::path::Path;

use policy::{
    interference::Draw,
    plan::{Measured, Model, Row},
};
use toml::{Spanned, de::DeValue};

use crate::{
    check::{
        model::{profile, slo_ms},
        within, within_u32, word,
    },
    problems::{At, Notes, Place},
    tree::{Read, Section, wrong_kind},
};

/// Beyond this a demand is a mistake of unit.
const MAX_DEMAND_RPS: f64 = 1e9;
/// What a router reads and a plan does not.
const ROUTERS: [&str; 16] = [
    "version",
    "engine",
    "path",
    "slo_target",
    "batching",
    "batch_size",
    "batch_delay_ms",
    "cache_mib",
    "class",
    "inputs",
    "outputs",
    "command",
    "environment",
    "directory",
    "served_name",
    "ready_timeout_s",
];

/// The table's name and, if nothing is wrong with it, the model.
pub(super) fn read(
    mut section: Section<'_>,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> (Option<At<String>>, Option<Model>) {
    let name: Option<At<String>> = section.need("name", notes);
    let demand: Option<At<f64>> = section.need("demand_rps", notes);
    let slo: Option<At<f64>> = section.need("slo_ms", notes);
    let files: Option<At<Files>> = section.need("profile_csv", notes);
    let max_batch: Option<At<u64>> = section.get("max_batch", notes);
    let memory: Option<At<u64>> = section.get("memory_mib", notes);
    let place = section.place();
    let replicas = section.section("replicas", "replicas = { min = 1, max = 4 }", notes);
    let (replicas_min, replicas_max) =
        replicas.map_or((1, u32::MAX), |section| replica_limits(section, place, notes));
    let draws = section.section("draws", "draws = { power = 0.8 }", notes);
    let load = draws.map_or_else(Draw::default, |section| load(section, notes));
    section.leave(&ROUTERS);
    section.finish(notes);

    let checked_name = name.as_ref().map(|name| word("name", name, notes));
    let demand_rps = demand.and_then(|given| demand_rps(&given, notes));
    let slo_ms = slo.and_then(|given| slo_ms(&given, notes));
    let measured = files.and_then(|files| measured(&files.value, base_dir, notes));
    let max_batch =
        max_batch.map(|given| within_u32("max_batch", Some(&given), 1..=4096, 1, notes));
    let memory_mib = memory.map(|given| within("memory_mib", Some(&given), 1..=1 << 24, 1, notes));
    let model = || {
        Some(Model {
            name: checked_name?,
            demand_rps: demand_rps?,
            slo_ms: slo_ms?,
            measured: measured?,
            max_batch,
            memory_mib,
            replicas_min,
            replicas_max,
            load,
            slowdown: 1.0,
        })
    };
    let model = model();
    (name, model)
}

/// Where the measurements are: one file for every kind of GPU, or one for each.
enum Files {
    One(At<String>),
    ByKind(Vec<(String, Place, At<String>)>),
}

impl Read for Files {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let place = |value: &Spanned<DeValue<'_>>| Place::Offset(value.span().start);
        if let Some(path) = value.get_ref().as_str() {
            return Some(Self::One(At { value: path.to_owned(), place: place(value) }));
        }
        let Some(table) = value.get_ref().as_table() else {
            wrong_kind(key, value, "a path, or a table of paths by kind of GPU", notes);
            return None;
        };
        let mut files = Vec::new();
        for (kind, path) in table.iter() {
            let kind_at = Place::Offset(kind.span().start);
            let read = String::read(key, path, notes)?;
            let path = At { value: read, place: place(path) };
            files.push((kind.get_ref().to_string(), kind_at, path));
        }
        Some(Self::ByKind(files))
    }
}

fn measured(files: &Files, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Vec<Measured>> {
    let read = |kind: Option<String>, path: &At<String>, notes: &mut Notes<'_>| {
        let profile = profile(path, base_dir, notes)?;
        let rows = profile.rows().iter().map(|row| Row {
            profile: row.profile.clone(),
            batch: row.batch,
            processes: row.processes,
            throughput_rps: row.throughput_rps,
        });
        Some(Measured { kind, rows: rows.collect() })
    };
    match files {
        Files::One(path) => Some(vec![read(None, path, notes)?]),
        Files::ByKind(files) => {
            let mut measured = Vec::new();
            for (kind, place, path) in files {
                if let Err(unknown) = mig::kind(kind) {
                    notes.problem(*place, format!("profile_csv: {unknown}"));
                }
                measured.push(read(Some(kind.clone()), path, notes));
            }
            measured.into_iter().collect()
        }
    }
}

fn demand_rps(given: &At<f64>, notes: &mut Notes<'_>) -> Option<f64> {
    let At { value, place } = given;
    if *value >= 0.0 && *value <= MAX_DEMAND_RPS {
        return Some(*value);
    }
    notes.problem(*place, format!("demand_rps is {value}; give 0 to {MAX_DEMAND_RPS}"));
    None
}

/// What a model asks, when busy, of what slices share.
fn load(mut section: Section<'_>, notes: &mut Notes<'_>) -> Draw {
    let mut part = |key: &'static str, most: f64| {
        let given: Option<At<f64>> = section.get(key, notes);
        let At { value, place } = given?;
        if (0.0..=most).contains(&value) {
            return Some(value);
        }
        notes.problem(place, format!("draws.{key} is {value}; give 0 to {most}"));
        None
    };
    let (power, bandwidth, pcie) = (part("power", 4.0), part("bandwidth", 1.0), part("pcie", 1.0));
    section.finish(notes);
    let known = |part: Option<f64>| part.unwrap_or(0.0);
    Draw { power: known(power), bandwidth: known(bandwidth), pcie: known(pcie) }
}

/// Unlike a router's, `max` is open unless given: how many there are is the question.
fn replica_limits(mut section: Section<'_>, place: Place, notes: &mut Notes<'_>) -> (u32, u32) {
    let min: Option<At<u64>> = section.get("min", notes);
    let max: Option<At<u64>> = section.get("max", notes);
    section.finish(notes);
    let least = within_u32("replicas.min", min.as_ref(), 1..=4096, 1, notes);
    let most = within_u32("replicas.max", max.as_ref(), 1..=1_000_000, u32::MAX, notes);
    if least > most {
        let place = min.map_or(place, |at| at.place);
        notes.problem(place, format!("replicas.min is {least} but replicas.max is {most}"));
    }
    (least, most)
}
