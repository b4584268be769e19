//! Reports side by side.

use serde::Serialize;

use crate::{
    report::{Report, StreamReport},
    table::align,
};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    pub stream: String,
    pub measure: &'static str,
    /// One value for each report; absent where a report lacks the stream.
    pub values: Vec<Option<f64>>,
}

type Measure = (&'static str, fn(&StreamReport) -> f64);

const MEASURES: [Measure; 14] = [
    ("offered req/s", |stream| stream.offered_rps),
    ("answers req/s", |stream| stream.throughput_rps),
    ("in time req/s", |stream| stream.goodput_rps),
    ("in time %", |stream| 100.0 * stream.ends.share_in_time),
    ("late %", |stream| share(stream, stream.ends.late)),
    ("refused %", |stream| share(stream, stream.ends.refused)),
    ("too late %", |stream| share(stream, stream.ends.too_late)),
    ("failed %", |stream| share(stream, stream.ends.failed)),
    ("refused in 5 ms %", |stream| 100.0 * stream.refusals.share_within_5ms),
    ("mean ms", |stream| stream.latency.mean_ms),
    ("p50 ms", |stream| stream.latency.p50_ms),
    ("p99 ms", |stream| stream.latency.p99_ms),
    ("p99.9 ms", |stream| stream.latency.p999_ms),
    ("max ms", |stream| stream.latency.max_ms),
];

pub fn lines(reports: &[Report]) -> Vec<Line> {
    let mut names: Vec<&str> = Vec::new();
    for stream in reports.iter().flat_map(|report| &report.streams) {
        if !names.contains(&stream.name.as_str()) {
            names.push(&stream.name);
        }
    }
    let mut lines = Vec::new();
    for name in names {
        let find =
            |report: &Report| report.streams.iter().find(|stream| stream.name == name).cloned();
        let streams: Vec<Option<StreamReport>> = reports.iter().map(find).collect();
        for (measure, value) in MEASURES {
            let values = streams.iter().map(|stream| stream.as_ref().map(value)).collect();
            lines.push(Line { stream: name.to_owned(), measure, values });
        }
    }
    lines
}

pub fn to_json(names: &[String], reports: &[Report]) -> String {
    let value = serde_json::json!({ "reports": names, "lines": lines(reports) });
    format!("{value:#}\n")
}

/// The comparison as text; `names` are what the reports are called. Change is last against first.
pub fn render(names: &[String], reports: &[Report]) -> String {
    let mut out = String::new();
    let lines = lines(reports);
    for group in lines.chunk_by(|a, b| a.stream == b.stream) {
        let mut head = vec![group[0].stream.clone()];
        head.extend(names.iter().cloned());
        head.push("change".to_owned());
        let rows: Vec<Vec<String>> = group.iter().map(row).collect();
        out.push_str(&align(&head, &rows));
        out.push('\n');
    }
    for (name, report) in names.iter().zip(reports) {
        if report.pacing != "open" {
            out.push_str(&format!("{name} is a CLOSED LOOP: its latency hides waiting\n"));
        }
        if report.client.limited {
            out.push_str(&format!("{name}: THE CLIENT ITSELF WAS THE LIMIT\n"));
        }
    }
    out
}

fn row(line: &Line) -> Vec<String> {
    let number = |value: &Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let mut row = vec![format!("  {}", line.measure)];
    row.extend(line.values.iter().map(number));
    row.push(change(line).unwrap_or_default());
    row
}

/// Shares change by points, other numbers by percent of the first.
fn change(line: &Line) -> Option<String> {
    let (first, last) = (line.values.first().copied()??, line.values.last().copied()??);
    if line.measure.ends_with('%') {
        return Some(format!("{:+.2} points", last - first));
    }
    (first > 0.0).then(|| format!("{:+.1} %", 100.0 * (last / first - 1.0)))
}

fn share(stream: &StreamReport, count: u64) -> f64 {
    match stream.ends.offered {
        0 => 0.0,
        offered => 100.0 * count as f64 / offered as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(measure: &'static str, values: &[Option<f64>]) -> Line {
        Line { stream: "m".to_owned(), measure, values: values.to_vec() }
    }

    #[test]
    fn shares_change_by_points_and_times_by_percent() {
        let share = line("in time %", &[Some(99.0), Some(97.5)]);
        assert_eq!(change(&share).unwrap(), "-1.50 points");
        let time = line("p99 ms", &[Some(10.0), Some(15.0)]);
        assert_eq!(change(&time).unwrap(), "+50.0 %");
    }

    #[test]
    fn what_one_report_lacks_is_a_dash_and_no_change() {
        let missing = line("p99 ms", &[Some(10.0), None]);
        assert_eq!(row(&missing), ["  p99 ms", "10.00", "-", ""]);
        let from_nothing = line("max ms", &[Some(0.0), Some(1.0)]);
        assert_eq!(change(&from_nothing), None);
    }
}
