//! One served model, as checked.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use oip::{Signature, TensorSpec};
use policy::rule::Batching;

use super::profile::Profile;

/// One served model.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The name in `/v2/models/{name}`.
    pub name: String,
    /// The version in `/v2/models/{name}/versions/{version}`.
    pub version: String,
    /// What runs it.
    pub engine: Engine,
    /// Its measured latency, where a file gives it; else it is learned at warm-up.
    pub profile: Option<Arc<Profile>>,
    /// Time allowed from arrival to last response byte.
    pub slo: Duration,
    /// The part of requests that must be within `slo`, in `(0, 1)`.
    pub slo_target: f64,
    /// The most rows one batch may hold. 1 to 1024.
    pub max_batch: u32,
    /// Memory one replica needs.
    pub memory_mib: u64,
    /// How many replicas.
    pub replicas: Replicas,
    /// When a batch is closed.
    pub batching: Batching,
    /// Room for remembered answers; 0 is off.
    pub cache_mib: u64,
    /// The class of requests that name none.
    pub class: Class,
}

/// What runs a model.
#[derive(Clone, Debug, PartialEq)]
pub enum Engine {
    /// A real model.
    Onnx {
        /// The model file, found to exist.
        path: PathBuf,
    },
    /// A model in another server.
    Server(Server),
    /// Sleeps by a measured profile.
    Synthetic {
        /// How long it sleeps.
        profile: Arc<Profile>,
        /// What it takes; the first dimension is the batch.
        inputs: Vec<TensorSpec>,
        /// What it gives.
        outputs: Vec<TensorSpec>,
    },
}

impl Engine {
    /// The word for it in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Onnx { .. } => "onnx",
            Self::Server(_) => "server",
            Self::Synthetic { .. } => "synthetic",
        }
    }
}

/// A server of the Open Inference Protocol that is started for a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The program and its arguments. At least one word.
    pub command: Vec<String>,
    /// What is added to its environment; may hold secrets.
    pub environment: BTreeMap<String, String>,
    /// Where it is started, found to exist.
    pub directory: PathBuf,
    /// What it calls the model.
    pub served_name: String,
    /// Time from its start until the model must be ready.
    pub ready_timeout: Duration,
    /// What the model takes and gives, if the server is not to be asked.
    pub signature: Option<Signature>,
}

/// How many replicas a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Always kept. At least 1.
    pub min: u32,
    /// Never exceeded. At least `min`.
    pub max: u32,
}

/// Who goes first when not all can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Someone waits.
    Interactive,
    /// Shed first.
    Batch,
}

impl Class {
    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Batch => "batch",
        }
    }
}
