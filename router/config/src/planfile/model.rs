//! One `[[model]]` of a plan file.

use policy::{
    interference::Draw,
    plan::{Measured, Model, Row},
};
use serde_json::Value;

use crate::{
    key::{
        Found, Given,
        kinds::{Number, Own, Whole, Word},
        table, whole,
    },
    problems::{At, Notes, Place},
    tables::model::{MEMORY_MIB, REPLICAS, SLO_MS, names, profile},
    tree::{Read, Section, wrong_kind},
};

const DRAWS: &str = "draws = { power = 0.8 }";
/// Beyond this a demand is a mistake of unit.
const DEMAND_RPS: Number =
    Number(|demand_rps| (0.0..=1e9).contains(&demand_rps), "0 to 1000000000");
const UP_TO_1: Number = Number(|part| (0.0..=1.0).contains(&part), "0 to 1");

table! {
    /// `[[model]]` of a plan file.
    pub(crate) struct PlanModelKeys {
        /// Name of the model.
        name: String = "name" need, Word, Live;
        /// Rows per second to plan for.
        demand_rps: f64 = "demand_rps" need, DEMAND_RPS, Live;
        /// Objective (SLO), in milliseconds.
        slo_ms: f64 = "slo_ms" need, SLO_MS, Live;
        /// File of measured latencies, or a table of such files by kind of GPU.
        files: Files = "profile_csv" need, Own(read_files, |_, _| Value::Null, "path, or a table of paths"), Live;
        /// Most rows of one batch. Absent: the largest measured.
        max_batch: Option<u32> = "max_batch" maybe, Whole(1..=4096), Live;
        /// Memory that one replica needs. Absent: any slice has enough.
        memory_mib: Option<u64> = "memory_mib" maybe, MEMORY_MIB, Live;
    }
}

table! {
    /// `replicas` of a plan file, whose `max` is open: how many there are is the question.
    pub(crate) struct PlanReplicaKeys {
        /// Fewest replicas.
        min: u32 = "replicas.min" or(1), Whole(1..=4096), Live;
        /// Most replicas. Absent: as many as it takes.
        max: Option<u32> = "replicas.max" maybe, Whole(1..=1_000_000), Live;
    }
}

table! {
    /// What a model asks, when busy, of what slices share.
    pub(crate) struct DrawKeys {
        /// Share of the GPU's power.
        power: f64 = "draws.power" or(0.0), Number(|part| (0.0..=4.0).contains(&part), "0 to 4"), Live;
        /// Share of the memory bandwidth.
        bandwidth: f64 = "draws.bandwidth" or(0.0), UP_TO_1, Live;
        /// Share of the PCIe bandwidth.
        pcie: f64 = "draws.pcie" or(0.0), UP_TO_1, Live;
    }
}

/// The model, unless it has no measurements, and where its keys were found.
pub(super) fn read(mut section: Section<'_>, notes: &mut Notes<'_>) -> (Option<Model>, Found) {
    let (keys, found) = PlanModelKeys::read(&mut section, notes);
    let replicas = section.section("replicas", REPLICAS, notes);
    let replicas = replicas.unwrap_or_else(|| Section::absent(REPLICAS));
    let (replicas, limits) = whole(replicas, notes, PlanReplicaKeys::read);
    let draws = section.section("draws", DRAWS, notes);
    let draws = draws.unwrap_or_else(|| Section::absent(DRAWS));
    let (DrawKeys { power, bandwidth, pcie }, _) = whole(draws, notes, DrawKeys::read);
    section.leave(&names());
    section.finish(notes);
    let (min, max) = (replicas.min, replicas.max.unwrap_or(u32::MAX));
    if min > max {
        let place = limits.place_of("replicas.min").unwrap_or(found.place);
        notes.problem(place, format!("replicas.min is {min} but replicas.max is {max}"));
    }
    let measured = measured(&keys.files, notes);
    let model = measured.map(|measured| Model {
        name: keys.name,
        demand_rps: keys.demand_rps,
        slo_ms: keys.slo_ms,
        measured,
        max_batch: keys.max_batch,
        memory_mib: keys.memory_mib,
        replicas_min: min,
        replicas_max: max,
        load: Draw { power, bandwidth, pcie },
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    });
    (model, found)
}

/// Where the measurements are: one file for every kind of GPU, or one for each.
pub(crate) enum Files {
    One(At<String>),
    ByKind(Vec<(String, Place, At<String>)>),
}

impl Default for Files {
    fn default() -> Self {
        Self::ByKind(Vec::new())
    }
}

fn read_files(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Files> {
    let Given { key, value, place } = *given;
    if let Some(path) = value.get_ref().as_str() {
        return Some(Files::One(At { value: path.to_owned(), place }));
    }
    let Some(table) = value.get_ref().as_table() else {
        wrong_kind(key, value, "a path, or a table of paths by kind of GPU", notes);
        return None;
    };
    let at = |span: std::ops::Range<usize>| Place::Offset(span.start);
    let mut files = Vec::new();
    for (kind, path) in table.iter() {
        let read = At { value: String::read(key, path, notes)?, place: at(path.span()) };
        files.push((kind.get_ref().to_string(), at(kind.span()), read));
    }
    Some(Files::ByKind(files))
}

fn measured(files: &Files, notes: &mut Notes<'_>) -> Option<Vec<Measured>> {
    let read = |kind: Option<String>, path: &At<String>, notes: &mut Notes<'_>| {
        let profile = profile(path, notes)?;
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
