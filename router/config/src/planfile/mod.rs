//! The file of `sluice plan`: models with their demand, and a fleet.
//!
//! Its `[[model]]` tables are those of a router's configuration with `demand_rps`; keys that only a
//! router needs are left alone. Everything wrong is told at once, with its place.

mod model;

#[cfg(test)]
mod tests;

use std::path::Path;

use policy::plan::{Gpus, Problem, Rules};

use crate::{
    Problems, Warnings,
    check::{all, unique, within_u32},
    planner::PlannerDraft,
    problems::{At, Notes, Place},
    read,
    tree::{self, Section},
};

/// The most `[[model]]` tables.
const MAX_MODELS: usize = 10_000;
/// The most GPUs of all kinds together.
const MAX_GPUS: u32 = 1_000_000;

/// Reads the file at `path`; paths in it are relative to its directory.
pub fn load(path: &Path) -> Result<(Problem, Warnings), Problems> {
    let text = read(path)?;
    parse(path, &text, path.parent().unwrap_or(path))
}

/// Reads a plan file's text, or says everything wrong with it.
pub fn parse(path: &Path, text: &str, base_dir: &Path) -> Result<(Problem, Warnings), Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut notes = Notes::new(path, text);
    let root = tree::parse(text, &mut notes);
    let mut root = Section::new(root.get_ref(), "the file", Place::Offset(0));
    let problem = problem(&mut root, base_dir, &mut notes);
    root.finish(&mut notes);
    notes.into_result(problem)
}

fn problem(root: &mut Section<'_>, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Problem> {
    let models = root.sections("model", "[[model]]", notes);
    if models.is_empty() {
        notes.missing(Place::Offset(0), "no [[model]]: nothing to plan for");
    }
    if models.len() > MAX_MODELS {
        let message = format!("{} [[model]] tables; give at most {MAX_MODELS}", models.len());
        notes.problem(Place::Offset(0), message);
    }
    let (names, models): (Vec<_>, Vec<_>) =
        models.into_iter().map(|section| model::read(section, base_dir, notes)).unzip();
    unique("model", names.iter().map(Option::as_ref), notes);
    let gpus = root.sections("gpu", "[[gpu]]", notes);
    if gpus.is_empty() {
        notes.missing(Place::Offset(0), "no [[gpu]]: nothing to plan on");
    }
    let fleet: Vec<_> = gpus.into_iter().map(|section| gpu(section, notes)).collect();
    let count: u64 = fleet.iter().flatten().map(|gpus| u64::from(gpus.count)).sum();
    if count > u64::from(MAX_GPUS) {
        notes.problem(Place::Offset(0), format!("{count} GPUs; give at most {MAX_GPUS}"));
    }
    let rules = root.section("planner", "[planner]", notes);
    let rules = rules.map_or_else(Rules::default, |section| {
        PlannerDraft::read(section, notes).check(notes).rules
    });
    Some(Problem { models: all(models)?, fleet: all(fleet)?, rules })
}

fn gpu(mut section: Section<'_>, notes: &mut Notes<'_>) -> Option<Gpus> {
    let kind: Option<At<String>> = section.need("kind", notes);
    let count: Option<At<u64>> = section.get("count", notes);
    section.finish(notes);
    let count = within_u32("count", count.as_ref(), 1..=MAX_GPUS, 1, notes);
    let At { value, place } = kind?;
    match mig::kind(&value) {
        Ok(kind) => Some(Gpus { kind, count }),
        Err(unknown) => {
            notes.problem(place, format!("kind: {unknown}"));
            None
        }
    }
}
