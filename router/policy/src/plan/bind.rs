//! From counts to GPUs, positions and reasons.
//!
//! What runs now stays where it is as far as the counts allow. The rest is dealt out so that the
//! replicas of a model are as far apart as can be: a GPU that fails takes few of each, and no GPU is
//! full of the one model that draws most power. Ties go by index, so that the same counts are bound
//! in the same way.

use std::collections::{BTreeMap, VecDeque};

use super::{
    Plan, Replica, Slice,
    assign::{ShapedGpu, shape_gpus},
    fill::Terms,
    outcome::Bounds,
    search::Found,
};

type Tenants = Vec<usize>;

/// The replicas of a slice that is still to be put somewhere.
type Copies = Vec<Replica>;

pub(super) fn bind(terms: &Terms<'_>, found: &Found, current: &[Slice], bounds: Bounds) -> Plan {
    let hardware = terms.hardware;
    let mut waiting = Waiting::new(terms, found);
    let running = Running::new(terms, current);
    let shaped = shape_gpus(hardware, &found.counts, &running.worth_keeping(terms, &waiting));
    let mut slices = Vec::new();
    let mut open: Vec<(&ShapedGpu<'_>, usize)> = Vec::new();
    for gpu in &shaped {
        for (index, (position, slot)) in gpu.layout.places.iter().enumerate() {
            let place = (gpu.gpu, position.start());
            let same = |(profile, tenants): &(usize, Tenants)| {
                if profile == slot { waiting.take_same(*slot, tenants) } else { None }
            };
            match running.0.get(&place).and_then(same) {
                Some(replicas) => slices.push(slice(terms, gpu, index, replicas)),
                None => open.push((gpu, index)),
            }
        }
    }
    // GPUs that keep something are filled up before others are begun.
    let in_use: Vec<usize> = slices.iter().map(|slice: &Slice| slice.gpu).collect();
    open.sort_by_key(|(gpu, index)| (in_use.binary_search(&gpu.gpu).is_err(), gpu.gpu, *index));
    for (gpu, index) in open {
        if let Some(replicas) = waiting.take_next(gpu.layout.places[index].1) {
            slices.push(slice(terms, gpu, index, replicas));
        }
    }
    Plan::new(slices, bounds)
}

fn slice(terms: &Terms<'_>, gpu: &ShapedGpu<'_>, index: usize, replicas: Copies) -> Slice {
    let (position, slot) = gpu.layout.places[index];
    Slice { gpu: gpu.gpu, kind: &terms.hardware.slots[slot].kind.name, position, replicas }
}

/// What runs now: type of slot and tenants, by GPU and start.
struct Running(BTreeMap<(usize, u8), (usize, Tenants)>);

impl Running {
    fn new(terms: &Terms<'_>, current: &[Slice]) -> Self {
        let pool_of =
            |kind: &str| terms.hardware.pools.iter().position(|pool| pool.kind.name == kind);
        let mut running = BTreeMap::new();
        for slice in current.iter().filter(|slice| !slice.replicas.is_empty()) {
            let slot = pool_of(slice.kind)
                .and_then(|pool| terms.hardware.slot(pool, slice.position.profile()));
            if let Some(slot) = slot {
                let place = (slice.gpu, slice.position.start());
                running.insert(place, (slot, tenants(&slice.replicas)));
            }
        }
        Self(running)
    }

    /// By GPU, the mask of the slices of which some number is still wanted.
    fn worth_keeping(&self, terms: &Terms<'_>, waiting: &Waiting) -> BTreeMap<usize, u64> {
        let mut kept = BTreeMap::new();
        for ((gpu, start), (slot, tenants)) in &self.0 {
            let slot_type = &terms.hardware.slots[*slot];
            let position = mig::Position::new(slot_type.profile, *start);
            if let Ok(position) = position
                && waiting.wants(*slot, tenants)
            {
                *kept.entry(*gpu).or_insert(0) |=
                    terms.hardware.pools[slot_type.pool].bit(position);
            }
        }
        kept
    }
}

/// What is still to be put somewhere, by type of slot.
struct Waiting {
    /// In the order in which it is dealt out; taken ones are empty.
    loads: Vec<VecDeque<Option<Copies>>>,
    /// Where those with the same tenants are, the last first.
    same: Vec<BTreeMap<Tenants, Vec<usize>>>,
    /// How many were dealt from the front of each.
    dealt: Vec<usize>,
}

impl Waiting {
    fn new(terms: &Terms<'_>, found: &Found) -> Self {
        let loads: Vec<Vec<Copies>> = loads(terms, found).into_iter().map(spread).collect();
        let mut same = vec![BTreeMap::new(); loads.len()];
        for (slot, loads) in loads.iter().enumerate() {
            for (index, load) in loads.iter().enumerate().rev() {
                let of: &mut Vec<usize> = same[slot].entry(tenants(load)).or_default();
                of.push(index);
            }
        }
        let dealt = vec![0; loads.len()];
        let loads = loads.into_iter().map(|loads| loads.into_iter().map(Some).collect()).collect();
        Self { loads, same, dealt }
    }

    fn wants(&self, slot: usize, tenants: &Tenants) -> bool {
        self.same[slot].get(tenants).is_some_and(|left| !left.is_empty())
    }

    fn take_same(&mut self, slot: usize, tenants: &Tenants) -> Option<Copies> {
        let index = self.same[slot].get_mut(tenants)?.pop()?;
        self.loads[slot][index].take()
    }

    fn take_next(&mut self, slot: usize) -> Option<Copies> {
        while let Some(load) = self.loads[slot].get_mut(self.dealt[slot]) {
            self.dealt[slot] += 1;
            if let Some(load) = load.take() {
                return Some(load);
            }
        }
        None
    }
}

fn tenants(replicas: &[Replica]) -> Tenants {
    let mut tenants: Tenants = replicas.iter().map(|replica| replica.model).collect();
    tenants.sort_unstable();
    tenants
}

/// Puts loads with the same tenants as far apart as can be.
fn spread(mut loads: Vec<Copies>) -> Vec<Copies> {
    loads.sort_by_key(|load| tenants(load));
    let mut keyed: Vec<(f64, Copies)> = Vec::with_capacity(loads.len());
    for alike in loads.chunk_by(|a, b| tenants(a) == tenants(b)) {
        let each = alike.iter().enumerate();
        keyed.extend(
            each.map(|(index, load)| ((index as f64 + 0.5) / alike.len() as f64, load.clone())),
        );
    }
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    keyed.into_iter().map(|(_, load)| load).collect()
}

/// The tenants of every slot, by type of slot.
fn loads(terms: &Terms<'_>, found: &Found) -> Vec<Vec<Copies>> {
    let mut loads = vec![Vec::new(); terms.hardware.slots.len()];
    for (model, slot, count) in &found.filling.whole {
        let load = alone(terms, *model, *slot);
        loads[*slot].extend(std::iter::repeat_n(load, *count as usize));
    }
    for shared in &found.filling.shared {
        loads[shared.slot].push(match shared.tenants.as_slice() {
            [(model, _)] => alone(terms, *model, shared.slot),
            tenants => in_turn(terms, shared.slot, tenants),
        });
    }
    loads
}

pub(super) fn alone(terms: &Terms<'_>, model: usize, slot: usize) -> Vec<Replica> {
    let choice = terms.demand.table.choice(model, slot);
    let limit_ms = terms.latency_share * terms.demand.models[model].slo_ms;
    let profile = &terms.hardware.slots[slot].profile.name;
    choice
        .map(|choice| Replica {
            model,
            batch: choice.batch,
            processes: choice.processes,
            capacity_rps: choice.capacity_rps,
            latency_ms: choice.latency_ms,
            worst_ms: 2.0 * choice.latency_ms,
            slowdown: terms.demand.models[model].slowdown,
            why: format!(
                "has {profile} to itself: of what was measured, batches of {} in {} \
                 serve most of those within {limit_ms:.1} ms",
                choice.batch,
                if choice.processes == 1 {
                    "one process".to_owned()
                } else {
                    format!("{} processes", choice.processes)
                }
            ),
        })
        .into_iter()
        .collect()
}

fn in_turn(terms: &Terms<'_>, slot: usize, tenants: &[(usize, f64)]) -> Vec<Replica> {
    let Some(round) = terms.round(slot, tenants) else { return Vec::new() };
    let name = |model: usize| terms.demand.models[model].name.as_str();
    let profile = &terms.hardware.slots[slot].profile.name;
    let each = tenants.iter().zip(&round.batches).zip(&round.latencies_ms);
    each.map(|(((model, rate_rps), batch), latency_ms)| {
        let others = tenants.iter().filter(|(other, _)| other != model);
        let others: Vec<&str> = others.map(|(other, _)| name(*other)).collect();
        let worst_ms = round.length_ms + latency_ms;
        let limit_ms = 2.0 * terms.latency_share * terms.demand.models[*model].slo_ms;
        Replica {
            model: *model,
            batch: *batch,
            processes: 1,
            capacity_rps: f64::from(*batch) / round.length_ms * 1000.0,
            latency_ms: *latency_ms,
            worst_ms,
            slowdown: terms.demand.models[*model].slowdown,
            why: format!(
                "{rate_rps:.1} rows/s do not fill {profile}: takes turns with {}; a round of \
                 {:.1} ms and its own batch are {worst_ms:.1} ms of {limit_ms:.1} ms",
                others.join(", "),
                round.length_ms
            ),
        }
    })
    .collect()
}
