//! What a server says about itself and its models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    datatype::Datatype,
    signature::{Signature, TensorSpec},
};

/// The answer to `GET /v2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerMetadata {
    pub name: String,
    pub version: String,
    /// The extensions it offers; a list even when empty, for `perf_analyzer` aborts without one.
    #[serde(default)]
    pub extensions: Vec<String>,
}

/// The answer to `GET /v2/models/{model}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelMetadata {
    pub name: String,
    #[serde(default)]
    pub versions: Vec<String>,
    #[serde(default)]
    pub platform: String,
    #[serde(default)]
    pub inputs: Vec<TensorSpec>,
    #[serde(default)]
    pub outputs: Vec<TensorSpec>,
    /// What is told beside the protocol; left out where that is nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

impl ModelMetadata {
    pub fn new(name: &str, version: &str, platform: &str, signature: &Signature) -> Self {
        Self {
            name: name.to_owned(),
            versions: vec![version.to_owned()],
            platform: platform.to_owned(),
            inputs: signature.inputs.clone(),
            outputs: signature.outputs.clone(),
            parameters: BTreeMap::new(),
        }
    }

    /// The inputs and outputs, as a client needs them to build a request.
    pub fn signature(&self) -> Signature {
        Signature { inputs: self.inputs.clone(), outputs: self.outputs.clone() }
    }
}

/// The answer to `GET /v2/models/{model}/config`: as much of Triton's as clients read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    pub name: String,
    pub platform: String,
    /// The engine, by Triton's other name for it.
    pub backend: String,
    /// Rows one batch may hold; 0 if the model does not batch, and then shapes are whole.
    pub max_batch_size: u32,
    /// What it takes, without the batch dimension if it batches.
    pub input: Vec<ConfigInput>,
    /// What it gives, without the batch dimension if it batches.
    pub output: Vec<ConfigOutput>,
    /// Present if the server forms batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_batching: Option<DynamicBatching>,
    pub model_transaction_policy: TransactionPolicy,
    pub response_cache: ResponseCache,
    /// What Triton's other keys cannot say.
    #[serde(default)]
    pub parameters: BTreeMap<String, ConfigParameter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigInput {
    pub name: String,
    /// Its type by Triton's name, such as `TYPE_FP32`.
    pub data_type: String,
    /// Its dimensions, -1 where any size will do.
    pub dims: Vec<i64>,
    /// Whether its values are a shape; never so here.
    #[serde(default)]
    pub is_shape_tensor: bool,
    /// Whether it may be left out; never so here.
    #[serde(default)]
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOutput {
    pub name: String,
    pub data_type: String,
    pub dims: Vec<i64>,
    #[serde(default)]
    pub is_shape_tensor: bool,
}

/// How batches are formed, where Triton's keys can say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicBatching {
    /// Sizes to aim for; empty where the size follows from the objective.
    #[serde(default)]
    pub preferred_batch_size: Vec<u32>,
    /// The longest wait for company; 0 where the wait follows from the objective.
    #[serde(default)]
    pub max_queue_delay_microseconds: u64,
}

/// Whether one request may have several responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPolicy {
    /// True for models that stream.
    pub decoupled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseCache {
    pub enable: bool,
}

/// A parameter in a [`ModelConfig`]: always text, whatever it means.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigParameter {
    pub string_value: String,
}

impl ModelConfig {
    /// The configuration of a model that takes batches of up to `max_batch`, if it batches at all.
    pub fn new(name: &str, platform: &str, max_batch: u32, signature: &Signature) -> Self {
        let batches = max_batch > 0 && signature.batches();
        let dims = |spec: &TensorSpec| spec.shape[usize::from(batches)..].to_vec();
        let data_type = |datatype: Datatype| datatype.config_name().to_owned();
        Self {
            name: name.to_owned(),
            platform: platform.to_owned(),
            backend: platform.to_owned(),
            max_batch_size: if batches { max_batch } else { 0 },
            input: signature
                .inputs
                .iter()
                .map(|spec| ConfigInput {
                    name: spec.name.clone(),
                    data_type: data_type(spec.datatype),
                    dims: dims(spec),
                    is_shape_tensor: false,
                    optional: false,
                })
                .collect(),
            output: signature
                .outputs
                .iter()
                .map(|spec| ConfigOutput {
                    name: spec.name.clone(),
                    data_type: data_type(spec.datatype),
                    dims: dims(spec),
                    is_shape_tensor: false,
                })
                .collect(),
            dynamic_batching: batches.then(DynamicBatching::default),
            model_transaction_policy: TransactionPolicy::default(),
            response_cache: ResponseCache::default(),
            parameters: BTreeMap::new(),
        }
    }

    pub fn set_parameter(&mut self, name: &str, value: &impl ToString) {
        let string_value = value.to_string();
        self.parameters.insert(name.to_owned(), ConfigParameter { string_value });
    }
}

/// The answer to `GET /v2/models[/{model}]/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    pub model_stats: Vec<ModelStats>,
}

/// What one version of one model has done since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelStats {
    pub name: String,
    pub version: String,
    /// When it last finished a request, in milliseconds since 1970; 0 if it never did.
    pub last_inference: u64,
    /// Rows computed.
    pub inference_count: u64,
    /// Batches computed.
    pub execution_count: u64,
    pub inference_stats: InferenceStats,
    /// Time per response of streaming models; always empty here, but clients expect the key.
    #[serde(default)]
    pub response_stats: NoStats,
    #[serde(default)]
    pub batch_stats: Vec<BatchStats>,
    /// Memory by device; always empty here, but clients expect the key.
    #[serde(default)]
    pub memory_usage: Vec<NoStats>,
}

