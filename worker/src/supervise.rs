//! Keeping one executor alive per slice, and telling the router of its replicas.
//!
//! Reports are states, not events: each holds everything of its slice and replaces the one before,
//! so a report lost or repeated does no harm, and a router that starts late is told the same.

pub(crate) mod backoff;
mod keeper;
mod lines;
mod state;

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use mig::{Geometry, MigError, Position};
use protocol::{ModelSpec, Report};
use tokio::{
    process::Command,
    sync::{mpsc, watch},
    task::JoinSet,
};

use self::{keeper::Keeper, state::State};

/// Which replicas live on which slices of this machine.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// The slices, at most one per position.
    pub slices: Vec<SlicePlan>,
}

/// One slice and its replicas.
#[derive(Clone, Debug)]
pub struct SlicePlan {
    /// Index of the GPU on this machine.
    pub gpu: usize,
    /// The GPU's kind, `A100-80GB`.
    pub kind: String,
    /// The slice's position on it, `7g.80gb@0`.
    pub position: String,
    /// The device the executor may see (`MIG-...`), or `None` if the slice is simulated.
    pub device: Option<String>,
    /// The replicas, by their ids, which are unique in the fleet.
    pub replicas: Vec<(u32, ModelSpec)>,
}

/// How executors are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program that has the subcommand `executor`: this one, as a rule.
    pub program: PathBuf,
    /// The directory of the executors' sockets; it is made if it is missing.
    pub run_dir: PathBuf,
    /// Use TCP instead of Unix sockets.
    pub tcp: bool,
}

/// Why a placement makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The slices are not ones the GPU can have at once.
    #[error("gpu {gpu}: {source}")]
    Mig {
        /// Index of the GPU.
        gpu: usize,
        /// What is wrong.
        source: MigError,
    },
    /// A GPU of two kinds.
    #[error("gpu {gpu} is a {first} and a {second}")]
    Kinds {
        /// Index of the GPU.
        gpu: usize,
        /// One kind.
        first: String,
        /// Another.
        second: String,
    },
    /// Two replicas of one id.
    #[error("replica {replica} is placed twice")]
    Twice {
        /// The id.
        replica: u32,
    },
}

/// The executors of this machine, until it is stopped or dropped.
#[derive(Debug)]
pub struct Worker {
    stopping: watch::Sender<bool>,
    keepers: JoinSet<()>,
}

impl Worker {
    /// Ends every executor and returns when they are gone.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        while self.keepers.join_next().await.is_some() {}
    }
}

type MakeCommand = Arc<dyn Fn(&SlicePlan, &str) -> Command + Send + Sync>;

/// Starts and supervises an executor for every slice of `placement`.
///
/// Must be called within a tokio runtime. Dropping the worker kills the executors.
pub fn start(
    placement: Placement,
    launch: Launch,
    reports: &mpsc::Sender<Report>,
) -> Result<Worker, PlanError> {
    let command = move |plan: &SlicePlan, label: &str| {
        let mut command = Command::new(&launch.program);
        command.args(["executor", "--slice", label, "--run-dir"]).arg(&launch.run_dir);
        if launch.tcp {
            command.arg("--tcp");
        }
        if let Some(device) = &plan.device {
            command.env("CUDA_VISIBLE_DEVICES", device);
        }
        command
    };
    start_with(placement, command, reports)
}

fn start_with(
    placement: Placement,
    command: impl Fn(&SlicePlan, &str) -> Command + Send + Sync + 'static,
    reports: &mpsc::Sender<Report>,
) -> Result<Worker, PlanError> {
    let positions = check(&placement)?;
    let command: MakeCommand = Arc::new(command);
    let (stopping, _) = watch::channel(false);
    let mut keepers = JoinSet::new();
    for (plan, position) in placement.slices.into_iter().zip(positions) {
        let state = State::new(&plan, position);
        let keeper = Keeper {
            plan,
            state,
            command: Arc::clone(&command),
            reports: reports.clone(),
            reported: None,
            stopping: stopping.subscribe(),
        };
        keepers.spawn(keeper.keep());
    }
    Ok(Worker { stopping, keepers })
}

/// The position of every slice, if the GPUs can have them all.
fn check(placement: &Placement) -> Result<Vec<Position>, PlanError> {
    let mut positions = Vec::new();
    let mut gpus: BTreeMap<usize, (&str, Vec<Position>)> = BTreeMap::new();
    let mut replicas = HashSet::new();
    for plan in &placement.slices {
        let gpu = plan.gpu;
        let position = mig::kind(&plan.kind)
            .and_then(|kind| kind.position(&plan.position))
            .map_err(|source| PlanError::Mig { gpu, source })?;
        positions.push(position);
        let (kind, slices) = gpus.entry(gpu).or_insert((&plan.kind, Vec::new()));
        if *kind != plan.kind {
            let (first, second) = ((*kind).to_owned(), plan.kind.clone());
            return Err(PlanError::Kinds { gpu, first, second });
        }
        slices.push(position);
        if let Some((replica, _)) = plan.replicas.iter().find(|(id, _)| !replicas.insert(*id)) {
            return Err(PlanError::Twice { replica: *replica });
        }
    }
    for (gpu, (kind, slices)) in gpus {
        mig::kind(kind)
            .and_then(|kind| Geometry::new(kind, slices))
            .map_err(|source| PlanError::Mig { gpu, source })?;
    }
    Ok(positions)
}

#[cfg(test)]
mod tests;
