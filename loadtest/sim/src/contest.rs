//! Several ways to decide, on the same arrivals, over several seeds.

use serde::Serialize;

use crate::{
    simulate::{SimulateError, simulate},
    study::{Study, StudyError},
    summary::Summary,
};

#[derive(Debug, Serialize)]
pub struct Entry {
    pub value: String,
    /// One run per seed; none if it has no place for all replicas.
    pub runs: Vec<Summary>,
    pub refused: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Contest {
    pub scenario: String,
    pub key: String,
    pub entries: Vec<Entry>,
}

#[derive(Debug, thiserror::Error)]
pub enum ContestError {
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error(transparent)]
    Run(#[from] SimulateError),
}

pub fn hold(
    study: &Study,
    key: &str,
    values: &[String],
    seeds: u64,
) -> Result<Contest, ContestError> {
    let mut entries = Vec::new();
    for value in values {
        let mut changed = study.clone();
        changed.set(key, value)?;
        let mut entry = Entry { value: value.clone(), runs: Vec::new(), refused: None };
        for seed in 0..seeds {
            match simulate(&changed, study.terms.seed.wrapping_add(seed)) {
                Ok(summary) => entry.runs.push(summary),
                Err(SimulateError::Place(none)) => {
                    entry.refused = Some(none.to_string());
                    break;
                }
                Err(
                    broken @ (SimulateError::Broken(_)
                    | SimulateError::Beside(_)
                    | SimulateError::Follow(_)),
                ) => {
                    return Err(broken.into());
                }
            }
        }
        entries.push(entry);
    }
    Ok(Contest { scenario: study.name.clone(), key: key.to_owned(), entries })
}

impl Entry {
    pub fn over(&self, of: impl Fn(&Summary) -> f64) -> Spread {
        let values = self.runs.iter().map(of);
        let (mut sum, mut low, mut high) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            sum += value;
            low = low.min(value);
            high = high.max(value);
        }
        Spread { mean: sum / self.runs.len().max(1) as f64, low, high }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}
