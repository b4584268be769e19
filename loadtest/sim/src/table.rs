//! Summaries as tables for people.

use loadtest::table::align;

use crate::{
    contest::{Contest, Entry},
    summary::{Ends, FollowingSummary, ModelSummary, Summary, TrainingSummary},
};

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
    let jobs = summary.training.as_ref().map_or(String::new(), of_jobs);
    let followed = summary.following.as_ref().map_or(String::new(), of_following);
    format!(
        "{}: {:.1} s by {}, seed {}, placement {}\n\
         {} of {} GPUs used, {:.1} % of their compute busy; {} requests, {} in time\n{jobs}{followed}\n{}",
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

fn of_jobs(training: &TrainingSummary) -> String {
    let TrainingSummary { order, tenants_kept, loans, gpus, jobs, .. } = training;
    format!(
        "{jobs} jobs on {gpus} GPUs of their own, order {order}, tenants {tenants_kept}, loans {loans}\n\
         completed after {:.2} h (median {:.2}, 99th {:.1}), queued for {:.2} h (at most {:.1})\n\
         {} preemptions, {} of them and of shrinks for inference, {:.1} GPU-hours done twice; \
         inference lacked {:.1} GPU-hours\n\
         tenants: Jain's index {:.3}, the worst had {:.2} of what it deserved\n",
        training.completion_h,
        training.completion_p50_h,
        training.completion_p99_h,
        training.queueing_h,
        training.longest_wait_h,
        training.preemptions,
        training.reclaims,
        training.lost_gpu_h,
        training.inference_short_gpu_h,
        training.jain,
        training.worst_tenant,
    )
}

fn of_following(following: &FollowingSummary) -> String {
    let FollowingSummary { gpu_hours, starts, stops, cuts, .. } = following;
    let part = |of: f64| gpu_hours / of.max(1e-9) * 100.0;
    format!(
        "{gpu_hours:.1} GPU-hours, {:.0} % of a static peak, {:.0} % of a clairvoyant; {starts} \
         replicas started, {stops} stopped, GPUs cut {cuts} times\n",
        part(following.static_peak_gpu_hours),
        part(following.clairvoyant_gpu_hours),
    )
}

/// All ways of a contest, one line each: means, and the bounds over seeds where they matter.
pub fn of_contest(contest: &Contest) -> String {
    let trains =
        contest.entries.iter().flat_map(|entry| &entry.runs).any(|run| run.training.is_some());
    if trains {
        return of_training_contest(contest);
    }
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

fn of_training_contest(contest: &Contest) -> String {
    let head = [
        contest.key.as_str(),
        "completion h",
        "median",
        "99th",
        "queueing h",
        "fleet used",
        "preemptions",
        "for inference",
        "lost GPU-h",
        "Jain",
        "worst tenant",
        "in time",
    ];
    let line = |entry: &Entry| {
        if let Some(why) = &entry.refused {
            return vec![entry.value.clone(), why.clone()];
        }
        let of = |part: fn(&TrainingSummary) -> f64, digits: usize| {
            let mean = entry.over(|run| run.training.as_ref().map_or(0.0, part)).mean;
            format!("{mean:.digits$}")
        };
        let asked = entry.runs.iter().any(|run| run.ends.offered > 0);
        let in_time = percent(entry.over(|run| run.ends.attainment()).mean);
        let in_time = if asked { in_time } else { "-".to_owned() };
        vec![
            entry.value.clone(),
            of(|training| training.completion_h, 2),
            of(|training| training.completion_p50_h, 2),
            of(|training| training.completion_p99_h, 1),
            of(|training| training.queueing_h, 2),
            percent(entry.over(|run| run.utilisation).mean),
            of(|training| training.preemptions as f64, 0),
            of(|training| training.reclaims as f64, 0),
            of(|training| training.lost_gpu_h, 1),
            of(|training| training.jain, 3),
            of(|training| training.worst_tenant, 2),
            in_time,
        ]
    };
    let rows: Vec<Vec<String>> = contest.entries.iter().map(line).collect();
    format!("{}\n\n{}", contest.scenario, align(&head.map(str::to_owned), &rows))
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
