//! What a worker and its executor say to each other, one JSON object a line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The longest line either side reads, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// What a worker tells its executor, on the executor's stdin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Listen, and serve only peers that know `token`. The first order, given once.
    Listen {
        /// A secret of this executor, worker and router.
        token: String,
    },
    /// Load a model, warm it, and serve it as `replica`.
    Load {
        /// The replica's id, unique in the fleet.
        replica: u32,
        /// What to load.
        spec: ModelSpec,
    },
    /// Finish the batches of `replica` and drop its model.
    Unload {
        /// The replica's id.
        replica: u32,
    },
    /// Exit.
    Stop,
}

/// What an executor tells its worker, on its stdout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Notice {
    /// Routers may connect.
    Listening {
        /// `unix:/path` or `tcp:127.0.0.1:port`.
        address: String,
    },
    /// A model is being loaded.
    Loading {
        /// The replica's id.
        replica: u32,
    },
    /// A model is loaded and is being run to warm it.
    Warming {
        /// The replica's id.
        replica: u32,
        /// The batch size it is being run at.
        batch: u32,
    },
    /// A model may be given batches.
    Ready {
        /// The replica's id.
        replica: u32,
        /// What the model takes and gives.
        signature: Shapes,
        /// What runs the model, for its metadata: `rten_onnx`, `synthetic` and so on.
        platform: String,
        /// The most rows a batch may have: as asked, or 1 if the model does not batch.
        max_batch: u32,
        /// How long batches took while warming.
        warmup: Vec<WarmPoint>,
        /// Microseconds from the order to the end of loading.
        load_us: u64,
        /// Memory the model takes, as far as the executor can tell.
        memory_bytes: u64,
    },
    /// A model cannot be served.
    Failed {
        /// The replica's id.
        replica: u32,
        /// For people.
        reason: String,
    },
    /// A model is gone and will be loaded again, in a while and without being ordered to.
    Lost {
        /// The replica's id.
        replica: u32,
        /// For people.
        reason: String,
    },
    /// A model was dropped.
    Unloaded {
        /// The replica's id.
        replica: u32,
    },
}

/// A model to load, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The model's name.
    pub name: String,
    /// The model's version.
    pub version: String,
    /// What runs it.
    pub engine: Engine,
    /// The most rows a batch will have, at least 1.
    pub max_batch: u32,
    /// What the operator says it needs, in MiB; 0 if nothing was said.
    pub memory_mib: u64,
    /// The most threads one batch may use, at least 1.
    pub threads: u32,
}

/// What runs a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Engine {
    /// An ONNX file, run in the executor.
    Onnx {
        /// The file.
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
        /// What it takes.
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
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The program and its arguments, at least one word; no shell reads them.
    pub command: Vec<String>,
    /// What it finds in its environment beside the executor's own.
    pub environment: BTreeMap<String, String>,
    /// Where it is started, if not where the executor was.
    pub directory: Option<String>,
    /// What it calls the model.
    pub served_name: String,
    /// How long it may take until the model is ready, in milliseconds.
    pub ready_timeout_ms: u64,
    /// How long it may take over one batch before it is given up, in milliseconds.
    pub answer_timeout_ms: u64,
    /// What the model takes and gives, where the server does not say.
    pub signature: Option<Shapes>,
}

/// What a model takes and gives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shapes {
    /// Inputs, in the model's order.
    pub inputs: Vec<TensorShape>,
    /// Outputs, in the model's order.
    pub outputs: Vec<TensorShape>,
}

/// One tensor a model takes or gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorShape {
    /// Its name.
    pub name: String,
    /// Its datatype as the Open Inference Protocol spells it.
    pub datatype: String,
    /// Its dimensions, -1 where any size will do; the first is the batch if the model batches.
    pub shape: Vec<i64>,
}

/// How long batches of one size took while a model was warmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmPoint {
    /// Rows in each batch.
    pub batch: u32,
    /// Microseconds in the model, a number per run; the first run is left out where there were more.
    pub compute_us: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_notices_are_readable_lines() {
        let line = serde_json::to_string(&Order::Unload { replica: 3 }).unwrap();
        assert_eq!(line, r#"{"unload":{"replica":3}}"#);
        let line = serde_json::to_string(&Order::Stop).unwrap();
        assert_eq!(line, r#""stop""#);
        let notice = Notice::Warming { replica: 3, batch: 8 };
        let line = serde_json::to_string(&notice).unwrap();
        assert_eq!(line, r#"{"warming":{"replica":3,"batch":8}}"#);
        assert_eq!(serde_json::from_str::<Notice>(&line).unwrap(), notice);
    }

    #[test]
    fn a_curve_reads_as_pairs() {
        let line = r#"{"load":{"replica":1,"spec":{"name":"slow","version":"1","engine":
            {"synthetic":{"curve":[[1,5.5],[8,20.0]],"noise":0.0,"inputs":[],"outputs":[]}},
            "max_batch":8,"memory_mib":0,"threads":1}}}"#;
        let order = serde_json::from_str::<Order>(line).unwrap();
        let Order::Load { spec, .. } = order else { panic!("{order:?}") };
        let Engine::Synthetic { curve, .. } = spec.engine else { panic!("{spec:?}") };
        assert_eq!(curve, [(1, 5.5), (8, 20.0)]);
    }
}
