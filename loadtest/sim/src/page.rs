//! Summaries as one page that needs nothing else.

use std::fmt::Write;

use loadtest::{
    html::{CLASSES, escape, page},
    plot::{Axis, Mark, Plot, Series},
};

use crate::{
    contest::{Contest, Entry},
    summary::{Point, Summary},
    table,
};

/// One run as a page.
pub fn of_run(summary: &Summary) -> String {
    let mut body = format!("<pre>{}</pre>\n", escape(&table::of_run(summary)));
    body.push_str(&over_time(&[("in time", summary)]).render());
    body.push_str(&by_model(summary).render());
    page(&format!("{}, simulated", summary.scenario), &body)
}

/// A contest as a page.
pub fn of_contest(contest: &Contest) -> String {
    let mut body = format!("<pre>{}</pre>\n", escape(&table::of_contest(contest)));
    let ran: Vec<&Entry> = contest.entries.iter().filter(|entry| !entry.runs.is_empty()).collect();
    type Figure = (&'static str, &'static str, fn(&Summary) -> f64);
    let figures: [Figure; 4] = [
        ("Requests in time", "%", |run| run.ends.attainment() * 100.0),
        ("Answered in time per second", "requests/s", Summary::goodput_rps),
        ("GPUs used", "GPUs", |run| run.gpus_used as f64),
        ("Compute busy of the GPUs used", "%", |run| run.utilisation * 100.0),
    ];
    for (title, unit, of) in figures {
        body.push_str(&bars(title, unit, &ran, of).render());
    }
    let firsts: Vec<(&str, &Summary)> =
        ran.iter().map(|entry| (entry.value.as_str(), &entry.runs[0])).collect();
    body.push_str(&over_time(&firsts).render());
    let _ = writeln!(body, "<p>Bars are means over seeds; lines are the first seed's.</p>");
    page(&format!("{}: {} compared", contest.scenario, contest.key), &body)
}

/// One bar per way.
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
