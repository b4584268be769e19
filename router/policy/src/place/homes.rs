//! Which devices a model may be on, where the fleet has GPUs and cores.

use mig::Kind;

use super::{Snapshot, situation::kinds};
use crate::plan::{Measured, Model, Row, Rules, measured_on};

/// The model with the home it has in this fleet, and only what was measured there.
///
/// One whose home no GPU of the fleet is may be anywhere.
pub(super) fn at_home(model: &Model, snapshot: &Snapshot) -> Model {
    let mut model = model.clone();
    let healthy = snapshot.gpus.iter().filter(|gpu| gpu.healthy);
    model.home = model.home.among(healthy.map(|gpu| gpu.kind));
    let kinds = kinds(snapshot);
    if !kinds.iter().any(|kind| kind.is_cores()) {
        return model;
    }
    let there = |kind: &&Kind| {
        let all = &measured_on(&model, kind)?.rows;
        let alike = |row: &&Row| mig::cores_of(&row.profile).is_some() == kind.is_cores();
        let mut rows: Vec<Row> = all.iter().filter(alike).cloned().collect();
        if kind.is_cores() {
            rows.extend(larger(&model, kind, &rows, &snapshot.rules));
        }
        (!rows.is_empty()).then(|| Measured { kind: Some(kind.name.clone()), rows })
    };
    let suited = kinds.iter().copied().filter(|kind| model.home.suits(kind));
    model.measured = suited.filter_map(|kind| there(&kind)).collect();
    model
}

/// What is expected of more cores than were tried, where those that were tried are too slow: as many
/// times as fast as there are more of them. Where that is not so, trying shows it.
fn larger(model: &Model, kind: &Kind, rows: &[Row], rules: &Rules) -> Vec<Row> {
    let cores = |row: &Row| mig::cores_of(&row.profile).unwrap_or(0);
    let most = rows.iter().map(cores).max().unwrap_or(0);
    let ms = |row: &Row| f64::from(row.batch * row.processes) / row.throughput_rps * 1e3;
    let limit_ms = rules.latency_share * model.slo_ms;
    if most == 0 || rows.iter().any(|row| ms(row) * model.slowdown <= limit_ms) {
        return Vec::new();
    }
    let tried: Vec<&Row> = rows.iter().filter(|row| cores(row) == most).collect();
    let untried = kind.profiles.iter().filter(|profile| profile.compute_slices > most);
    let expected = untried.flat_map(|profile| {
        let times = f64::from(profile.compute_slices) / f64::from(most);
        tried.iter().map(move |row| Row {
            profile: profile.name.clone(),
            throughput_rps: row.throughput_rps * times,
            ..(*row).clone()
        })
    });
    expected.collect()
}
