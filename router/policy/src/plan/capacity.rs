//! What a slice of each kind is worth to each model.
//!
//! A request that arrives just after a batch was sent waits for that batch and then for its own, so
//! a batch may take half of the time the objective leaves: `latency_share` of it (0.45 leaves a
//! tenth for everything else). Within that, the measured row with the most requests per second is
//! the slice's capacity.

use mig::{Kind, Profile, kinds};

use super::{Measured, Model, Rules, cover::Turns, cycle::SWITCH_MS, hardware::Hardware};

const MIB_PER_GIB: f64 = 1024.0;

/// How a model uses a slice it has to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    pub batch: u32,
    pub processes: u32,
    pub capacity_rps: f64,
    pub latency_ms: f64,
}

/// One batch's time by its size, alone on a slice in one process: straight lines between measured
/// sizes, never falling, and only as far as the objective allows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve(Vec<(u32, f64)>);

impl Curve {
    pub(super) fn new(mut points: Vec<(u32, f64)>) -> Self {
        points.sort_by_key(|(batch, _)| *batch);
        let mut most = 0.0_f64;
        for (_, latency) in &mut points {
            most = most.max(*latency);
            *latency = most;
        }
        Self(points)
    }

    /// The most rows per second of the measured sizes that take at most `within_ms`.
    fn fastest_rps(&self, within_ms: f64) -> f64 {
        let within = self.0.iter().filter(|(_, latency)| *latency <= within_ms + 1e-9);
        let rates =
            within.map(|(batch, latency)| f64::from(*batch) / (latency + SWITCH_MS) * 1000.0);
        rates.fold(0.0, f64::max)
    }

    /// The most rows per second of any measured size; 0 if none.
    pub(super) fn peak_rps(&self) -> f64 {
        self.fastest_rps(f64::INFINITY)
    }

    /// The time of the smallest batch: what every turn costs, however few rows it has.
    pub(super) fn start_ms(&self) -> f64 {
        self.0.first().map_or(f64::INFINITY, |(_, latency)| *latency)
    }

    /// The time of `batch`, or nothing beyond the largest.
    pub(super) fn latency_ms(&self, batch: u32) -> Option<f64> {
        let above = self.0.partition_point(|(size, _)| *size < batch);
        let (size, latency) = *self.0.get(above)?;
        let Some((smaller, less)) = above.checked_sub(1).map(|below| self.0[below]) else {
            return Some(latency);
        };
        let along = f64::from(batch - smaller) / f64::from(size - smaller);
        Some(less + along * (latency - less))
    }
}

/// What every model can do on every type of slot.
#[derive(Clone, Debug)]
pub(super) struct Table {
    slots: usize,
    choices: Vec<Option<Choice>>,
    capacities: Vec<f64>,
    curves: Vec<Curve>,
    /// Per model, what a process needs by batch size, never falling.
    memory: Vec<Vec<(u32, f64)>>,
}

impl Table {
    pub(super) fn new(models: &[Model], hardware: &Hardware, rules: &Rules) -> Self {
        let mut table = Self {
            slots: hardware.slots.len(),
            choices: Vec::with_capacity(models.len() * hardware.slots.len()),
            capacities: Vec::new(),
            curves: Vec::with_capacity(models.len() * hardware.slots.len()),
            memory: models.iter().map(memory_by_batch).collect(),
        };
        for (index, model) in models.iter().enumerate() {
            for slot in &hardware.slots {
                let rows = usable(model, slot.kind, slot.profile, &table.memory[index]);
                let limit_ms = rules.latency_share * model.slo_ms;
                let rows: Vec<_> =
                    rows.into_iter().filter(|row| row.latency_ms <= limit_ms + 1e-9).collect();
                let solo = rows.iter().filter(|row| row.processes == 1);
                table
                    .curves
                    .push(Curve::new(solo.map(|row| (row.batch, row.latency_ms)).collect()));
                table.choices.push(best(&rows, rules.max_processes));
            }
        }
        let capacity = |choice: &Option<Choice>| choice.map_or(0.0, |choice| choice.capacity_rps);
        table.capacities = table.choices.iter().map(capacity).collect();
        table
    }

