//! Measured profiles: how long a batch takes on each kind of slice.

use std::{fmt, path::Path};

use mig::measured::{self, Wrong, compute_slices};

pub use mig::measured::Row;

use crate::{
    files::{self, Unreadable},
    problems::{Problem, of_line, position},
};

const MAX_BYTES: u64 = 1 << 20;
/// A file of another kind has thousands of wrong lines; more than this helps nobody.
const MAX_TOLD: usize = 20;

/// A model's measurements. At least one row.
#[derive(Clone, PartialEq)]
pub struct Profile {
    rows: Vec<Row>,
}

impl fmt::Debug for Profile {
    /// Short, because a configuration holds many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Profile({} rows)", self.rows.len())
    }
}

/// Why there is no profile.
#[derive(Debug)]
pub(crate) enum Bad {
    Unread(String),
    Wrong(Vec<Problem>),
}

impl Profile {
    /// Reads the file at `path`, or says what is wrong with each of its lines.
    pub(crate) fn load(path: &Path) -> Result<Self, Bad> {
        match files::read(path, MAX_BYTES) {
            Ok(text) => Self::parse(path, &text).map_err(Bad::Wrong),
            Err(Unreadable::Unopened(why)) => Err(Bad::Unread(why)),
            Err(Unreadable::NotText(valid)) => {
                let place = position(&valid, valid.len());
                Err(Bad::Wrong(vec![of_line(path, Some(place), "not UTF-8 from here on".into())]))
            }
        }
    }

    /// Reads profile CSV; `path` is its name in messages.
    fn parse(path: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        let rows = measured::parse(text).map_err(|wrong| {
            let told = wrong.iter().take(MAX_TOLD);
            let mut problems: Vec<Problem> = told
                .map(|Wrong { place, message }| of_line(path, *place, message.clone()))
                .collect();
            if wrong.len() > MAX_TOLD {
                let more = wrong.len() - MAX_TOLD;
                problems.push(of_line(path, None, format!("and {more} more wrong lines")));
            }
            problems
        })?;
        Ok(Self { rows })
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Batch size and latency in milliseconds on a slice of `profile`, alone on it, by batch
    /// size.
    ///
    /// Where that profile was not measured, the largest measured one with no more compute
    /// stands in, else the smallest; [`stand_in`](Self::stand_in) says which.
    pub fn curve(&self, profile: &str) -> Vec<(u32, f64)> {
        let profile = self.stand_in(profile);
        let mut curve: Vec<_> = self
            .rows
            .iter()
            .filter(|row| row.profile == profile)
            .map(|row| (row.processes, row.batch, row.batch_ms()))
            .collect();
        let fewest = curve.iter().map(|(processes, ..)| *processes).min();
        curve.retain(|(processes, ..)| Some(*processes) == fewest);
        curve.sort_unstable_by_key(|(_, batch, _)| *batch);
        curve.into_iter().map(|(_, batch, latency_ms)| (batch, latency_ms)).collect()
    }

    /// The measured profile whose numbers serve for `profile`.
    pub fn stand_in(&self, profile: &str) -> &str {
        let plain = profile.split('+').next().unwrap_or(profile);
        let wanted = compute_slices(plain);
        let measured = || self.rows.iter().map(|row| row.profile.as_str());
        let exact = measured().find(|known| *known == profile || *known == plain);
        let smaller = || {
            let fits = measured().filter(|known| compute_slices(known) <= wanted);
            fits.max_by_key(|known| compute_slices(known))
        };
        let smallest = || measured().min_by_key(|known| compute_slices(known));
        exact.or_else(smaller).or_else(smallest).unwrap_or_default()
    }

    /// The profiles measured, each once, in file order.
    pub(crate) fn profiles(&self) -> Vec<&str> {
        let mut profiles: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !profiles.contains(&row.profile.as_str()) {
                profiles.push(&row.profile);
            }
        }
        profiles
    }
}

/// The latency of `batch` on `curve`, by straight lines between measurements.
pub(crate) fn latency_ms(curve: &[(u32, f64)], batch: u32) -> Option<f64> {
    let after = curve.iter().find(|(size, _)| *size >= batch)?;
    let before = curve.iter().rev().find(|(size, _)| *size < batch);
    let Some(before) = before else { return Some(after.1) };
    let along = f64::from(batch - before.0) / f64::from(after.0 - before.0);
    Some(before.1 + along * (after.1 - before.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rows: &str) -> Result<Profile, String> {
        let header = "profile,batch,processes,throughput_rps,latency_ms";
        Profile::parse(Path::new("p.csv"), &format!("{header}\n{rows}")).map_err(|problems| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn every_wrong_line_is_told_with_its_line_and_column() {
        let rows = "1g.10gb,1,1,100,10\n\
                    1g.10gb,0,1,100,10\n\
                    1g.10gb,2,1,100,-3\n\
                    1g.10gb,4,1\n\
                    1g.10gb,1,1,90,11\n";
        assert_eq!(
            parse(rows).unwrap_err(),
            "p.csv:3:9: batch is \"0\"; give 1 to 4096\n\
             p.csv:4:17: latency_ms is \"-3\"; give a number above 0\n\
             p.csv:5:1: 3 fields, expected 5: profile,batch,processes,throughput_rps,latency_ms\n\
             p.csv:6:1: 1g.10gb, batch 1, processes 1 comes twice"
        );
    }

    #[test]
    fn a_file_of_another_kind_is_told_briefly() {
        let problems = parse(&"what is this\n".repeat(500)).unwrap_err();
        assert_eq!(problems.lines().count(), MAX_TOLD + 1);
        assert!(problems.ends_with("p.csv: and 480 more wrong lines"), "{problems}");
    }

    #[test]
    fn a_file_without_measurements_is_refused() {
        assert_eq!(parse("\n# none yet\n").unwrap_err(), "p.csv: no measurements");
        let problems = Profile::parse(Path::new("p.csv"), "a,b\n1,2\n").unwrap_err();
        assert!(problems[0].to_string().starts_with("p.csv:1:1: the first line must be profile,"));
    }

    #[test]
    fn a_curve_is_that_of_the_slice_alone_by_batch() {
        let profile =
            parse("1g.10gb,4,1,1,40\n1g.10gb,1,1,1,10\n1g.10gb,1,2,1,19\n7g.80gb,1,1,1,5\n")
                .unwrap();
        assert_eq!(profile.curve("1g.10gb"), [(1, 10.0), (4, 40.0)]);
        assert_eq!(profile.curve("7g.80gb"), [(1, 5.0)]);
    }

    #[test]
    fn an_unmeasured_slice_is_served_by_the_largest_measured_one_within_it() {
        let profile = parse("2g.20gb,1,1,1,10\n3g.40gb,1,1,1,5\n7g.80gb,1,1,1,4\n").unwrap();
        assert_eq!(profile.stand_in("3g.40gb"), "3g.40gb");
        assert_eq!(profile.stand_in("4g.40gb"), "3g.40gb");
        assert_eq!(profile.stand_in("1g.10gb"), "2g.20gb", "none within it: the smallest");
        assert_eq!(profile.stand_in("3g.40gb+me"), "3g.40gb");
    }

    #[test]
    fn latency_lies_on_straight_lines_between_measurements_and_nowhere_else() {
        let curve = [(2, 10.0), (4, 20.0), (8, 60.0)];
        assert_eq!(latency_ms(&curve, 1), Some(10.0));
        assert_eq!(latency_ms(&curve, 3), Some(15.0));
        assert_eq!(latency_ms(&curve, 8), Some(60.0));
        assert_eq!(latency_ms(&curve, 9), None);
    }
}
