//! `[[worker]]`, and whether the models fit on them.

use super::super::{
    Gpu, Model, Slice, Worker,
    draft::{ModelDraft, WorkerDraft},
    problems::{At, Notes},
};

pub(super) fn check(draft: &WorkerDraft, notes: &mut Notes<'_>) -> Option<Worker> {
    let gpu = draft.gpu.as_ref()?;
    let kind = kind(gpu, notes)?;
    let positions = match &draft.geometry {
        Some(given) => geometry(kind, given, notes)?,
        None => vec![kind.whole()],
    };
    let slices = positions.into_iter().map(|position| Slice {
        position: position.to_string(),
        profile: position.profile().name.clone(),
        memory_mib: (position.profile().memory_gib * 1024.0) as u64,
    });
    Some(Worker { gpu: Gpu::Simulated { kind: kind.name.clone() }, slices: slices.collect() })
}

fn kind(gpu: &At<String>, notes: &mut Notes<'_>) -> Option<&'static mig::Kind> {
    let At { value, place } = gpu;
    let problem = match value.split_once(':') {
        Some(("simulated", name)) => match mig::kind(name) {
            Ok(kind) => return Some(kind),
            Err(error) => error.to_string(),
        },
        Some(("nvml", _)) => {
            format!("gpu {value:?}: nvml is not available in this build yet; give simulated:KIND")
        }
        Some(_) | None => {
            format!("gpu is {value:?}; give simulated:KIND, such as simulated:A100-80GB")
        }
    };
    notes.problem(*place, problem);
    None
}

fn geometry(
    kind: &'static mig::Kind,
    given: &At<Vec<At<String>>>,
    notes: &mut Notes<'_>,
) -> Option<Vec<mig::Position>> {
    if given.value.is_empty() {
        notes.problem(given.place, "geometry is empty; leave it out for the whole GPU");
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
        Ok(geometry) => Some(geometry.positions().to_vec()),
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
    let slices: Vec<&Slice> = workers.iter().flatten().flat_map(|worker| &worker.slices).collect();
    if slices.is_empty() || workers.iter().any(Option::is_none) {
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
