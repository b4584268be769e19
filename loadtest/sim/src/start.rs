//! A dump of a live router's state, as the simulator's start: how its GPUs are cut, what is on
//! them, what is asked, and who waits.
//!
//! It is the document of `GET /admin/v1/state`. Speeds are not in it: a model is as fast as the
//! scenario's measurements of the same name say.

use mig::{Geometry, MigError, Position};
use serde::Deserialize;

#[derive(Clone, Debug, Default)]
pub struct Start {
    pub gpus: Vec<Geometry>,
    pub replicas: Vec<Placed>,
    pub models: Vec<StartModel>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    pub model: String,
    /// Index of its GPU.
    pub gpu: usize,
    /// Index of its slice in the GPU's geometry.
    pub slice: usize,
    /// Which of the slice's processes it is in.
    pub process: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StartModel {
    pub name: String,
    pub slo_ms: f64,
    /// The part of requests to be within it.
    pub target: f64,
    pub max_batch: u32,
    pub batching: String,
    pub rate_rps: f64,
    pub waiting: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("not a router's state: {0}")]
    NotAState(#[from] serde_json::Error),
    #[error("{gpu}: {source}")]
    Mig { gpu: String, source: MigError },
    #[error("{gpu} is of no known kind")]
    UnknownKind { gpu: String },
    #[error("the scenario has no [[model]] {model:?}, which the router serves")]
    UnknownModel { model: String },
    #[error("a fault of the scenario is on GPU {gpu}, the router has {count}")]
    NoSuchGpu { gpu: usize, count: usize },
    #[error("no worker has a GPU with a replica")]
    Empty,
}

#[derive(Deserialize)]
struct State {
    models: Vec<Model>,
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
struct Model {
    name: String,
    slo_ms: f64,
    slo_target: f64,
    max_batch: u32,
    batching: String,
    dispatch: Option<Dispatch>,
}

#[derive(Deserialize)]
struct Dispatch {
    waiting: u64,
    rate_rps: f64,
}

#[derive(Deserialize)]
struct Worker {
    gpus: Vec<Gpu>,
}

#[derive(Deserialize)]
struct Gpu {
    gpu: String,
    kind: Option<String>,
    slices: Vec<Slice>,
}

#[derive(Deserialize)]
struct Slice {
    position: Option<String>,
    replicas: Vec<Replica>,
}

#[derive(Deserialize)]
struct Replica {
    model: String,
    state: String,
    #[serde(default, rename = "lane")]
    process: usize,
}

/// Reads the document; replicas that failed or are leaving are left out.
pub fn parse(text: &str) -> Result<Start, StartError> {
    let state: State = serde_json::from_str(text)?;
    let mut start = Start::default();
    for gpu in state.workers.into_iter().flat_map(|worker| worker.gpus) {
        start.add(gpu)?;
    }
    if start.replicas.is_empty() {
        return Err(StartError::Empty);
    }
    let asked = |model: Model| {
        let (waiting, rate_rps) =
            model.dispatch.map_or((0, 0.0), |dispatch| (dispatch.waiting, dispatch.rate_rps));
        let Model { name, slo_ms, slo_target: target, max_batch, batching, .. } = model;
        StartModel { name, slo_ms, target, max_batch, batching, rate_rps, waiting }
    };
    start.models = state.models.into_iter().map(asked).collect();
    Ok(start)
}

impl Start {
    fn add(&mut self, gpu: Gpu) -> Result<(), StartError> {
        let Gpu { gpu: label, kind, slices } = gpu;
        let wrong = |source| StartError::Mig { gpu: label.clone(), source };
        let kind = kind.ok_or_else(|| StartError::UnknownKind { gpu: label.clone() })?;
        let kind = mig::kind(&kind).map_err(wrong)?;
        let at = |slice: &Slice| match &slice.position {
            Some(text) => kind.position(text),
            None => Ok(kind.whole()),
        };
        let positions: Vec<Position> =
            slices.iter().map(at).collect::<Result<_, _>>().map_err(wrong)?;
        let geometry = Geometry::new(kind, positions.clone()).map_err(wrong)?;
        for (slice, position) in slices.into_iter().zip(positions) {
            let place = geometry.positions().iter().position(|known| *known == position);
            let gone = |state: &str| matches!(state, "failed" | "draining");
            let here = slice.replicas.into_iter().filter(|replica| !gone(&replica.state));
            let placed = here.map(|replica| Placed {
                model: replica.model,
                gpu: self.gpus.len(),
                slice: place.unwrap_or_default(),
                process: replica.process,
            });
            self.replicas.extend(placed);
        }
        self.gpus.push(geometry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = r#"{"uptime_s": 1.5, "models": [{"name": "a", "slo_ms": 50.0,
        "slo_target": 0.95, "max_batch": 8, "batching": "slo",
        "dispatch": {"waiting": 3, "in_flight": 2, "rate_rps": 120.5}}],
        "workers": [{"name": "w", "gpus": [{"gpu": "gpu0", "kind": "A100-80GB", "slices": [
        {"position": "3g.40gb@4", "replicas": [{"model": "a", "state": "ready"}]},
        {"position": "3g.40gb@0", "replicas": [{"model": "a", "state": "failed"}]}]}]}]}"#;

    #[test]
    fn a_start_has_the_slices_the_living_replicas_and_what_is_asked() {
        let start = parse(STATE).unwrap();
        assert_eq!(start.gpus[0].to_string(), "3g.40gb@0,3g.40gb@4");
        assert_eq!(
            start.replicas,
            [Placed { model: "a".to_owned(), gpu: 0, slice: 1, process: 0 }]
        );
        let StartModel { target, max_batch, rate_rps, waiting, .. } = start.models[0];
        assert_eq!((target, max_batch, rate_rps, waiting), (0.95, 8, 120.5, 3));
    }

    #[test]
    fn what_is_not_a_state_is_refused() {
        assert!(matches!(parse("{}"), Err(StartError::NotAState(_))));
        let odd = STATE.replace("3g.40gb@4", "3g.40gb@3");
        assert!(parse(&odd).unwrap_err().to_string().starts_with("gpu0: 3g.40gb cannot start"));
        let none = STATE.replace("\"ready\"", "\"failed\"");
        assert!(matches!(parse(&none), Err(StartError::Empty)));
    }
}