/// An object without entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStats {}

/// A count of events and the time they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurationStat {
    pub count: u64,
    pub ns: u64,
}

/// Where the time of requests went. `perf_analyzer` needs every one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InferenceStats {
    pub success: DurationStat,
    pub fail: DurationStat,
    /// Waiting for a batch.
    pub queue: DurationStat,
    pub compute_input: DurationStat,
    pub compute_infer: DurationStat,
    pub compute_output: DurationStat,
    #[serde(default)]
    pub cache_hit: DurationStat,
    #[serde(default)]
    pub cache_miss: DurationStat,
}

/// Where the time of batches of one size went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStats {
    pub batch_size: u64,
    pub compute_input: DurationStat,
    pub compute_infer: DurationStat,
    pub compute_output: DurationStat,
}

/// The body of `POST /v2/repository/index`, which may also be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRequest {
    #[serde(default)]
    pub ready: bool,
}

/// One entry of the list that answers `POST /v2/repository/index`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexEntry {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub state: ModelState,
    /// Why not, or empty.
    #[serde(default)]
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ModelState {
    Ready,
    Unavailable,
    Loading,
    Unloading,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signature() -> Signature {
        let spec = |name: &str, datatype, shape: &[i64]| TensorSpec {
            name: name.to_owned(),
            datatype,
            shape: shape.to_vec(),
        };
        Signature {
            inputs: vec![spec("x", Datatype::Fp32, &[-1, 8, 8])],
            outputs: vec![spec("y", Datatype::Bytes, &[-1, 3])],
        }
    }

    #[test]
    fn metadata_keeps_the_batch_dimension_config_drops_it() {
        let metadata = ModelMetadata::new("digits", "1", "onnx", &signature());
        let metadata = serde_json::to_value(metadata).unwrap();
        assert_eq!(
            metadata["inputs"],
            json!([{"name": "x", "datatype": "FP32", "shape": [-1, 8, 8]}])
        );
        let config = ModelConfig::new("digits", "onnx", 64, &signature());
        let config = serde_json::to_value(config).unwrap();
        assert_eq!(config["max_batch_size"], 64);
        assert_eq!(config["input"][0]["dims"], json!([8, 8]));
        assert_eq!(config["input"][0]["data_type"], "TYPE_FP32");
        assert_eq!(config["output"][0]["data_type"], "TYPE_STRING");
    }

    #[test]
    fn a_model_that_does_not_batch_says_so_and_keeps_whole_shapes() {
        let mut signature = signature();
        signature.inputs[0].shape[0] = 1;
        let config = ModelConfig::new("digits", "onnx", 64, &signature);
        assert_eq!(config.max_batch_size, 0);
        assert_eq!(config.input[0].dims, [1, 8, 8]);
        assert_eq!(config.dynamic_batching, None);
    }

    #[test]
    fn a_parameter_of_the_configuration_is_text_whatever_it_means() {
        let mut config = ModelConfig::new("digits", "onnx", 64, &signature());
        config.set_parameter("slo_ms", &12.5);
        config.set_parameter("slo_target", &0.99);
        let config = serde_json::to_value(config).unwrap();
        assert_eq!(
            config["parameters"],
            json!({"slo_ms": {"string_value": "12.5"}, "slo_target": {"string_value": "0.99"}})
        );
    }

    #[test]
    fn the_configuration_has_every_key_perf_analyzer_reads() {
        let config = ModelConfig::new("digits", "onnx", 64, &signature());
        let config = serde_json::to_value(config).unwrap();
        for pointer in [
            "/max_batch_size",
            "/model_transaction_policy/decoupled",
            "/input/0/name",
            "/input/0/is_shape_tensor",
            "/input/0/optional",
            "/output/0/name",
            "/output/0/is_shape_tensor",
            "/response_cache/enable",
            "/dynamic_batching",
        ] {
            assert!(config.pointer(pointer).is_some(), "{pointer} is missing in {config}");
        }
    }

    #[test]
    fn statistics_have_every_key_even_when_nothing_has_happened() {
        let statistics = Statistics { model_stats: vec![ModelStats::default()] };
        let zero = json!({"count": 0, "ns": 0});
        assert_eq!(
            serde_json::to_value(statistics).unwrap(),
            json!({"model_stats": [{
                "name": "", "version": "", "last_inference": 0,
                "inference_count": 0, "execution_count": 0,
                "inference_stats": {
                    "success": zero, "fail": zero, "queue": zero, "compute_input": zero,
                    "compute_infer": zero, "compute_output": zero,
                    "cache_hit": zero, "cache_miss": zero,
                },
                "response_stats": {}, "batch_stats": [], "memory_usage": [],
            }]})
        );
    }

    #[test]
    fn an_index_entry_shouts_its_state() {
        let entry = IndexEntry {
            name: "digits".to_owned(),
            version: Some("1".to_owned()),
            state: ModelState::Unavailable,
            reason: "no replica".to_owned(),
        };
        assert_eq!(
            serde_json::to_value(entry).unwrap(),
            json!({"name": "digits", "version": "1", "state": "UNAVAILABLE", "reason": "no replica"})
        );
    }

    #[test]
    fn metadata_written_by_another_server_is_read() {
        let text = r#"{"name":"m","inputs":[{"name":"x","datatype":"INT64","shape":[-1]}],"properties":{}}"#;
        let metadata: ModelMetadata = serde_json::from_str(text).unwrap();
        assert_eq!(metadata.signature().inputs[0].datatype, Datatype::Int64);
    }
}
