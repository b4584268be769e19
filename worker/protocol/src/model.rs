//! A model as workers and executors know it: what to load, what it takes and gives, how fast it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    pub name: String,
    pub version: String,
    pub engine: Engine,
    /// The most rows a batch will have, at least 1.
    pub max_batch: u32,
    /// What the operator says it needs, in MiB; 0 if nothing was said.
    pub memory_mib: u64,
    /// The most threads one batch may use, at least 1.
    pub threads: u32,
}

impl ModelSpec {
    /// A number that differs, as good as always, where two specifications do.
    ///
    /// Only the router reckons it: reading a number from JSON may change its last bit.
    pub fn digest(&self) -> u64 {
        let bytes =
            serde_json::to_vec(self).expect("a specification has no maps, hence no bad keys");
        // FNV-1a.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    Onnx {
        path: String,
    },
    /// Another server, started and looked after by the executor.
    Server(Box<Server>),
    /// No model at all: batches take as long as a measured one took.
    Synthetic {
        /// Batch size and latency in milliseconds, by rising batch size, at least one point.
        /// Latencies of 0 mean that batches are answered without any sleep.
        curve: Vec<(u32, f64)>,
        /// The spread of latencies around the curve, as a share of it; 0 for none.
        noise: f64,
        inputs: Vec<TensorShape>,
        /// What it gives: an input of the same shape and datatype, or else zeros.
        outputs: Vec<TensorShape>,
    },
}

/// A server of the Open Inference Protocol over HTTP that the executor starts for one model.
///
/// In the command's arguments and the environment's values `{port}`, `{host}` and `{model}` stand
/// for where it shall listen and what it shall serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The program and its arguments, at least one word; no shell reads them.
    pub command: Vec<String>,
    /// What it finds in its environment beside the executor's own.
    pub environment: BTreeMap<String, String>,
    /// Where it is started, if not where the executor was.
    pub directory: Option<String>,
    pub served_name: String,
    /// How long it may take until the model is ready, in milliseconds.
    pub ready_timeout_ms: u64,
    /// How long it may take over one batch before it is given up, in milliseconds.
    pub answer_timeout_ms: u64,
    /// What the model takes and gives, where the server does not say.
    pub signature: Option<Shapes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shapes {
    pub inputs: Vec<TensorShape>,
    pub outputs: Vec<TensorShape>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorShape {
    pub name: String,
    /// Its datatype as the Open Inference Protocol spells it.
    pub datatype: String,
    /// Its dimensions, -1 where any size will do; the first is the batch if the model batches.
    pub shape: Vec<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmPoint {
    pub batch: u32,
    /// Microseconds in the model, a number per run; the first run is left out where there were more.
    pub compute_us: Vec<u64>,
}
