//! Scenarios: what to send, as data. A new case is a file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{
    pattern::{Pattern, PatternError},
    payload::{self, Encoding},
};

/// The scenarios that come with the program: name, text.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("steady", include_str!("../scenarios/steady.toml")),
    ("overload", include_str!("../scenarios/overload.toml")),
    ("burst", include_str!("../scenarios/burst.toml")),
    ("step", include_str!("../scenarios/step.toml")),
    ("ramp", include_str!("../scenarios/ramp.toml")),
    ("mixed", include_str!("../scenarios/mixed.toml")),
    ("tenants", include_str!("../scenarios/tenants.toml")),
    ("trace", include_str!("../scenarios/trace.toml")),
];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(skip)]
    pub name: String,
    /// Where relative paths start.
    #[serde(skip)]
    pub folder: PathBuf,
    pub about: String,
    #[serde(default = "ten")]
    pub duration_s: f64,
    #[serde(default = "two")]
    pub warmup_s: f64,
    #[serde(default = "five")]
    pub grace_s: f64,
    #[serde(default = "thousand")]
    pub connections: usize,
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(rename = "stream")]
    pub streams: Vec<StreamSpec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamSpec {
    /// What reports call it; the model if absent.
    pub name: Option<String>,
    /// The model asked; if absent the only one served, or the trace's own.
    pub model: Option<String>,
    /// Requests per second; of a trace, its mean rate, if it is to be sped up to that.
    pub rate_rps: Option<f64>,
    /// When requests arrive: see [`crate::pattern`]. Poisson if absent.
    pub arrivals: Option<String>,
    /// The objective; the router's own if absent, else 50.
    pub slo_ms: Option<f64>,
    /// The share of requests within it; the router's own if absent, else 0.99.
    pub target: Option<f64>,
    pub timeout_ms: Option<f64>,
    pub class: Option<String>,
    /// The environment variable with the tenant's key.
    pub key_env: Option<String>,
    pub key_file: Option<PathBuf>,
    pub encoding: Encoding,
    /// Rows in each request; 1 if absent.
    pub rows: Option<u64>,
    /// Dimensions of inputs by name, without the batch; the model's own where it is not free.
    pub shape: payload::Shapes,
    /// Real inputs; made up to fit the model if absent.
    pub input: Option<PathBuf>,
    /// Asked instead of a model, for servers that do not speak the protocol.
    pub path: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("no scenario is called {name:?} and no file is there; there are {}", names())]
    Unknown { name: String },
    #[error("{} cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{name}:{line}:{column}: {message}")]
    Text {
        name: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        message: String,
    },
    #[error("{key} is {value}; give {wanted}")]
    Range { key: &'static str, value: String, wanted: &'static str },
    #[error("the scenario has no [[stream]]")]
    NoStream,
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error(
        "the scenario's {streams} streams ask {models} models; one --model cannot replace them"
    )]
    ManyModels { streams: usize, models: usize },
    #[error("a trace takes a speed or a rate, not both")]
    SpeedAndRate,
    #[error("the environment has no {variable}, which holds the key")]
    NoKey { variable: String },
}

impl Scenario {
    pub fn single(stream: StreamSpec) -> Self {
        Self {
            name: "command line".to_owned(),
            folder: PathBuf::new(),
            about: String::new(),
            duration_s: ten(),
            warmup_s: two(),
            grace_s: five(),
            connections: thousand(),
            seed: one(),
            streams: vec![stream],
        }
    }

    pub fn find(name: &str) -> Result<Self, ScenarioError> {
        if let Some((_, text)) = EMBEDDED.iter().find(|(embedded, _)| *embedded == name) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        let text = std::fs::read_to_string(path).map_err(|source| {
            if source.kind() == std::io::ErrorKind::NotFound {
                return ScenarioError::Unknown { name: name.to_owned() };
            }
            ScenarioError::Unreadable { path: path.to_owned(), source }
        })?;
        let mut scenario = Self::parse(name, &text)?;
        scenario.folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        scenario.name = stem.to_string_lossy().into_owned();
        Ok(scenario)
    }

    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start)];
            ScenarioError::Text {
                name: name.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before.chars().rev().take_while(|c| *c != '\n').count() + 1,
                message: error.message().to_owned(),
            }
        })?;
        scenario.name = name.to_owned();
        scenario.check()?;
        Ok(scenario)
    }

    /// Refuses values no run could use. Ask again after changing any.
    pub fn check(&self) -> Result<(), ScenarioError> {
        if self.streams.is_empty() {
            return Err(ScenarioError::NoStream);
        }
        within("duration_s", self.duration_s, 0.01..=1e6, "0.01 to 1000000")?;
        within("warmup_s", self.warmup_s, 0.0..=1e6, "0 to 1000000")?;
        within("grace_s", self.grace_s, 0.0..=1e6, "0 to 1000000")?;
        within("connections", self.connections as f64, 1.0..=60_000.0, "1 to 60000")?;
        self.streams.iter().try_for_each(StreamSpec::check)
    }

    pub fn set_model(&mut self, model: &str) -> Result<(), ScenarioError> {
        let mut models: Vec<_> = self.streams.iter().map(|stream| &stream.model).collect();
        models.sort();
        models.dedup();
        if models.len() > 1 {
            let (streams, models) = (self.streams.len(), models.len());
            return Err(ScenarioError::ManyModels { streams, models });
        }
        self.streams.iter_mut().for_each(|stream| stream.model = Some(model.to_owned()));
        Ok(())
    }

    pub fn set_rate(&mut self, rate_rps: f64) {
        let total: f64 = self.streams.iter().filter_map(|stream| stream.rate_rps).sum();
        let count = self.streams.len() as f64;
        for stream in &mut self.streams {
            let share = stream.rate_rps.filter(|_| total > 0.0).map_or(1.0 / count, |r| r / total);
            stream.rate_rps = Some(rate_rps * share);
        }
    }
}

