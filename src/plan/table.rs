//! A plan as text: a picture of every GPU, then replicas and headroom.

use std::fmt::Write;

use policy::plan::{Plan, Problem, Slice};

use super::Outcome;

/// Characters of one memory slice in the picture.
const CELL: usize = 9;
/// With more slices than this only the models are listed; the rest is for scripts.
const MOST_SLICES: usize = 200;
/// With more GPUs that look different than this, the others are counted.
const MOST_PICTURES: usize = 32;

pub(super) fn plan(problem: &Problem, plan: &Plan, explain: bool) -> String {
    let fleet: u32 = problem.fleet.iter().map(|gpus| gpus.count).sum();
    let mut text = format!("{} of {fleet} GPUs", plan.gpus_used);
    if plan.gpus_used == plan.fewest_gpus() {
        text += ", which is the fewest possible";
    } else {
        write!(text, "; no plan uses fewer than {}", plan.fewest_gpus()).expect("strings grow");
    }
    writeln!(text, " (fractional bound {:.2})", plan.lower_bound_gpus).expect("strings grow");
    if problem.rules.spare_gpus > 0 {
        writeln!(text, "{} GPUs of each kind kept free", problem.rules.spare_gpus)
            .expect("strings grow");
    }
    text += "\n";
    text += &pictures(problem, plan);
    if plan.slices.len() <= MOST_SLICES {
        text += &replicas(problem, plan, explain);
    }
    text + &models(problem, plan)
}

pub(super) fn comparison(outcomes: &[Outcome]) -> String {
    let titles = ["planner", "GPUs", "slices", "models slowed", "seconds"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let (gpus, slices, slowed) = match &outcome.planned {
            Ok(plan) => (
                plan.gpus_used.to_string(),
                plan.slices.len().to_string(),
                outcome.slowed.to_string(),
            ),
            Err(_) => ("too few".to_owned(), "-".to_owned(), "-".to_owned()),
        };
        let seconds = format!("{:.4}", outcome.seconds);
        rows.push(vec![outcome.planner.name().to_owned(), gpus, slices, slowed, seconds]);
    }
    format!("\n{}", aligned(&rows, 1))
}

/// Each GPU as a bar of memory slices; GPUs that look the same in a row are drawn once.
fn pictures(problem: &Problem, plan: &Plan) -> String {
    let mut text = String::new();
    let mut drawn: Vec<(usize, usize, String)> = Vec::new();
    for slices in plan.slices.chunk_by(|a, b| a.gpu == b.gpu) {
        let Some(first) = slices.first() else { continue };
        let picture = picture(problem, slices);
        match drawn.last_mut() {
            Some((_, last, same)) if *same == picture && *last + 1 == first.gpu => {
                *last = first.gpu;
            }
            Some(_) | None => drawn.push((first.gpu, first.gpu, picture)),
        }
    }
    let left: usize = drawn.iter().skip(MOST_PICTURES).map(|(from, to, _)| to - from + 1).sum();
    for (from, to, picture) in drawn.into_iter().take(MOST_PICTURES) {
        let numbers =
            if from == to { format!("gpu {from}") } else { format!("gpus {from} to {to}") };
        text += &format!("{numbers}, {picture}\n");
    }
    if left > 0 {
        text += &format!("and {left} more GPUs; --format json lists them all\n\n");
    }
    text
}

fn picture(problem: &Problem, slices: &[Slice]) -> String {
    let Some(first) = slices.first() else { return String::new() };
    let width = mig::device(first.kind).map_or(8, |kind| usize::from(kind.memory_slices));
    let (mut profiles, mut tenants) = ("|".to_owned(), "|".to_owned());
    let mut at = 0;
    let draw = |text: &str, cells: usize| format!("{:<1$.1$}|", text, cells * CELL - 1);
    for slice in slices {
        let start = usize::from(slice.position.start());
        if start > at {
            profiles += &draw(" free", start - at);
            tenants += &draw("", start - at);
        }
        let cells = usize::from(slice.position.profile().memory_slices);
        let names: Vec<&str> =
            slice.replicas.iter().map(|one| problem.models[one.model].name.as_str()).collect();
        profiles += &draw(&format!(" {}", slice.position.profile().name), cells);
        tenants += &draw(&format!(" {}", names.join(" + ")), cells);
        at = usize::from(slice.position.end());
    }
    if at < width {
        profiles += &draw(" free", width - at);
        tenants += &draw("", width - at);
    }
    format!("{}\n  {profiles}\n  {tenants}\n", first.kind)
}

fn replicas(problem: &Problem, plan: &Plan, explain: bool) -> String {
    let titles =
        ["slice", "model", "batch", "processes", "rows/s", "batch ms", "at most ms", "slo ms"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for slice in &plan.slices {
        let label = mig::slice_label(slice.gpu, slice.position);
        for (index, replica) in slice.replicas.iter().enumerate() {
            let model = &problem.models[replica.model];
            let mut row = vec![
                if index == 0 { label.clone() } else { String::new() },
                model.name.clone(),
                replica.batch.to_string(),
                replica.processes.to_string(),
                format!("{:.1}", replica.capacity_rps),
                format!("{:.1}", replica.latency_ms),
                format!("{:.1}", replica.worst_ms),
                format!("{:.1}", model.slo_ms),
            ];
            if explain {
                row.push(format!("  {}", replica.why));
            }
            rows.push(row);
        }
    }
    aligned(&rows, 2) + "\n"
}

fn models(problem: &Problem, plan: &Plan) -> String {
    let titles =
        ["model", "replicas", "demand/s", "capacity/s", "headroom", "at most ms", "slo ms"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for (index, model) in problem.models.iter().enumerate() {
        let capacity = plan.capacity_rps(index);
        let spare = (capacity / model.demand_rps - 1.0) * 100.0;
        let worst = plan.replicas(index).map(|replica| replica.worst_ms).fold(0.0, f64::max);
        rows.push(vec![
            model.name.clone(),
            plan.replicas(index).count().to_string(),
            format!("{:.1}", model.demand_rps),
            format!("{capacity:.1}"),
            if spare.is_finite() { format!("{spare:.1} %") } else { "-".to_owned() },
            format!("{worst:.1}"),
            format!("{:.1}", model.slo_ms),
        ]);
    }
    aligned(&rows, 1)
}

/// Columns as wide as they need be, the first `words` of them to the left, numbers to the right.
fn aligned(rows: &[Vec<String>], words: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let titled = rows.first().map_or(0, Vec::len);
    let mut text = String::new();
    for row in rows {
        let cell = |(column, cell): (usize, &String)| {
            if column < words || column >= titled {
                format!("{cell:<width$}", width = widths[column])
            } else {
                format!("{cell:>width$}", width = widths[column])
            }
        };
        let line: Vec<String> = row.iter().enumerate().map(cell).collect();
        text += line.join("  ").trim_end();
        text += "\n";
    }
    text
}
