//! Which lines are wanted: a level for all, and others for parts of the program.

use std::{fmt, str::FromStr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// A level, and levels of targets that differ from it, as `info,control=debug`.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    text: String,
    targets: Targets,
}

/// What is no filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFilter {
    part: String,
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no log level; give off, error, warn, info, debug or trace, or a list such as \
             \"info,control=debug\"",
            self.part
        )
    }
}

impl std::error::Error for BadFilter {}

impl Filter {
    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }
}

impl Default for Filter {
    /// The level `info`.
    fn default() -> Self {
        let targets = Targets::new().with_default(LevelFilter::INFO);
        Self { text: "info".to_owned(), targets }
    }
}

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Self, BadFilter> {
        let text = text.trim();
        let bad = |part: &str| BadFilter { part: part.to_owned() };
        let mut targets = Targets::new();
        for part in text.split(',').map(str::trim) {
            let (target, level) = part
                .split_once('=')
                .map_or((None, part), |(target, level)| (Some(target.trim()), level.trim()));
            let level = level_named(level).ok_or_else(|| bad(part))?;
            targets = match target {
                None => targets.with_default(level),
                Some("") => return Err(bad(part)),
                Some(target) => targets.with_target(target, level),
            };
        }
        Ok(Self { text: text.to_owned(), targets })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn level_named(word: &str) -> Option<LevelFilter> {
    let known = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    known.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, level)| level)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn filter_has_a_level_and_levels_of_targets() {
        let filter: Filter = " Warn, control=debug".parse().unwrap();
        assert_eq!(filter.to_string(), "Warn, control=debug");
        let is_on = |target, level| filter.targets().would_enable(target, &level);
        assert!(is_on("serve", Level::WARN) && !is_on("serve", Level::INFO));
        assert!(is_on("control::round", Level::DEBUG) && !is_on("control", Level::TRACE));
    }

    #[test]
    fn filter_is_no_word_but_a_level() {
        for wrong in ["", "loud", "info,", "control", "=info", "control=", "info;debug"] {
            let error = wrong.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains("give off, error, warn"), "{wrong:?}: {error}");
        }
    }
}
