//! Another objective for one model of a checked configuration.

use std::time::Duration;

use serde::Deserialize;

use policy::rule::Batching;

use crate::{
    check::Config,
    effective::Origin,
    suggest::hint,
    tables::model::{Model, SLO_MS, SLO_TARGET, bad_delay_ms, too_tight},
};

/// What is asked of a model; what is absent stays as it is.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    pub model: String,
    pub slo_ms: Option<f64>,
    /// The share of requests that must be within it.
    pub slo_target: Option<f64>,
    /// Whether it shall be in force, rather than only be looked at.
    #[serde(default)]
    pub apply: bool,
    /// Whether it shall be in force even if no measured slice can keep it.
    #[serde(default)]
    pub force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveError {
    /// With what may have been meant.
    #[error("no model named {model:?}{hint}")]
    UnknownModel { model: String, hint: String },
    #[error("{}; the old objective stays", .problems.join("; "))]
    Invalid { problems: Vec<String> },
}

impl Objective {
    /// Reads a body, or says what is wrong with it.
    pub fn read(body: &[u8]) -> Result<Self, ObjectiveError> {
        let read = serde_json::from_slice(body);
        read.map_err(|error| ObjectiveError::Invalid { problems: vec![error.to_string()] })
    }
}

impl Config {
    /// The same with another objective, by the rules that hold for the file.
    pub fn with_objective(&self, asked: &Objective) -> Result<Self, ObjectiveError> {
        let name = &asked.model;
        let mut config = self.clone();
        let model = config.models.iter_mut().find(|model| model.name == *name);
        let model = model.ok_or_else(|| {
            let hint = hint(name, self.models.iter().map(|model| &*model.name));
            ObjectiveError::UnknownModel { model: name.clone(), hint }
        })?;
        let problems = problems(asked, model);
        if !problems.is_empty() {
            return Err(ObjectiveError::Invalid { problems });
        }
        if let Some(slo_ms) = asked.slo_ms {
            model.slo = Duration::from_secs_f64(slo_ms / 1e3);
            config.effective.overrule(name, "slo_ms", slo_ms);
        }
        if let Some(slo_target) = asked.slo_target {
            model.slo_target = slo_target;
            config.effective.overrule(name, "slo_target", slo_target);
        }
        Ok(config)
    }

    /// What the next reload brings back of a model's objective, unless the file is changed too.
    pub fn overruled(&self, model: &str) -> Vec<String> {
        let keys = ["slo_ms", "slo_target"].into_iter();
        let settings = keys.filter_map(|key| self.effective.of_model(model, key));
        let told = settings.filter_map(|setting| match &setting.origin {
            Origin::Operator { instead_of } => Some(format!("{} = {instead_of}", setting.key)),
            Origin::File { .. } | Origin::Environment(_) | Origin::Default => None,
        });
        told.collect()
    }
}

fn problems(asked: &Objective, model: &Model) -> Vec<String> {
    let mut problems = Vec::new();
    match asked.slo_ms {
        None if asked.slo_target.is_none() => {
            problems.push("nothing is asked for; give slo_ms, slo_target or both".to_owned());
        }
        None => {}
        Some(slo_ms) => match SLO_MS.problem("slo_ms", slo_ms) {
            Some(problem) => problems.push(problem),
            None => {
                problems.extend(model.profile.as_ref().and_then(|one| too_tight(slo_ms, one)));
                if let Batching::Timeout { delay, .. } = model.batching {
                    problems.extend(bad_delay_ms(delay.as_secs_f64() * 1e3, Some(slo_ms)));
                }
            }
        },
    }
    problems.extend(asked.slo_target.and_then(|target| SLO_TARGET.problem("slo_target", target)));
    problems
}
