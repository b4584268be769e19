//! The file of `sluice plan`: models with their demand, and a fleet.
//!
//! Its `[[model]]` tables are those of a router's configuration with `demand_rps`; keys that only a
//! router needs are left alone. Everything wrong is told at once, with its place.

mod model;

#[cfg(test)]
mod tests;

use std::path::Path;

use policy::plan::{Gpus, Problem};

use crate::{
    check::{read, unique},
    key::{
        Entry, Found,
        kinds::{Text, Whole},
        table, whole,
    },
    problems::{Notes, Place, Problems, Warnings},
    source::Source,
    tables::planner::{self, PLANNER},
    tree::{self, Section},
};

/// The most `[[model]]` tables.
const MAX_MODELS: usize = 10_000;
/// The most GPUs of all kinds together.
const MAX_GPUS: u64 = 1_000_000;

/// Reads the file at `path`; paths in it are relative to its directory.
pub fn load(path: &Path) -> Result<(Problem, Warnings), Problems> {
    let text = read(path)?;
    parse(path, &text, path.parent().unwrap_or(path))
}

/// Reads a plan file's text, or says everything wrong with it.
pub fn parse(path: &Path, text: &str, base_dir: &Path) -> Result<(Problem, Warnings), Problems> {
    let source = Source::plain(path, text, base_dir);
    let mut notes = Notes::new(&source);
    let root = tree::parse(source.content(), &mut notes);
    let mut root = Section::new(root.get_ref(), "the file", Place::Offset(0));
    let problem = problem(&mut root, &mut notes);
    root.finish(&mut notes);
    notes.into_result(problem)
}

table! {
    /// `[[gpu]]` of a plan file.
    pub(crate) struct GpuKeys {
        /// Kind of the GPUs, such as `A100-80GB`.
        kind: String = "kind" need, Text, Live;
        /// How many there are.
        count: u32 = "count" or(1), Whole(1..=MAX_GPUS), Live;
    }
}

/// The tables of a plan file that a router's file does not have, for documentation.
pub(crate) fn plan_tables() -> [(&'static str, Vec<Entry>); 2] {
    let notes = &mut Notes::unread();
    let model = &mut Section::absent("[[model]]");
    let mut keys = model::PlanModelKeys::read(model, notes).1.entries;
    keys.extend(model::PlanReplicaKeys::read(model, notes).1.entries);
    keys.extend(model::DrawKeys::read(model, notes).1.entries);
    let gpu = GpuKeys::read(&mut Section::absent("[[gpu]]"), notes).1.entries;
    [("[[model]]", keys), ("[[gpu]]", gpu)]
}

fn problem(root: &mut Section<'_>, notes: &mut Notes<'_>) -> Option<Problem> {
    let models = root.sections("model", "[[model]]", notes);
    if models.is_empty() {
        notes.missing(Place::Offset(0), "no [[model]]: nothing to plan for");
    }
    if models.len() > MAX_MODELS {
        let message = format!("{} [[model]] tables; give at most {MAX_MODELS}", models.len());
        notes.problem(Place::Offset(0), message);
    }
    let (models, found): (Vec<_>, Vec<Found>) =
        models.into_iter().map(|section| model::read(section, notes)).unzip();
    unique("model", found.iter(), notes);
    let gpus = root.sections("gpu", "[[gpu]]", notes);
    if gpus.is_empty() {
        notes.missing(Place::Offset(0), "no [[gpu]]: nothing to plan on");
    }
    let fleet: Vec<_> = gpus.into_iter().map(|section| gpu(section, notes)).collect();
    let count: u64 = fleet.iter().flatten().map(|gpus| u64::from(gpus.count)).sum();
    if count > MAX_GPUS {
        notes.problem(Place::Offset(0), format!("{count} GPUs; give at most {MAX_GPUS}"));
    }
    let rules = root.section(PLANNER.name, PLANNER.title, notes);
    let rules = rules.unwrap_or_else(|| Section::absent(PLANNER.title));
    let rules = planner::read(rules, notes).0.rules;
    let (models, fleet) = (models.into_iter().collect::<Option<_>>(), fleet.into_iter());
    Some(Problem { models: models?, fleet: fleet.collect::<Option<_>>()?, rules })
}

fn gpu(section: Section<'_>, notes: &mut Notes<'_>) -> Option<Gpus> {
    let (keys, found) = whole(section, notes, GpuKeys::read);
    let place = found.place_of("kind").filter(|_| found.is_good("kind"))?;
    match mig::kind(&keys.kind) {
        Ok(kind) => Some(Gpus { kind, count: keys.count }),
        Err(unknown) => {
            notes.problem(place, format!("kind: {unknown}"));
            None
        }
    }
}
