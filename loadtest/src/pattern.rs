//! Arrivals in words: `poisson`, `gamma:shape=0.25`, `sine:period_s=10,depth=0.8`.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use crate::arrivals::{Shape, Spacing};

pub const PATTERNS: &str = "constant, poisson, gamma:shape=K, step:factors=A/B/..,each_s=S, \
ramp:from=A,to=B[,over_s=S], sine:period_s=S,depth=D, on-off:on_s=S,off_s=S, \
trace:file=F[,speed=X]; any but the first three and trace also take spacing=constant";

#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    Drawn {
        spacing: Spacing,
        /// How the rate moves; a ramp without a length has none yet.
        shape: Shape,
    },
    Trace {
        file: PathBuf,
        speed: Option<f64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("no arrivals are called {name:?}; there are {PATTERNS}")]
    Name { name: String },
    #[error("{pattern} takes no {key:?}, or not twice")]
    Key { pattern: String, key: String },
    #[error("{pattern} needs {key}: {wanted}")]
    Value { pattern: String, key: &'static str, wanted: &'static str },
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut settings = Settings::new(name, settings)?;
        let pattern = match name {
            "constant" => drawn(Spacing::Even, Shape::Flat),
            "poisson" => drawn(Spacing::Poisson, Shape::Flat),
            "gamma" => drawn(Spacing::Gamma { shape: settings.above_zero("shape")? }, Shape::Flat),
            "trace" => settings.trace()?,
            "step" | "ramp" | "sine" | "on-off" => {
                let spacing = settings.spacing()?;
                drawn(spacing, settings.shape(name)?)
            }
            _ => return Err(PatternError::Name { name: name.to_owned() }),
        };
        settings.finish()?;
        Ok(pattern)
    }
}

fn drawn(spacing: Spacing, shape: Shape) -> Pattern {
    Pattern::Drawn { spacing, shape }
}