    pub(super) fn choice(&self, model: usize, slot: usize) -> Option<&Choice> {
        self.choices[model * self.slots + slot].as_ref()
    }

    /// Requests per second of a whole slot; 0 where the model cannot be.
    pub(super) fn capacity(&self, model: usize, slot: usize) -> f64 {
        self.capacities[model * self.slots + slot]
    }

    /// Of one model on every slot it has to itself.
    pub(super) fn capacities_of(&self, model: usize) -> &[f64] {
        &self.capacities[model * self.slots..(model + 1) * self.slots]
    }

    /// What turns are worth to every model on every slot at the very best, for a bound.
    ///
    /// In a round of length `C` a model has `l(b) / C` of the slot; `C + l(b)` is within the time its
    /// objective leaves and `b` is at least one row, so no turn takes less than the smallest batch
    /// does of the longest round.
    pub(super) fn turns_at_best(&self, models: &[Model], rules: &Rules) -> Vec<Turns> {
        let each = self.curves.iter().enumerate();
        each.map(|(index, curve)| {
            let limit_ms = 2.0 * rules.latency_share * models[index / self.slots].slo_ms;
            let own_ms = curve.start_ms() + SWITCH_MS;
            let least = if own_ms < limit_ms / 2.0 { own_ms / (limit_ms - own_ms) } else { 1.0 };
            Turns { rps: curve.peak_rps(), start: 0.0, least }
        })
        .collect()
    }

    /// What turns are likely to be worth to every model on every slot: a round is at most as long
    /// as the objective allows, and the smallest batch takes its part of it.
    pub(super) fn turns(&self, models: &[Model], rules: &Rules, part: f64) -> Vec<Turns> {
        let each = self.curves.iter().enumerate();
        each.map(|(index, curve)| {
            let round_ms = 2.0 * rules.latency_share * models[index / self.slots].slo_ms;
            let start = (curve.start_ms() / round_ms).min(1.0);
            Turns { rps: part * curve.peak_rps(), start, least: 0.0 }
        })
        .collect()
    }

    pub(super) fn curve(&self, model: usize, slot: usize) -> &Curve {
        &self.curves[model * self.slots + slot]
    }

    /// What one process of `model` needs for batches of `batch`.
    pub(super) fn memory_mib(&self, model: usize, batch: u32) -> f64 {
        need(&self.memory[model], batch)
    }
}

/// Every measured way to run `model` on each of these slices, within its objective or not.
pub(crate) fn ways(model: &Model, on: &[(&Kind, &Profile)]) -> Vec<Vec<Choice>> {
    let memory = memory_by_batch(model);
    on.iter().map(|(kind, profile)| usable(model, kind, profile, &memory)).collect()
}

/// The least time of a batch of `model` on any slice of these kinds; nothing if none was measured.
pub fn quickest_ms(model: &Model, kinds: &[&Kind]) -> Option<f64> {
    let memory = memory_by_batch(model);
    let profiles = kinds.iter().flat_map(|kind| kind.profiles.iter().map(|one| (*kind, one)));
    let choices = profiles.flat_map(|(kind, profile)| usable(model, kind, profile, &memory));
    choices.map(|choice| choice.latency_ms).reduce(f64::min)
}

fn best(rows: &[Choice], max_processes: u32) -> Option<Choice> {
    let allowed = rows.iter().filter(|row| row.processes <= max_processes);
    // The first of equals has the smaller batch and fewer processes.
    let mut allowed: Vec<_> = allowed.copied().collect();
    allowed.sort_by_key(|row| (row.batch, row.processes));
    allowed
        .into_iter()
        .reduce(|best, row| if row.capacity_rps > best.capacity_rps { row } else { best })
}

