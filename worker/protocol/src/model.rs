//! A model as workers and executors know it: what to load, what it takes and gives, how fast it is.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    pub name: String,
    pub version: String,
    pub engine: Engine,
    /// The digest that the model's files must have, in hexadecimal digits; absent, any will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The most rows a batch will have, at least 1.
    pub max_batch: u32,
    /// What the operator says it needs, in MiB; 0 if nothing was said.
    pub memory_mib: u64,
    /// The most threads one batch may use, at least 1.
    pub threads: u32,
    /// What an ONNX model shall run on; absent, on the GPU of its slice where that can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Dimensions of its inputs, without the batch, that it is warmed at; for free dimensions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warmup: Vec<BTreeMap<String, Vec<u64>>>,
    /// The file of a request that it is warmed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_file: Option<String>,
}

/// What a model computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    Cpu,
    Gpu,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        })
    }
}

/// What runs an ONNX model, and on what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    /// `onnxruntime` or `rten`.
    pub name: String,
    /// Its version, where that can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub device: Device,
    /// The threads of one batch.
    pub threads: u32,
    /// Why it is not the runtime or the device one would rather have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(version) = &self.version {
            write!(f, " {version}")?;
        }
        let plural = if self.threads == 1 { "" } else { "s" };
        write!(f, " on {}, {} thread{plural}", self.device, self.threads)?;
        match &self.why {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
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
