//! Summaries as one page that needs nothing else.

use std::fmt::Write;

use loadtest::{
    html::{CLASSES, page},
    plot::{Axis, Mark, Plot, Series, escape},
};

use crate::{
    contest::{Contest, Entry},
    summary::{FollowingSummary, Holding, Point, Stretch, Summary, TrainingSummary},
    table,
};

/// A title, a unit, and what is shown.
type Figure = (&'static str, &'static str, fn(&Summary) -> f64);

const TRAINING: [Figure; 8] = [
    ("Mean completion of jobs", "h", |run| of_jobs(run, |jobs| jobs.completion_h)),
    ("99th percentile of completion", "h", |run| of_jobs(run, |jobs| jobs.completion_p99_h)),
    ("Mean queueing of jobs", "h", |run| of_jobs(run, |jobs| jobs.queueing_h)),
    ("GPUs used", "%", |run| run.utilisation * 100.0),
    ("Preemptions", "jobs", |run| of_jobs(run, |jobs| jobs.preemptions as f64)),
    ("Work done twice", "GPU-hours", |run| of_jobs(run, |jobs| jobs.lost_gpu_h)),
    ("Jain's index over tenants", "", |run| of_jobs(run, |jobs| jobs.jain)),
    ("Requests in time", "%", |run| run.ends.attainment() * 100.0),
];

fn of_jobs(run: &Summary, of: fn(&TrainingSummary) -> f64) -> f64 {
    run.training.as_ref().map_or(0.0, of)
}

pub fn of_run(summary: &Summary) -> String {
    let mut body = format!("<pre>{}</pre>\n", escape(&table::of_run(summary)));
    if !summary.models.is_empty() {
        body.push_str(&over_time(&[("in time", summary)]).render());
        body.push_str(&by_model(summary).render());
    }
    if let Some(following) = &summary.following {
        body.push_str(&followed(following).render());
    }
    if let Some(training) = &summary.training {
        body.push_str(&holdings(training).render());
    }
    page(&format!("{}, simulated", summary.scenario), &body)
}

pub fn of_contest(contest: &Contest) -> String {
    let mut body = format!("<pre>{}</pre>\n", escape(&table::of_contest(contest)));
    let ran: Vec<&Entry> = contest.entries.iter().filter(|entry| !entry.runs.is_empty()).collect();
    let figures: [Figure; 4] = [
        ("Requests in time", "%", |run| run.ends.attainment() * 100.0),
        ("Answered in time per second", "requests/s", Summary::goodput_rps),
        ("GPUs used", "GPUs", |run| run.gpus_used as f64),
        ("Compute busy of the GPUs used", "%", |run| run.utilisation * 100.0),
    ];
    let trains = ran.iter().any(|entry| entry.runs[0].training.is_some());
    for (title, unit, of) in if trains { TRAINING.as_slice() } else { &figures } {
        body.push_str(&bars(title, unit, &ran, *of).render());
    }
    let firsts: Vec<(&str, &Summary)> =
        ran.iter().map(|entry| (entry.value.as_str(), &entry.runs[0])).collect();
    if ran.iter().any(|entry| !entry.runs[0].models.is_empty()) {
        body.push_str(&over_time(&firsts).render());
    }
    for (name, training) in
        firsts.iter().filter_map(|(name, run)| Some((name, run.training.as_ref()?)))
    {
        let mut plot = holdings(training);
        plot.title = format!("{}: {}", name, plot.title);
        body.push_str(&plot.render());
    }
    let _ = writeln!(body, "<p>Bars are means over seeds; lines are the first seed's.</p>");
    page(&format!("{}: {} compared", contest.scenario, contest.key), &body)
}

fn bars(title: &str, unit: &str, entries: &[&Entry], of: fn(&Summary) -> f64) -> Plot {
    let means: Vec<f64> = entries.iter().map(|entry| entry.over(of).mean).collect();
    let marks = entries.iter().enumerate();
    let marks = marks.map(|(index, entry)| (index as f64 + 0.5, escape(&entry.value)));
    let top = means.iter().copied().fold(0.0, f64::max) * 1.1;
    let series = means.iter().enumerate().map(|(index, mean)| Series {
        name: entries[index].value.clone(),
        class: CLASSES[index % CLASSES.len()],
        mark: Mark::Bars,
        points: vec![(index as f64 + 0.5, *mean)],
    });
    Plot {
        title: title.to_owned(),
        x: Axis::marked("", entries.len() as f64, marks.collect()),
        y: Axis::even(unit, 0.0, top),
        series: series.collect(),
        level: None,
    }
}