impl StreamSpec {
    pub fn pattern(&self) -> Result<Pattern, PatternError> {
        self.arrivals.as_deref().unwrap_or("poisson").parse()
    }

    fn check(&self) -> Result<(), ScenarioError> {
        let optional = |key, value: Option<f64>, range, wanted| {
            value.map_or(Ok(()), |value| within(key, value, range, wanted))
        };
        optional("rate_rps", self.rate_rps, 1e-3..=1e7, "0.001 to 10000000")?;
        optional("slo_ms", self.slo_ms, 1e-3..=3.6e6, "0.001 to 3600000")?;
        optional("target", self.target, 0.0..=1.0, "0 to 1")?;
        optional("timeout_ms", self.timeout_ms, 1.0..=3.6e6, "1 to 3600000")?;
        let rows = self.rows.map(|rows| rows as f64);
        optional("rows", rows, 1.0..=1e6, "1 to 1000000")?;
        match self.pattern()? {
            Pattern::Trace { speed: Some(_), .. } if self.rate_rps.is_some() => {
                Err(ScenarioError::SpeedAndRate)
            }
            Pattern::Trace { .. } | Pattern::Drawn { .. } => Ok(()),
        }
    }
}

fn within(
    key: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    wanted: &'static str,
) -> Result<(), ScenarioError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ScenarioError::Range { key, value: value.to_string(), wanted })
}

fn names() -> String {
    EMBEDDED.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn one() -> u64 {
    1
}

fn two() -> f64 {
    2.0
}

fn five() -> f64 {
    5.0
}

fn ten() -> f64 {
    10.0
}

fn thousand() -> usize {
    1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_scenario_is_valid_and_described() {
        for (name, _) in EMBEDDED {
            let scenario = Scenario::find(name).unwrap();
            assert_eq!(scenario.name, *name);
            assert!(scenario.about.ends_with('.'), "{name}: {:?}", scenario.about);
        }
    }

    #[test]
    fn the_documentation_lists_every_scenario_in_its_own_words() {
        let page = include_str!("../../docs/how-to/load-test.md");
        let (_, table) = page.split_once("| scenario | what it is for |\n").unwrap();
        let listed: Vec<&str> =
            table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
        let wanted: Vec<String> = EMBEDDED
            .iter()
            .map(|(name, _)| format!("| `{name}` | {} |", Scenario::find(name).unwrap().about))
            .collect();
        assert_eq!(listed, wanted);
    }

    #[test]
    fn every_file_of_the_folder_comes_along() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                assert!(EMBEDDED.iter().any(|(name, _)| *name == stem), "{stem}");
            }
        }
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_its_line() {
        let text = "about = \"x.\"\n[[stream]]\nrate = 3\n";
        let error = Scenario::parse("s.toml", text).unwrap_err().to_string();
        assert!(error.starts_with("s.toml:3:1: unknown field `rate`"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let text = "about = \"x.\"\n[[stream]]\ntarget = 99\n";
        let error = Scenario::parse("s.toml", text).unwrap_err().to_string();
        assert_eq!(error, "target is 99; give 0 to 1");
    }

    #[test]
    fn one_rate_scales_streams_and_keeps_their_shares() {
        let stream = |rate| StreamSpec { rate_rps: Some(rate), ..StreamSpec::default() };
        let mut scenario = Scenario::single(stream(100.0));
        scenario.streams.push(stream(300.0));
        scenario.set_rate(1_000.0);
        let rates: Vec<_> = scenario.streams.iter().filter_map(|s| s.rate_rps).collect();
        assert_eq!(rates, [250.0, 750.0]);
    }

    #[test]
    fn one_model_cannot_replace_two() {
        let stream =
            |model: &str| StreamSpec { model: Some(model.to_owned()), ..Default::default() };
        let mut scenario = Scenario::single(stream("a"));
        scenario.set_model("c").unwrap();
        assert_eq!(scenario.streams[0].model.as_deref(), Some("c"));
        scenario.streams.push(stream("b"));
        assert!(matches!(scenario.set_model("d"), Err(ScenarioError::ManyModels { .. })));
    }
}
