//! Prometheus' text format, read strictly.

use std::collections::{BTreeMap, BTreeSet};

/// Every sample by its name and labels, as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    samples: BTreeMap<String, f64>,
    types: BTreeMap<String, String>,
    helps: BTreeSet<String>,
}

impl Metrics {
    /// Reads a whole page; a line that is none of the format's is a failure.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            metrics.take(line).unwrap_or_else(|| panic!("not a line of the format: {line:?}"));
        }
        assert!(text.ends_with('\n'), "the last line is not ended");
        metrics
    }

    fn take(&mut self, line: &str) -> Option<()> {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (keyword, name, rest) = (words.next()?, words.next()?, words.next()?);
            match keyword {
                "HELP" => assert!(self.helps.insert(name.to_owned()), "{name} is described twice"),
                "TYPE" => {
                    let known = ["counter", "gauge", "histogram"].contains(&rest);
                    assert!(known, "{name} is a {rest}");
                    let twice = self.types.insert(name.to_owned(), rest.to_owned());
                    assert_eq!(twice, None, "{name} is typed twice");
                }
                _ => return None,
            }
            return Some(());
        }
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        let is_name = |name: &str| {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(word)
        };
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (key, value) = label.split_once("=\"")?;
            let value = value.strip_suffix('"')?;
            (is_name(key) && !value.contains(['"', '\\'])).then_some(())?;
        }
        is_name(name).then_some(())?;
        let twice = self.samples.insert(series.to_owned(), value.parse().ok()?);
        assert_eq!(twice, None, "{series} is there twice");
        Some(())
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = (&str, &str)> {
        self.types.iter().map(|(name, kind)| (name.as_str(), kind.as_str()))
    }

    pub(crate) fn is_described(&self, name: &str) -> bool {
        self.helps.contains(name)
    }

    /// The samples of a series by its whole name; for a histogram, its parts.
    pub(crate) fn series<'m>(&'m self, name: &'m str) -> impl Iterator<Item = (&'m str, f64)> {
        let of_name = move |(series, value): (&'m String, &f64)| {
            let family = series.split('{').next()?;
            let part = family.strip_prefix(name)?;
            let histogram = self.types.get(name).is_some_and(|kind| kind == "histogram");
            let suffix = histogram && ["_bucket", "_sum", "_count"].contains(&part);
            (part.is_empty() || suffix).then_some((series.as_str(), *value))
        };
        self.samples.iter().filter_map(of_name)
    }

    #[track_caller]
    pub(crate) fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series}"))
    }

    #[track_caller]
    pub(crate) fn ended(&self, model: &str, outcome: &str) -> u64 {
        let series = format!("sluice_requests_total{{model=\"{model}\",outcome=\"{outcome}\"}}");
        self.value(&series) as u64
    }

    #[track_caller]
    pub(crate) fn ended_in_all(&self, model: &str) -> u64 {
        ["served", "refused", "abandoned", "failed"].map(|way| self.ended(model, way)).iter().sum()
    }

    #[track_caller]
    pub(crate) fn refused(&self, model: &str, reason: &str) -> u64 {
        let series = format!("sluice_refusals_total{{model=\"{model}\",reason=\"{reason}\"}}");
        self.value(&series) as u64
    }
}
