//! Whether a plan is legal and serves its demand, by NVIDIA's facts and the measurements alone.
//!
//! Written from `profiles.json` and from the rules of the plan file. It shares nothing with the
//! planner but the values it is given: not even the tables of `mig`.

use std::collections::{BTreeMap, BTreeSet};

use policy::plan::{Model, Plan, Problem, Replica, Slice};
use serde_json::Value;

const FACTS: &str = include_str!("../../../../worker/mig/data/profiles.json");

pub(crate) fn problems(problem: &Problem, plan: &Plan) -> Vec<String> {
    let facts: Value = serde_json::from_str(FACTS).unwrap();
    let mut found = Vec::new();
    let mut by_gpu: BTreeMap<usize, Vec<&Slice>> = BTreeMap::new();
    for slice in &plan.slices {
        by_gpu.entry(slice.gpu).or_default().push(slice);
    }
    if by_gpu.len() != plan.gpus_used as usize {
        found.push(format!("{} GPUs used, {} said", by_gpu.len(), plan.gpus_used));
    }
    let kinds: Vec<&str> = problem
        .fleet
        .iter()
        .flat_map(|gpus| std::iter::repeat_n(gpus.kind.name.as_str(), gpus.count as usize))
        .collect();
    for (gpu, slices) in &by_gpu {
        match kinds.get(*gpu) {
            Some(kind) => geometry(&facts["gpus"][kind], slices, &mut found),
            None => found.push(format!("no GPU {gpu}")),
        }
        for slice in slices {
            let facts = profile(&facts["gpus"][slice.kind], &slice.position.profile().name);
            tenants(problem, slice, facts, &mut found);
        }
    }
    for (index, model) in problem.models.iter().enumerate() {
        served(index, model, plan, &mut found);
    }
    found
}

fn profile<'a>(kind: &'a Value, name: &str) -> &'a Value {
    let profiles = kind["profiles"].as_array().unwrap();
    profiles.iter().find(|profile| profile["name"] == name).unwrap_or(&Value::Null)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Starts, overlap, compute, and how many of each profile.
fn geometry(kind: &Value, slices: &[&Slice], found: &mut Vec<String>) {
    let mut taken = BTreeSet::new();
    let mut compute = 0;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut media = 0;
    for slice in slices {
        let name = slice.position.profile().name.as_str();
        let facts = profile(kind, name);
        if facts.is_null() {
            found.push(format!("gpu {}: no profile {name}", slice.gpu));
            continue;
        }
        let start = u64::from(slice.position.start());
        if !facts["placement_starts"].as_array().unwrap().contains(&start.into()) {
            found.push(format!("gpu {}: {name} cannot start at {start}", slice.gpu));
        }
        for memory_slice in start..start + number(facts, "memory_slices") {
            if memory_slice >= number(kind, "memory_slices") || !taken.insert(memory_slice) {
                found.push(format!("gpu {}: {name} at {start} has no room", slice.gpu));
            }
        }
        compute += number(facts, "compute_slices");
        media += u64::from(facts["media_extensions"] == true);
        *counts.entry(name).or_default() += 1;
        if counts[name] > number(facts, "max_instances") {
            found.push(format!("gpu {}: too many {name}", slice.gpu));
        }
    }
    if compute > number(kind, "compute_slices") || media > 1 {
        found.push(format!("{compute} compute slices and {media} media engines"));
    }
}

/// One batch's time of one process alone, by straight lines between what was measured.
fn solo_ms(model: &Model, slice: &Slice, batch: u32) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = rows(model, slice)
        .filter(|row| row.1 == 1)
        .map(|(size, _, rps)| (f64::from(size), f64::from(size) / rps * 1000.0))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let batch = f64::from(batch);
    let above = points.iter().find(|(size, _)| *size >= batch)?;
    let below = points.iter().rev().find(|(size, _)| *size <= batch).unwrap_or(above);
    let along = if above.0 > below.0 { (batch - below.0) / (above.0 - below.0) } else { 0.0 };
    Some(below.1 + along * (above.1 - below.1))
}

