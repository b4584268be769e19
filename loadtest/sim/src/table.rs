//! Summaries as tables for people.

use loadtest::table::align;

use crate::{
    contest::{Contest, Entry},
    summary::{Ends, ModelSummary, Summary},
};

/// One run.
pub fn of_run(summary: &Summary) -> String {
    let head = [
        "model",
        "SLO ms",
        "offered/s",
        "in time",
        "target",
        "",
        "goodput/s",
        "late",
        "refused",
        "failed",
        "batch",
        "p50 ms",
        "p99 ms",
        "replicas",
    ];
    let seconds = summary.simulated_s.max(1e-9);
    let row = |model: &ModelSummary| {
        let Ends { offered, late, refused, failed, .. } = model.ends;
        vec![
            model.name.clone(),
            format!("{}", model.slo_ms),
            format!("{:.1}", offered as f64 / seconds),
            percent(model.attainment),
            percent(model.target),
            if model.met() { "met" } else { "MISSED" }.to_owned(),
            format!("{:.1}", model.goodput_rps),
            share(late, offered),
            share(refused, offered),
            share(failed, offered),
            format!("{:.1}", model.mean_batch),
            millis(model.p50_ms),
            millis(model.p99_ms),
            model.replicas.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = summary.models.iter().map(row).collect();
    let ends = summary.ends;
    format!(
        "{}: {:.1} s by {}, seed {}, placement {}\n\
         {} of {} GPUs used, {:.1} % of their compute busy; {} requests, {} in time\n\n{}",
        summary.scenario,
        summary.simulated_s,
        summary.detail,
        summary.seed,
        summary.placement,
        summary.gpus_used,
        summary.gpus,
        summary.utilisation * 100.0,
        ends.offered,
        percent(ends.attainment()),
        align(&head.map(str::to_owned), &rows)
    )
}

/// All ways of a contest, one line each: means, and the bounds over seeds where they matter.
pub fn of_contest(contest: &Contest) -> String {
    let head = [
        contest.key.as_str(),
        "in time",
        "least",
        "most",
        "goodput/s",
        "late",
        "refused",
        "failed",
        "batch",
        "models met",
        "GPUs",
        "busy",
    ];
    let rows: Vec<Vec<String>> = contest.entries.iter().map(line).collect();
    let seeds = contest.entries.iter().map(|entry| entry.runs.len()).max().unwrap_or(0);
    format!("{}, {seeds} seeds\n\n{}", contest.scenario, align(&head.map(str::to_owned), &rows))
}

fn line(entry: &Entry) -> Vec<String> {
    if let Some(why) = &entry.refused {
        return vec![entry.value.clone(), why.clone()];
    }
    let attainment = entry.over(|run| run.ends.attainment());
    let part = |of: fn(&Ends) -> u64| {
        percent(entry.over(|run| of(&run.ends) as f64 / run.ends.offered.max(1) as f64).mean)
    };
    let batch = |run: &Summary| {
        let rows: f64 = run.models.iter().map(|model| model.ends.in_time as f64).sum();
        let batches: f64 = run
            .models
            .iter()
            .map(|model| model.ends.in_time as f64 / model.mean_batch.max(1.0))
            .sum();
        rows / batches.max(1.0)
    };
    let models = entry.runs.first().map_or(0, |run| run.models.len());
    vec![
        entry.value.clone(),
        percent(attainment.mean),
        percent(attainment.low),
        percent(attainment.high),
        format!("{:.1}", entry.over(Summary::goodput_rps).mean),
        part(|ends| ends.late),
        part(|ends| ends.refused),
        part(|ends| ends.failed),
        format!("{:.1}", entry.over(batch).mean),
        format!("{:.1}/{models}", entry.over(|run| run.models_met() as f64).mean),
        format!("{:.1}", entry.over(|run| run.gpus_used as f64).mean),
        percent(entry.over(|run| run.utilisation).mean),
    ]
}

fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

fn share(count: u64, of: u64) -> String {
    percent(count as f64 / of.max(1) as f64)
}

fn millis(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
}