/// What was offered, and what of it each way answered in time.
fn over_time(runs: &[(&str, &Summary)]) -> Plot {
    let line = |name: &str, class, summary: &Summary, of: fn(&Point) -> f64| Series {
        name: name.to_owned(),
        class,
        mark: Mark::Line,
        points: summary.timeline.iter().map(|point| (point.at_s, of(point))).collect(),
    };
    let mut series: Vec<Series> = Vec::new();
    if let Some((_, first)) = runs.first() {
        series.push(line("offered", "other", first, |point| point.offered_rps));
    }
    for (index, (name, summary)) in runs.iter().enumerate() {
        let class = CLASSES[index % (CLASSES.len() - 1)];
        series.push(line(name, class, summary, |point| point.in_time_rps));
    }
    let points = series.iter().flat_map(|series| &series.points);
    let (end, top) =
        points.fold((1.0, 0.0), |(end, top): (f64, f64), (x, y)| (end.max(*x), top.max(*y)));
    Plot {
        title: "Answered in time, by when requests came".to_owned(),
        x: Axis::even("s", 0.0, end),
        y: Axis::even("requests/s", 0.0, top * 1.05),
        series,
        level: None,
    }
}

/// GPUs in use, and those that would have done.
fn followed(following: &FollowingSummary) -> Plot {
    let line = |name: &str, class, of: fn(&Stretch) -> f64| Series {
        name: name.to_owned(),
        class,
        mark: Mark::Line,
        points: following.course.iter().map(|one| (one.at_s, of(one))).collect(),
    };
    let series = vec![
        line("in use", CLASSES[0], |one| one.gpus),
        line("clairvoyant", CLASSES[1], |one| one.clairvoyant_gpus),
    ];
    let end = following.course.last().map_or(1.0, |last| last.at_s);
    let top = following.course.iter().fold(1.0, |top: f64, one| top.max(one.gpus));
    Plot {
        title: "GPUs in use".to_owned(),
        x: Axis::even("s", 0.0, end),
        y: Axis::even("GPUs", 0.0, top * 1.05),
        series,
        level: None,
    }
}

fn holdings(training: &TrainingSummary) -> Plot {
    let line = |name: &str, class, of: fn(&Holding) -> f64| Series {
        name: name.to_owned(),
        class,
        mark: Mark::Line,
        points: training.course.iter().map(|one| (one.at_h, of(one))).collect(),
    };
    let series = vec![
        line("inference", CLASSES[0], |one| one.inference_gpus),
        line("training", CLASSES[1], |one| one.training_gpus),
    ];
    let end = training.course.last().map_or(1.0, |last| last.at_h);
    let points = series.iter().flat_map(|series| &series.points);
    let top = points.fold(1.0, |top: f64, (_, gpus)| top.max(*gpus));
    Plot {
        title: "GPUs that inference and training had".to_owned(),
        x: Axis::even("h", 0.0, end),
        y: Axis::even("GPUs", 0.0, top * 1.05),
        series,
        level: None,
    }
}

fn by_model(summary: &Summary) -> Plot {
    let models = summary.models.iter().take(24).enumerate();
    let marks = models.clone().map(|(index, model)| (index as f64 + 0.5, escape(&model.name)));
    let points = models.map(|(index, model)| (index as f64 + 0.5, model.attainment * 100.0));
    let points: Vec<(f64, f64)> = points.collect();
    let target = summary.models.first().map(|model| model.target * 100.0);
    Plot {
        title: "Requests in time, by model".to_owned(),
        x: Axis::marked("", points.len() as f64, marks.collect()),
        y: Axis::even("%", 0.0, 105.0),
        series: vec![Series {
            name: "in time".to_owned(),
            class: "good",
            mark: Mark::Bars,
            points,
        }],
        level: target,
    }
}