/// Batch, processes and requests per second of what was measured on this slice, or on the largest
/// measured profile with no more compute.
fn rows(model: &Model, slice: &Slice) -> impl Iterator<Item = (u32, u32, f64)> {
    let of_kind = model.measured.iter().find(|one| one.kind.as_deref() == Some(slice.kind));
    let measured = of_kind.or_else(|| model.measured.iter().find(|one| one.kind.is_none()));
    let rows = measured.map_or(&[][..], |measured| &measured.rows);
    let compute = |name: &str| name.split('g').next().unwrap().parse::<u32>().unwrap();
    let name = slice.position.profile().name.as_str();
    let exact = rows.iter().find(|row| row.profile == name).map(|row| row.profile.as_str());
    let smaller = rows.iter().map(|row| row.profile.as_str());
    let smaller =
        smaller.filter(|other| compute(other) <= compute(name)).max_by_key(|other| compute(other));
    let name = exact.or(smaller).unwrap_or_default().to_owned();
    let max_batch = model.max_batch.unwrap_or(u32::MAX);
    rows.iter()
        .filter(move |row| row.profile == name && row.batch <= max_batch)
        .map(|row| (row.batch, row.processes, row.throughput_rps))
}

/// Memory, and whether every tenant's claims follow from what was measured.
fn tenants(problem: &Problem, slice: &Slice, facts: &Value, found: &mut Vec<String>) {
    let mut told =
        |what: String| found.push(format!("gpu {} {}: {what}", slice.gpu, slice.position));
    let distinct: BTreeSet<usize> = slice.replicas.iter().map(|replica| replica.model).collect();
    if slice.replicas.is_empty() || distinct.len() < slice.replicas.len() {
        told("nobody, or somebody twice".to_owned());
    }
    let memory_mib = facts["memory_gib"].as_f64().unwrap() * 1024.0;
    let needed = |replica: &Replica| {
        let each = problem.models[replica.model].memory_mib.unwrap_or(0);
        each as f64 * f64::from(replica.processes)
    };
    if slice.replicas.iter().map(needed).sum::<f64>() > memory_mib {
        told("out of memory".to_owned());
    }
    let share = problem.rules.latency_share;
    let round_ms: f64 = slice.replicas.iter().map(|replica| replica.latency_ms).sum();
    for replica in &slice.replicas {
        let model = &problem.models[replica.model];
        let alone = slice.replicas.len() == 1;
        let limit_ms = if alone { share } else { 2.0 * share } * model.slo_ms + 1e-6;
        if alone {
            let (batch, processes) = (replica.batch, replica.processes);
            let row = rows(model, slice).find(|row| (row.0, row.1) == (batch, processes));
            let rps = row.map_or(0.0, |row| row.2);
            let latency_ms = f64::from(batch * processes) / rps * 1000.0;
            if replica.capacity_rps > rps + 1e-6 || replica.latency_ms < latency_ms - 1e-6 {
                told(format!("{} promises more than was measured", model.name));
            }
            if latency_ms > limit_ms || processes > problem.rules.max_processes {
                told(format!("{} takes {latency_ms} of {limit_ms} ms", model.name));
            }
        } else {
            let own_ms = solo_ms(model, slice, replica.batch).unwrap_or(f64::INFINITY);
            if replica.latency_ms < own_ms - 1e-6 || replica.processes != 1 {
                told(format!("{} promises more than was measured", model.name));
            }
            if round_ms + replica.latency_ms > limit_ms {
                told(format!("{} waits {round_ms} ms for its turn", model.name));
            }
            if replica.capacity_rps > f64::from(replica.batch) / round_ms * 1000.0 + 1e-6 {
                told(format!("{} has fewer turns than it says", model.name));
            }
        }
    }
}

/// Capacity against demand, and the number of replicas.
fn served(index: usize, model: &Model, plan: &Plan, found: &mut Vec<String>) {
    let replicas = || plan.slices.iter().flat_map(|slice| &slice.replicas);
    let own = replicas().filter(|replica| replica.model == index);
    let capacity: f64 = own.clone().map(|replica| replica.capacity_rps).sum();
    let count = own.count() as u32;
    if capacity < model.demand_rps * (1.0 - 1e-9) {
        found.push(format!("{}: {capacity} of {} requests/s", model.name, model.demand_rps));
    }
    if !(model.replicas_min..=model.replicas_max).contains(&count) {
        found.push(format!("{}: {count} replicas", model.name));
    }
}
