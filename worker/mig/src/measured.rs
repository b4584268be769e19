//! Measurements of a model on slices, as the profile CSV has them.

use std::collections::HashSet;

/// The first line of every profile file.
const HEADER: &str = "profile,batch,processes,throughput_rps,latency_ms";
/// Latencies are often rounded to this; throughput then says them finer.
const ROUNDING_MS: f64 = 0.51;

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub profile: String,
    /// Rows per batch. At least 1.
    pub batch: u32,
    /// Processes sharing the slice. At least 1.
    pub processes: u32,
    /// The whole slice's, all processes together. More than 0.
    pub throughput_rps: f64,
    /// One batch's. More than 0.
    pub latency_ms: f64,
}

impl Row {
    /// One batch's time to the microsecond, finer than the latency was rounded where the throughput bears it out.
    pub fn batch_ms(&self) -> f64 {
        let micros = 1e6 * f64::from(self.batch) * f64::from(self.processes) / self.throughput_rps;
        let finer = micros.round() / 1e3;
        if (finer - self.latency_ms).abs() <= ROUNDING_MS { finer } else { self.latency_ms }
    }
}

/// What is wrong with a profile CSV, and where; of the whole text if it has no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Line and column, counted from 1.
    pub place: Option<(usize, usize)>,
    pub message: String,
}

/// Reads profile CSV: at least one row, or everything that is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Row>, Vec<Wrong>> {
    let whole = |message: &str| vec![Wrong { place: None, message: message.to_owned() }];
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_end()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    match lines.next() {
        Some((_, HEADER)) => {}
        Some((number, _)) => {
            let message = format!("the first line must be {HEADER}");
            return Err(vec![Wrong { place: Some((number, 1)), message }]);
        }
        None => return Err(whole("no measurements")),
    }
    let mut rows = Vec::new();
    let mut seen = HashSet::new();
    let mut problems = Vec::new();
    for (number, line) in lines {
        match read_row(line).and_then(|row| unseen(row, &mut seen)) {
            Ok(row) => rows.push(row),
            Err((column, message)) => {
                problems.push(Wrong { place: Some((number, column)), message });
            }
        }
    }
    match (problems.is_empty(), rows.is_empty()) {
        (false, _) => Err(problems),
        (true, true) => Err(whole("no measurements")),
        (true, false) => Ok(rows),
    }
}

/// The 3 of `3g.40gb`, if the name is that of a profile.
pub fn compute_slices(profile: &str) -> Option<u32> {
    profile.split_once('g').and_then(|(digits, _)| digits.parse().ok())
}

/// A column and what is wrong there.
type Fault = (usize, String);

fn read_row(line: &str) -> Result<Row, Fault> {
    let mut fields = Vec::new();
    let mut column = 1;
    for field in line.split(',') {
        fields.push((column, field.trim()));
        column += field.chars().count() + 1;
    }
    let [profile, batch, processes, throughput, latency] = fields[..] else {
        return Err((1, format!("{} fields, expected 5: {HEADER}", fields.len())));
    };
    if profile.1.is_empty() {
        return Err((profile.0, "profile is empty".to_owned()));
    }
    Ok(Row {
        profile: profile.1.to_owned(),
        batch: count("batch", batch)?,
        processes: count("processes", processes)?,
        throughput_rps: positive("throughput_rps", throughput)?,
        latency_ms: positive("latency_ms", latency)?,
    })
}

fn unseen(row: Row, seen: &mut HashSet<(String, u32, u32)>) -> Result<Row, Fault> {
    if seen.insert((row.profile.clone(), row.batch, row.processes)) {
        return Ok(row);
    }
    let Row { profile, batch, processes, .. } = row;
    Err((1, format!("{profile}, batch {batch}, processes {processes} comes twice")))
}

fn count(name: &str, (column, field): (usize, &str)) -> Result<u32, Fault> {
    let read = field.parse().ok().filter(|count| (1..=4096).contains(count));
    read.ok_or_else(|| (column, format!("{name} is {field:?}; give 1 to 4096")))
}

fn positive(name: &str, (column, field): (usize, &str)) -> Result<f64, Fault> {
    let read = field.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    read.ok_or_else(|| (column, format!("{name} is {field:?}; give a number above 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(throughput_rps: f64, latency_ms: f64) -> Row {
        let profile = "1g.10gb".to_owned();
        Row { profile, batch: 4, processes: 2, throughput_rps, latency_ms }
    }

    #[test]
    fn a_rounded_latency_is_told_finer_by_the_throughput() {
        assert!((row(643.0, 12.0).batch_ms() - 12.44).abs() < 0.01);
    }

    #[test]
    fn a_throughput_that_is_not_the_latencys_does_not_count() {
        assert_eq!(row(1_000.0, 12.0).batch_ms(), 12.0);
    }

    #[test]
    fn the_compute_slices_are_in_the_profiles_name() {
        assert_eq!(compute_slices("3g.40gb"), Some(3));
        assert_eq!(compute_slices("whole"), None);
    }
}
