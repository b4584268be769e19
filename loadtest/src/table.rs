//! Reports for people.

use std::fmt::Write;

use crate::report::{Report, Spread, StreamReport};

const HEAD: [&str; 15] = [
    "stream",
    "offered",
    "per s",
    "answers/s",
    "in time",
    "late",
    "refused",
    "too late",
    "failed",
    "mean ms",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
];

pub fn render(report: &Report) -> String {
    let mut out = heading(report);
    let rows: Vec<Vec<String>> = report.streams.iter().map(row).collect();
    out.push_str(&align(&HEAD.map(str::to_owned), &rows));
    out.push('\n');
    for stream in &report.streams {
        out.push_str(&verdict(stream));
        out.push_str(&refusals(stream));
        out.push_str(&failures(stream));
    }
    for (model, view) in report.router.iter().flat_map(|router| &router.models) {
        if let Some(mean) = view.mean_batch {
            let _ = writeln!(
                out,
                "router: {model}: {:.0} batches of {mean:.2} on average",
                view.batches
            );
        }
    }
    out.push_str(&client(report));
    out
}

fn heading(report: &Report) -> String {
    let how = match report.clients {
        None => "open loop, latency from scheduled arrival".to_owned(),
        Some(clients) => format!(
            "CLOSED LOOP of {clients}, latency from sending: waiting for a slow server is hidden"
        ),
    };
    let Report { scenario, url, duration_s, warmup_s, seed, .. } = report;
    format!(
        "{scenario} against {url}: {how}\n\
         {duration_s:.1} s measured after {warmup_s:.1} s of warm-up, seed {seed}\n\n"
    )
}

fn row(stream: &StreamReport) -> Vec<String> {
    let ends = &stream.ends;
    let share = |count: u64| match ends.offered {
        0 => "-".to_owned(),
        offered => format!("{:.2}%", 100.0 * count as f64 / offered as f64),
    };
    let mut row = vec![
        stream.name.clone(),
        ends.offered.to_string(),
        format!("{:.0}", stream.offered_rps),
        format!("{:.0}", stream.throughput_rps),
    ];
    let counts = [ends.in_time, ends.late, ends.refused, ends.too_late, ends.failed];
    row.extend(counts.map(share));
    let Spread { mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms } = stream.latency;
    let none = ends.in_time + ends.late == 0;
    let time = |ms| if none { "-".to_owned() } else { millis(ms) };
    row.extend([mean_ms, p50_ms, p90_ms, p99_ms, p999_ms, max_ms].map(time));
    row
}

fn verdict(stream: &StreamReport) -> String {
    let found = 100.0 * stream.ends.share_in_time;
    let wanted = 100.0 * stream.target;
    let word = if stream.objective_met { "met" } else { "MISSED" };
    format!(
        "{}: objective {word}: {found:.2} % within {} ms, {wanted} % wanted ({})\n",
        stream.name, stream.slo_ms, stream.arrivals
    )
}

fn refusals(stream: &StreamReport) -> String {
    if stream.ends.refused == 0 {
        return String::new();
    }
    let refusals = &stream.refusals;
    format!(
        "  refusals: {:.2} % within 5 ms, p50 {} ms, p99 {} ms, {} after the deadline\n",
        100.0 * refusals.share_within_5ms,
        millis(refusals.after.p50_ms),
        millis(refusals.after.p99_ms),
        refusals.after_deadline
    )
}

fn failures(stream: &StreamReport) -> String {
    if stream.ends.failed == 0 {
        return String::new();
    }
    let list: Vec<String> =
        stream.replies.iter().map(|(reply, count)| format!("{reply} {count}")).collect();
    format!("  replies: {}\n", list.join(", "))
}

fn client(report: &Report) -> String {
    let client = &report.client;
    let mut out = format!(
        "client: sent p99 {} ms after due (max {}), {:.2} % within 1 ms, {:.0} % of one core, \
         {} connections\n",
        millis(client.send_lag.p99_ms),
        millis(client.send_lag.max_ms),
        100.0 * client.share_within_1ms,
        100.0 * client.cpu_share,
        client.connections_most
    );
    if client.limited {
        let limits = client.limits.join("; ");
        let _ = writeln!(out, "THE CLIENT ITSELF WAS THE LIMIT: {limits}");
    }
    out
}

/// Milliseconds with as many digits as mean something.
pub(crate) fn millis(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

/// Columns: the first to the left, the others to the right.
pub fn align(head: &[String], rows: &[Vec<String>]) -> String {
    let lines = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let width = |column: usize| {
        let cells = lines().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for line in lines() {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(out, "{cell:<width$}"),
                _ => write!(out, "  {cell:>width$}"),
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}
