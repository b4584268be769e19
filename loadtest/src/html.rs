//! Reports as one page that needs nothing else: plots are inline, there is no script.

use std::fmt::Write;

use crate::{
    plot::{Axis, Mark, Plot, Series, escape},
    report::{Point, Report, StreamReport},
    scrape::ModelView,
    table,
};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2733;--dim:#6b7886;--grid:#dde3ea;--page:#fff;\
--good:#2a9d6f;--late:#e0a100;--refused:#3f7fd1;--too-late:#9b6bd3;--failed:#d1495b;\
--other:#8a6d3b;--more:#4aa3a2}\
@media(prefers-color-scheme:dark){:root{--ink:#dfe6ee;--dim:#93a1b0;--grid:#2c3742;--page:#141a21}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);\
max-width:900px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.15rem;margin-top:2.2rem}\
pre{overflow-x:auto;font-size:11.5px;line-height:1.45}\
figure{margin:1.2rem 0}figcaption{font-weight:600}\
svg{width:100%;height:auto}svg text{font-size:11px;fill:var(--dim)}\
.grid{stroke:var(--grid)}.line{fill:none;stroke-width:1.8}.area{stroke:none}\
line.level{stroke:var(--ink);stroke-dasharray:5 4}\
.legend span{margin-right:1em}.legend span::before{content:'';display:inline-block;width:.8em;\
height:.8em;margin-right:.35em;background:currentColor}.legend span.level{color:var(--ink)}\
.good{color:var(--good);stroke:var(--good);fill:var(--good)}\
.late{color:var(--late);stroke:var(--late);fill:var(--late)}\
.refused{color:var(--refused);stroke:var(--refused);fill:var(--refused)}\
.too-late{color:var(--too-late);stroke:var(--too-late);fill:var(--too-late)}\
.failed{color:var(--failed);stroke:var(--failed);fill:var(--failed)}\
.other{color:var(--other);stroke:var(--other);fill:var(--other)}\
.more{color:var(--more);stroke:var(--more);fill:var(--more)}\
.line.other,.line.more,.line.good,.line.late,.line.refused,.line.too-late,.line.failed{fill:none}\
.warning{border-left:4px solid var(--failed);padding-left:.8em;font-weight:600}";

pub const CLASSES: [&str; 7] = ["good", "refused", "late", "too-late", "failed", "more", "other"];

pub fn render(report: &Report) -> String {
    let mut out = String::new();
    if report.pacing != "open" {
        out.push_str(
            "<p class=\"warning\">A closed loop: waiting for a slow server is hidden.</p>\n",
        );
    }
    if report.client.limited {
        let limits = escape(&report.client.limits.join("; "));
        let _ =
            writeln!(out, "<p class=\"warning\">The client itself was the limit: {limits}.</p>");
    }
    let _ = writeln!(out, "<pre>{}</pre>", escape(&table::render(report)));
    for stream in &report.streams {
        let _ = writeln!(out, "<h2>{}</h2>", escape(&stream.name));
        out.push_str(&ends(stream).render());
        out.push_str(&latency(stream).render());
        out.push_str(&percentiles(stream).render());
    }
    for (model, view) in report.router.iter().flat_map(|router| &router.models) {
        if report.streams.iter().any(|stream| stream.model == *model) {
            let _ = writeln!(out, "<h2>{} inside the router</h2>", escape(model));
            out.push_str(&batches(view).render());
            out.push_str(&queue(view).render());
        }
    }
    page(&format!("{} against {}", report.scenario, report.url), &out)
}

/// A page of that title around `body`, with the style of all reports.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
         {body}</body></html>\n"
    )
}

