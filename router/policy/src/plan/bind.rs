//! From counts to GPUs, positions and reasons.
//!
//! GPUs are taken by index, slices by start, models by index, so that the same counts are bound in
//! the same way. What stays free is at the end of the last GPUs.

use super::{Plan, Replica, Slice, fill::Terms, search::Found};

pub(super) fn bind(terms: &Terms<'_>, found: &Found, bound: f64, fractional_bound: f64) -> Plan {
    let hardware = terms.hardware;
    let mut waiting = loads(terms, found);
    let mut next_gpu = vec![0; hardware.pools.len()];
    let mut slices = Vec::new();
    for (shape, count) in hardware.shapes.iter().zip(&found.counts) {
        let pool = &hardware.pools[shape.pool];
        for _ in 0..*count {
            let gpu = pool.gpus[next_gpu[shape.pool]];
            let before = slices.len();
            for position in &shape.layout {
                let same = |slot: &super::hardware::Slot| {
                    slot.pool == shape.pool && slot.profile.name == position.profile().name
                };
                let slot = hardware.slots.iter().position(same);
                let Some(replicas) = slot.and_then(|slot| waiting[slot].pop()) else { continue };
                slices.push(Slice { gpu, kind: &pool.kind.name, position: *position, replicas });
            }
            next_gpu[shape.pool] += usize::from(slices.len() > before);
        }
    }
    Plan::new(slices, bound, fractional_bound)
}

/// The tenants of every slot, by type of slot, the last to be bound first.
fn loads(terms: &Terms<'_>, found: &Found) -> Vec<Vec<Vec<Replica>>> {
    let mut loads = vec![Vec::new(); terms.hardware.slots.len()];
    for (model, slot, count) in &found.filling.whole {
        for _ in 0..*count {
            loads[*slot].push(alone(terms, *model, *slot));
        }
    }
    for shared in &found.filling.shared {
        loads[shared.slot].push(match shared.tenants.as_slice() {
            [(model, _)] => alone(terms, *model, shared.slot),
            tenants => in_turn(terms, shared.slot, tenants),
        });
    }
    for of_slot in &mut loads {
        of_slot.sort_by_key(|replicas| replicas.first().map(|replica| replica.model));
        of_slot.reverse();
    }
    loads
}

/// The only replica of a slice.
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
            why: format!(
                "has {profile} to itself: of what was measured, batches of {} in {} processes \
                 serve most of those within {limit_ms:.1} ms",
                choice.batch, choice.processes
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
            why: format!(
                "{rate_rps:.1} requests/s do not fill {profile}: takes turns with {}; a round of \
                 {:.1} ms and its own batch are {worst_ms:.1} ms of {limit_ms:.1} ms",
                others.join(", "),
                round.length_ms
            ),
        }
    })
    .collect()
}