struct Settings<'a> {
    pattern: &'a str,
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Settings<'a> {
    fn new(pattern: &'a str, text: &'a str) -> Result<Self, PatternError> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        let left: Vec<_> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
        for (index, (key, _)) in left.iter().enumerate() {
            if left[..index].iter().any(|(earlier, _)| earlier == key) {
                return Err(PatternError::Key {
                    pattern: pattern.to_owned(),
                    key: (*key).to_owned(),
                });
            }
        }
        Ok(Self { pattern, left })
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.left.iter().position(|(name, _)| *name == key)?;
        Some(self.left.swap_remove(at).1)
    }

    fn bad(&self, key: &'static str, wanted: &'static str) -> PatternError {
        PatternError::Value { pattern: self.pattern.to_owned(), key, wanted }
    }

    fn number(&mut self, key: &'static str, wanted: &'static str) -> Result<f64, PatternError> {
        let value = self.take(key).and_then(|text| text.parse::<f64>().ok());
        value
            .filter(|value| value.is_finite() && *value >= 0.0)
            .ok_or_else(|| self.bad(key, wanted))
    }

    fn above_zero(&mut self, key: &'static str) -> Result<f64, PatternError> {
        const WANTED: &str = "a number above zero";
        let value = self.number(key, WANTED)?;
        if value > 0.0 { Ok(value) } else { Err(self.bad(key, WANTED)) }
    }

    fn seconds(&mut self, key: &'static str) -> Result<Duration, PatternError> {
        let seconds = self.above_zero(key)?;
        let wanted = "a number of seconds, at least a microsecond";
        let duration = Duration::try_from_secs_f64(seconds).ok();
        duration.filter(|d| d.as_micros() > 0).ok_or_else(|| self.bad(key, wanted))
    }

    fn spacing(&mut self) -> Result<Spacing, PatternError> {
        match self.take("spacing") {
            None | Some("poisson") => Ok(Spacing::Poisson),
            Some("constant") => Ok(Spacing::Even),
            Some(_) => Err(self.bad("spacing", "poisson or constant")),
        }
    }

    fn shape(&mut self, name: &str) -> Result<Shape, PatternError> {
        Ok(match name {
            "step" => Shape::Step { factors: self.factors()?, each: self.seconds("each_s")? },
            "ramp" => Shape::Ramp {
                from: self.number("from", "a factor, zero or more")?,
                to: self.above_zero("to")?,
                over: match self.left.iter().any(|(key, _)| *key == "over_s") {
                    true => self.seconds("over_s")?,
                    false => Duration::ZERO,
                },
            },
            "sine" => Shape::Sine { period: self.seconds("period_s")?, depth: self.depth()? },
            _ => Shape::OnOff { on: self.seconds("on_s")?, off: self.seconds("off_s")? },
        })
    }

    fn factors(&mut self) -> Result<Vec<f64>, PatternError> {
        let wanted = "factors between slashes, the last above zero";
        let text = self.take("factors").unwrap_or_default();
        let factors: Option<Vec<f64>> =
            text.split('/').map(|part| part.parse().ok().filter(|f: &f64| f.is_finite())).collect();
        factors
            .filter(|all| all.iter().all(|f| *f >= 0.0) && all.last().is_some_and(|f| *f > 0.0))
            .ok_or_else(|| self.bad("factors", wanted))
    }

    fn depth(&mut self) -> Result<f64, PatternError> {
        let wanted = "a number from 0 to 1";
        let depth = self.number("depth", wanted)?;
        if depth <= 1.0 { Ok(depth) } else { Err(self.bad("depth", wanted)) }
    }

    fn trace(&mut self) -> Result<Pattern, PatternError> {
        let file = self.take("file").filter(|file| !file.is_empty());
        let file = file.ok_or_else(|| self.bad("file", "a CSV file"))?.into();
        let has_speed = self.left.iter().any(|(key, _)| *key == "speed");
        let speed = if has_speed { Some(self.above_zero("speed")?) } else { None };
        Ok(Pattern::Trace { file, speed })
    }

    fn finish(self) -> Result<(), PatternError> {
        match self.left.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(PatternError::Key { pattern: self.pattern.to_owned(), key: (*key).to_owned() })
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (spacing, shape) = match self {
            Self::Trace { file, speed } => {
                write!(f, "trace {}", file.display())?;
                return speed.map_or(Ok(()), |speed| write!(f, " at speed {speed}"));
            }
            Self::Drawn { spacing, shape } => (spacing, shape),
        };
        match spacing {
            Spacing::Even => f.write_str("constant")?,
            Spacing::Poisson => f.write_str("poisson")?,
            Spacing::Gamma { shape } => write!(f, "gamma {shape}")?,
        }
        match shape {
            Shape::Flat => Ok(()),
            Shape::Step { factors, each } => write!(f, ", steps {factors:?} of {each:?}"),
            Shape::Ramp { from, to, over } => write!(f, ", ramp x{from} to x{to} over {over:?}"),
            Shape::Sine { period, depth } => write!(f, ", sine of {period:?}, depth {depth}"),
            Shape::OnOff { on, off } => write!(f, ", {on:?} on, {off:?} off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn every_pattern_can_be_written() {
        let s = Duration::from_secs;
        let poisson = |shape| drawn(Spacing::Poisson, shape);
        assert_eq!(pattern("constant"), drawn(Spacing::Even, Shape::Flat));
        assert_eq!(pattern("poisson"), poisson(Shape::Flat));
        assert_eq!(pattern("gamma:shape=0.25"), drawn(Spacing::Gamma { shape: 0.25 }, Shape::Flat));
        assert_eq!(
            pattern("step:factors=1/0.5/2,each_s=5"),
            poisson(Shape::Step { factors: vec![1.0, 0.5, 2.0], each: s(5) })
        );
        assert_eq!(
            pattern("ramp:from=0,to=2,over_s=9,spacing=constant"),
            drawn(Spacing::Even, Shape::Ramp { from: 0.0, to: 2.0, over: s(9) })
        );
        assert_eq!(
            pattern("sine:period_s=10,depth=0.8"),
            poisson(Shape::Sine { period: s(10), depth: 0.8 })
        );
        assert_eq!(pattern("on-off:on_s=1,off_s=4"), poisson(Shape::OnOff { on: s(1), off: s(4) }));
        let trace = Pattern::Trace { file: "a.csv".into(), speed: Some(2.0) };
        assert_eq!(pattern("trace:file=a.csv,speed=2"), trace);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let says = |text: &str| text.parse::<Pattern>().unwrap_err().to_string();
        assert!(
            says("posson").starts_with("no arrivals are called \"posson\"; there are constant")
        );
        assert_eq!(says("poisson:rate=3"), "poisson takes no \"rate\", or not twice");
        assert_eq!(says("gamma"), "gamma needs shape: a number above zero");
        assert_eq!(says("gamma:shape=0"), "gamma needs shape: a number above zero");
        assert_eq!(says("sine:period_s=1,depth=2"), "sine needs depth: a number from 0 to 1");
        assert_eq!(
            says("step:factors=1/0,each_s=1"),
            "step needs factors: factors between slashes, the last above zero"
        );
        assert_eq!(says("trace"), "trace needs file: a CSV file");
        assert_eq!(says("gamma:shape=1,shape=2"), "gamma takes no \"shape\", or not twice");
    }
}