/// How requests ended over time: areas stacked up to the offered rate.
fn ends(stream: &StreamReport) -> Plot {
    type Part = (&'static str, &'static str, fn(&Point) -> u64);
    let parts: [Part; 5] = [
        ("in time", "good", |point| point.ends.in_time),
        ("late", "late", |point| point.ends.late),
        ("refused", "refused", |point| point.ends.refused),
        ("too late", "too-late", |point| point.ends.too_late),
        ("failed", "failed", |point| point.ends.failed),
    ];
    let up_to = |last: usize| {
        let rate = move |point: &Point| {
            let count: u64 = parts[..=last].iter().map(|(_, _, of)| of(point)).sum();
            (point.at_s + point.covers_s / 2.0, count as f64 / point.covers_s)
        };
        stream.timeline.iter().map(rate).collect::<Vec<_>>()
    };
    let series = parts.iter().enumerate().rev();
    let series = series
        .filter(|(_, (_, _, of))| stream.timeline.iter().any(|point| of(point) > 0))
        .map(|(index, (name, class, _))| Series {
            name: (*name).to_owned(),
            class,
            mark: Mark::Area,
            points: up_to(index),
        });
    Plot {
        title: "How requests ended, by when they were due".to_owned(),
        x: time_axis(stream),
        y: Axis::even("requests/s", 0.0, highest(&up_to(parts.len() - 1)) * 1.05),
        series: series.collect(),
        level: None,
    }
}

fn latency(stream: &StreamReport) -> Plot {
    let line = |name: &str, class, of: fn(&Point) -> f64| {
        let answered = stream.timeline.iter().filter(|point| point.max_ms > 0.0);
        let points = answered.map(|point| (point.at_s + point.covers_s / 2.0, of(point)));
        Series { name: name.to_owned(), class, mark: Mark::Line, points: points.collect() }
    };
    let series = vec![
        line("max", "failed", |point| point.max_ms),
        line("p99", "late", |point| point.p99_ms),
        line("p50", "good", |point| point.p50_ms),
    ];
    let lowest = series[2].points.iter().map(|point| point.1).fold(stream.slo_ms, f64::min);
    let top = highest(&series[0].points).max(stream.slo_ms) * 1.2;
    Plot {
        title: "Latency of answered requests, from scheduled arrival".to_owned(),
        x: time_axis(stream),
        y: Axis::log("ms", lowest / 1.5, top),
        series,
        level: Some(stream.slo_ms),
    }
}

fn percentiles(stream: &StreamReport) -> Plot {
    let nines = |quantile: f64| -(1.0 - quantile).log10();
    let points: Vec<(f64, f64)> = stream.curve.iter().map(|(q, ms)| (nines(*q), *ms)).collect();
    let marks =
        [(0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let marks = marks.map(|(quantile, label)| (nines(quantile), label.to_owned())).to_vec();
    let lowest = points.first().map_or(stream.slo_ms, |point| point.1.min(stream.slo_ms));
    let top = highest(&points).max(stream.slo_ms) * 1.2;
    Plot {
        title: "Latency by percentile".to_owned(),
        x: Axis::marked("", 4.0, marks),
        y: Axis::log("ms", lowest / 1.5, top),
        series: vec![Series {
            name: "latency".to_owned(),
            class: "good",
            mark: Mark::Line,
            points,
        }],
        level: Some(stream.slo_ms),
    }
}

fn batches(view: &ModelView) -> Plot {
    let samples = view.timeline.iter();
    let points: Vec<(f64, f64)> =
        samples.filter_map(|sample| Some((sample.at_s, sample.mean_batch?))).collect();
    Plot {
        title: "Requests per batch".to_owned(),
        x: router_axis(view),
        y: Axis::even("requests", 0.0, highest(&points) * 1.1),
        series: vec![Series {
            name: "mean batch".to_owned(),
            class: "refused",
            mark: Mark::Line,
            points,
        }],
        level: None,
    }
}

fn queue(view: &ModelView) -> Plot {
    let points: Vec<(f64, f64)> =
        view.timeline.iter().map(|sample| (sample.at_s, sample.queue)).collect();
    Plot {
        title: "Requests waiting for a batch".to_owned(),
        x: router_axis(view),
        y: Axis::even("requests", 0.0, highest(&points) * 1.1),
        series: vec![Series {
            name: "queue".to_owned(),
            class: "too-late",
            mark: Mark::Line,
            points,
        }],
        level: None,
    }
}

fn time_axis(stream: &StreamReport) -> Axis {
    let end = stream.timeline.last().map_or(1.0, |point| point.at_s + point.covers_s);
    Axis::even("s", 0.0, end)
}

fn router_axis(view: &ModelView) -> Axis {
    Axis::even("s", 0.0, view.timeline.last().map_or(1.0, |sample| sample.at_s))
}

fn highest(points: &[(f64, f64)]) -> f64 {
    points.iter().map(|point| point.1).fold(0.0, f64::max)
}
