//! `[[worker]]`, and whether the models fit on them.

use std::path::Path;

use super::super::{
    Gpu, Model, Slice, Worker,
    draft::{ModelDraft, WorkerDraft},
    problems::{At, Notes},
};

const EMPTY: &str = "geometry is empty; leave it out to let the router decide";

pub(super) fn check(draft: &WorkerDraft, base_dir: &Path, notes: &mut Notes<'_>) -> Option<Worker> {
    let gpu = draft.gpu.as_ref().and_then(|given| gpu(given, draft, base_dir, notes))?;
    let kind = match &gpu {
        Gpu::Simulated { kind } => mig::kind(kind).ok(),
        Gpu::Nvml { .. } => None,
    };
    let geometry = match (&draft.geometry, kind) {
        (Some(given), Some(kind)) => Some(geometry(kind, given, notes)?),
        (Some(given), None) => Some(unchecked(given, notes)?),
        (None, _) => None,
    };
    Some(Worker { gpu, geometry })
}

fn gpu(
    given: &At<String>,
    draft: &WorkerDraft,
    base_dir: &Path,
    notes: &mut Notes<'_>,
) -> Option<Gpu> {
    let At { value, place } = given;
    let problem = match value.split_once(':') {
        Some(("simulated", name)) => match mig::kind(name) {
            Ok(kind) => {
                if let Some(library) = &draft.nvml_library {
                    notes.problem(library.place, "nvml_library is for gpu = \"nvml:INDEX\" only");
                }
                return Some(Gpu::Simulated { kind: kind.name.clone() });
            }
            Err(error) => error.to_string(),
        },
        Some(("nvml", index)) => match index.parse() {
            Ok(index) => {
                let library = draft.nvml_library.as_ref().map(|file| base_dir.join(&file.value));
                return Some(Gpu::Nvml { index, library });
            }
            Err(_) => format!("gpu is {value:?}; give nvml:INDEX, such as nvml:0"),
        },
        Some(_) | None => format!(
            "gpu is {value:?}; give nvml:INDEX, such as nvml:0, or simulated:KIND, such as \
             simulated:A100-80GB"
        ),
    };
    notes.problem(*place, problem);
    None
}

/// Positions of a GPU that only its worker will see, as written.
fn unchecked(given: &At<Vec<At<String>>>, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    if given.value.is_empty() {
        notes.problem(given.place, EMPTY);
        return None;
    }
    let mut sound = true;
    for At { value, place } in &given.value {
        let start = value.split_once('@').map(|(profile, start)| (profile, start.parse::<u8>()));
        if !start.is_some_and(|(profile, start)| !profile.is_empty() && start.is_ok()) {
            let text = value.clone();
            notes.problem(*place, mig::MigError::NotAPosition { text }.to_string());
            sound = false;
        }
    }
    sound.then(|| given.value.iter().map(|at| at.value.clone()).collect())
}

fn geometry(
    kind: &'static mig::Kind,
    given: &At<Vec<At<String>>>,
    notes: &mut Notes<'_>,
) -> Option<Vec<String>> {
    if given.value.is_empty() {
        notes.problem(given.place, EMPTY);
        return None;
    }
    let mut positions = Vec::new();
    for At { value, place } in &given.value {
        match kind.position(value) {
            Ok(position) => positions.push(position),
            Err(error) => notes.problem(*place, error.to_string()),
        }
    }
    if positions.len() != given.value.len() {
        return None;
    }
    match mig::Geometry::new(kind, positions) {
        Ok(geometry) => Some(geometry.positions().iter().map(ToString::to_string).collect()),
        Err(error) => {
            notes.problem(given.place, format!("geometry: {error}"));
            None
        }
    }
}

/// Notes models whose least replicas cannot be in the workers' memory however placed, and
/// slices whose latency is taken from another profile's measurements.
pub(super) fn fits(
    drafts: &[ModelDraft],
    models: &[Option<Model>],
    workers: &[Option<Worker>],
    notes: &mut Notes<'_>,
) {
    let known = workers.iter().map(|worker| worker.as_ref()?.known_slices());
    let Some(known) = known.collect::<Option<Vec<_>>>() else { return };
    let slices: Vec<&Slice> = known.iter().flatten().collect();
    if slices.is_empty() {
        return;
    }
    let largest = slices.iter().map(|slice| slice.memory_mib).max().unwrap_or(0);
    let total: u64 = slices.iter().map(|slice| slice.memory_mib).sum();
    let mut needed = 0_u64;
    let mut overfull = false;
    for (draft, model) in drafts.iter().zip(models) {
        let Some(model) = model else { continue };
        unmeasured(draft, model, &slices, notes);
        let (each, min) = (model.memory_mib, model.replicas.min);
        let place = draft.memory_mib.as_ref().map_or(draft.place, |at| at.place);
        needed = needed.saturating_add(each.saturating_mul(u64::from(min)));
        if each > largest {
            let message = format!("memory_mib is {each} but the largest slice has {largest} MiB");
            notes.problem(place, message);
        } else if needed > total && !overfull {
            overfull = true;
            let place = draft.replicas.min.as_ref().map_or(place, |at| at.place);
            let message = format!(
                "with {min} replicas of {each} MiB for {:?}, the models need {needed} MiB; \
                 the slices of every [[worker]] have {total} MiB",
                model.name
            );
            notes.problem(place, message);
        }
    }
}

fn unmeasured(draft: &ModelDraft, model: &Model, slices: &[&Slice], notes: &mut Notes<'_>) {
    let (Some(profile), Some(given)) = (&model.profile, &draft.profile_csv) else { return };
    let mut told: Vec<&str> = Vec::new();
    for slice in slices {
        let plain = slice.profile.split('+').next().unwrap_or(&slice.profile);
        let stand_in = profile.stand_in(plain);
        if stand_in != plain && !told.contains(&plain) {
            told.push(plain);
            let message = format!(
                "{} has no measurements for {plain}; those of {stand_in} are used",
                given.value
            );
            notes.warn(given.place, message);
        }
    }
}
