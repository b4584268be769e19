//! When requests come, from a pattern in words, a trace, or rates over time.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use loadtest::{
    arrivals::{Process, Shape, Spacing},
    pattern::Pattern,
    plan::Source,
    trace,
};
use policy::dispatch::Class;
use toml::Spanned;

use super::{
    Asking, draft,
    read::{MOST_RPS, Reader},
};

impl Reader {
    pub(super) fn asking(
        &mut self,
        draft: &draft::Stream,
        names: &BTreeMap<String, Range<usize>>,
        duration: Duration,
    ) -> Option<Vec<Asking>> {
        let models = names.get(draft.model.get_ref()).cloned();
        if models.is_none() {
            let message = format!("no [[model]] is named {:?}", draft.model.get_ref());
            self.problems.add(&draft.model.span(), message);
        }
        let class = self.choice(
            "class",
            draft.class.as_ref(),
            &[("interactive", Class::Interactive), ("batch", Class::Batch)],
        );
        let weight = draft.weight.as_ref();
        let weight = weight.map_or(1.0, |value| self.problems.within("weight", value, 0.001..=1e6));
        let shapes = draft.shapes.as_ref();
        let shapes = shapes.map_or(1, |value| self.problems.within("shapes", value, 1..=1_000));
        let source = self.source(draft, duration)?;
        let tenant = draft.tenant.clone().unwrap_or_default();
        let class = class?;
        let ask = |model| Asking {
            model,
            source: source.clone(),
            tenant: tenant.clone(),
            weight,
            class,
            shapes,
        };
        Some(models?.map(ask).collect())
    }

    fn source(&mut self, draft: &draft::Stream, duration: Duration) -> Option<Source> {
        let rate = draft.rate_rps.as_ref();
        let rate = rate.map(|value| self.problems.within("rate_rps", value, 1e-6..=MOST_RPS));
        let speed = draft.speed.as_ref();
        let speed = speed.map_or(1.0, |value| self.problems.within("speed", value, 1e-3..=1e6));
        if let Some(path) = &draft.rates_csv {
            let text = self.file(path)?;
            return self.rates(path, &text, speed, rate);
        }
        let words = draft.arrivals.as_ref().map_or("poisson", |words| words.get_ref());
        let at = draft.arrivals.as_ref().map_or_else(|| draft.model.span(), Spanned::span);
        match words.parse::<Pattern>() {
            Err(error) => {
                self.problems.add(&at, error.to_string());
                None
            }
            Ok(Pattern::Trace { file, speed }) => {
                let path = Spanned::new(at, file.display().to_string());
                let text = self.file(&path)?;
                self.trace(&path, &text, speed, rate)
            }
            Ok(Pattern::Drawn { spacing, shape }) => {
                let Some(rate_rps) = rate else {
                    self.problems.add(&draft.model.span(), "a stream needs its rate_rps");
                    return None;
                };
                let shape = match shape {
                    Shape::Ramp { from, to, over } if over.is_zero() => {
                        Shape::Ramp { from, to, over: duration }
                    }
                    given @ (Shape::Flat
                    | Shape::Step { .. }
                    | Shape::Ramp { .. }
                    | Shape::Sine { .. }
                    | Shape::OnOff { .. }) => given,
                };
                Some(Source::Process(Process { rate_rps, spacing, shape }))
            }
        }
    }

    fn trace(
        &mut self,
        path: &Spanned<String>,
        text: &str,
        speed: Option<f64>,
        rate: Option<f64>,
    ) -> Option<Source> {
        let found = trace::parse(text);
        let arrivals = found
            .map_err(|error| {
                self.problems.add(&path.span(), format!("{}: {error}", path.get_ref()))
            })
            .ok()?;
        let last = arrivals.last().map_or(0.0, |arrival| arrival.at.as_secs_f64()).max(1e-6);
        let recorded_rps = arrivals.len() as f64 / last;
        let speed = rate.map_or_else(|| speed.unwrap_or(1.0), |rate| rate / recorded_rps);
        Some(Source::List(arrivals.iter().map(|arrival| arrival.at.div_f64(speed)).collect()))
    }

    /// Rates over time, `t_s,rate_rps` at even steps: Poisson around them, of mean `rate` if given.
    fn rates(
        &mut self,
        path: &Spanned<String>,
        text: &str,
        speed: f64,
        rate: Option<f64>,
    ) -> Option<Source> {
        let read = |line: &str| {
            let (at, rate) = line.split_once(',')?;
            let (at, rate): (f64, f64) = (at.trim().parse().ok()?, rate.trim().parse().ok()?);
            (at >= 0.0 && rate >= 0.0 && at.is_finite() && rate.is_finite()).then_some((at, rate))
        };
        let mut lines = text.lines().enumerate();
        let header = lines.next().is_some_and(|(_, line)| line.trim() == "t_s,rate_rps");
        let points: Vec<Option<(f64, f64)>> = lines.map(|(_, line)| read(line)).collect();
        let bad = points.iter().position(Option::is_none);
        let points: Vec<(f64, f64)> = points.into_iter().flatten().collect();
        let each = points.windows(2).map(|pair| pair[1].0 - pair[0].0).next();
        let mean = points.iter().map(|(_, rate)| rate).sum::<f64>() / points.len().max(1) as f64;
        let problem = match (header, bad, each) {
            (false, ..) => Some("the first line must be t_s,rate_rps".to_owned()),
            (true, Some(index), _) => Some(format!("line {}: not a time and a rate", index + 2)),
            (true, None, Some(each)) if each > 0.0 && mean > 0.0 => None,
            (true, None, _) => Some("at least two rates, by rising time".to_owned()),
        };
        if let Some(problem) = problem {
            self.problems.add(&path.span(), format!("{}: {problem}", path.get_ref()));
            return None;
        }
        let factors = points.iter().map(|(_, rate)| rate / mean).collect();
        let each = Duration::from_secs_f64(each.unwrap_or(1.0) / speed);
        let shape = Shape::Step { factors, each };
        let rate_rps = rate.unwrap_or(mean * speed);
        Some(Source::Process(Process { rate_rps, spacing: Spacing::Poisson, shape }))
    }
}