/// The measurements that hold for `profile` of `kind`.
///
/// A row of that very profile ran there, so it fits, unless the operator says what a process needs.
/// Where the profile was not measured, the largest measured one with no more compute stands in, and
/// must be shown to fit the memory.
fn usable(model: &Model, kind: &Kind, profile: &Profile, memory: &[(u32, f64)]) -> Vec<Choice> {
    let available_mib = profile.memory_gib * MIB_PER_GIB;
    let Some(measured) = measured_on(model, kind) else { return Vec::new() };
    let (name, exact) = stand_in(measured, profile);
    let max_batch = model.max_batch.unwrap_or(u32::MAX);
    let rows = measured.rows.iter().filter(|row| row.profile == name && row.batch <= max_batch);
    rows.filter(|row| {
        let needed = f64::from(row.processes) * need(memory, row.batch);
        (exact && model.memory_mib.is_none()) || needed <= available_mib
    })
    .map(|row| {
        let capacity_rps = row.throughput_rps / model.slowdown;
        let latency_ms = f64::from(row.batch * row.processes) / capacity_rps * 1000.0;
        Choice { batch: row.batch, processes: row.processes, capacity_rps, latency_ms }
    })
    .collect()
}

/// The measurements on `kind`, else those that name no kind.
pub(crate) fn measured_on<'m>(model: &'m Model, kind: &Kind) -> Option<&'m Measured> {
    let of = |name: Option<&str>| {
        model.measured.iter().find(|measured| measured.kind.as_deref() == name)
    };
    let of_cores = |measured: &&Measured| measured.kind.as_deref().is_some_and(is_cores);
    // Cores are alike, however many a device has.
    let other = || model.measured.iter().filter(|_| kind.is_cores()).find(of_cores);
    of(Some(&kind.name)).or_else(other).or_else(|| of(None))
}

fn is_cores(kind: &str) -> bool {
    mig::device(kind).is_ok_and(Kind::is_cores)
}

fn stand_in<'m>(measured: &'m Measured, profile: &Profile) -> (&'m str, bool) {
    let names = || measured.rows.iter().map(|row| row.profile.as_str());
    if let Some(exact) = names().find(|name| *name == profile.name) {
        return (exact, true);
    }
    let cores = |name: &str| mig::cores_of(name).is_some();
    let alike = names().filter(|name| cores(name) == cores(&profile.name));
    let within = alike.filter(|name| compute_slices(name) <= u32::from(profile.compute_slices));
    (within.max_by_key(|name| compute_slices(name)).unwrap_or_default(), false)
}

/// The 3 of `3g.40gb`, the 2 of `cpu:2`; where the name says nothing, more than any GPU has.
fn compute_slices(profile: &str) -> u32 {
    if let Some(cores) = mig::cores_of(profile) {
        return u32::from(cores);
    }
    profile.split_once('g').and_then(|(digits, _)| digits.parse().ok()).unwrap_or(u32::MAX)
}

/// What a process needs by batch size: what the operator says, else the least that the
/// measurements prove, since five abreast in 10 GiB need at most 2 GiB each.
fn memory_by_batch(model: &Model) -> Vec<(u32, f64)> {
    if let Some(stated) = model.memory_mib {
        return vec![(u32::MAX, stated as f64)];
    }
    let mut proofs: Vec<(u32, f64)> = Vec::new();
    for measured in &model.measured {
        for row in &measured.rows {
            let memory_mib = largest_memory_mib(measured, &row.profile) / f64::from(row.processes);
            proofs.push((row.batch, memory_mib));
        }
    }
    proofs.sort_by_key(|(batch, _)| std::cmp::Reverse(*batch));
    let mut least = f64::INFINITY;
    let mut by_batch: Vec<(u32, f64)> = Vec::new();
    for (batch, memory_mib) in proofs {
        least = least.min(memory_mib);
        by_batch.retain(|(known, _)| *known != batch);
        by_batch.push((batch, least));
    }
    by_batch.reverse();
    by_batch
}

fn need(by_batch: &[(u32, f64)], batch: u32) -> f64 {
    let at = by_batch.partition_point(|(size, _)| *size < batch);
    by_batch.get(at).map_or(f64::INFINITY, |(_, needed)| *needed)
}

/// The memory of a slice of that name; of the largest, where kinds differ and none was named.
fn largest_memory_mib(measured: &Measured, profile: &str) -> f64 {
    let of_kind = |kind: &&Kind| measured.kind.as_ref().is_none_or(|name| *name == kind.name);
    let profiles = kinds().iter().filter(of_kind).flat_map(|kind| &kind.profiles);
    let memory = profiles.filter(|known| known.name == profile).map(|known| known.memory_gib);
    memory.reduce(f64::max).unwrap_or(f64::INFINITY) * MIB_PER_GIB
}
