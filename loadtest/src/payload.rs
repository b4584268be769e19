//! Requests, encoded once and sent many times.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use oip::{Datatype, Form, Parameters, Request, Signature, Tensor, TensorSpec};
use serde_json::Value;
use wire::quote;

use crate::random::Random;

const MAX_BODIES: usize = 1024;
/// Elements where a model leaves a dimension other than the batch open.
const OPEN_DIMENSION: u64 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// As bytes after a JSON head, both ways.
    #[default]
    Binary,
    /// As JSON, both ways.
    Json,
}

#[derive(Clone, Debug)]
pub struct Envelope {
    /// The `Host` header.
    pub authority: String,
    pub path: String,
    /// Further header lines, each ended by `\r\n`.
    pub headers: String,
}

impl Envelope {
    pub fn infer_path(prefix: &str, model: &str) -> String {
        format!("{prefix}/v2/models/{}/infer", quote(model))
    }

    pub fn infer(&self, encoded: oip::Encoded) -> Bytes {
        let framing = match encoded.header_length {
            Some(length) => format!(
                "content-type: application/octet-stream\r\n\
                 inference-header-content-length: {length}\r\n"
            ),
            None => "content-type: application/json\r\n".to_owned(),
        };
        self.wrap("POST", &framing, &encoded.into_body())
    }

    pub fn plain(&self, body: Option<&[u8]>) -> Bytes {
        match body {
            None => self.wrap("GET", "", b""),
            Some(body) if body.starts_with(b"{") || body.starts_with(b"[") => {
                self.wrap("POST", "content-type: application/json\r\n", body)
            }
            Some(body) => self.wrap("POST", "content-type: application/octet-stream\r\n", body),
        }
    }

    fn wrap(&self, method: &str, framing: &str, body: &[u8]) -> Bytes {
        let length = match method {
            "GET" => String::new(),
            _ => format!("content-length: {}\r\n", body.len()),
        };
        let head = format!(
            "{method} {} HTTP/1.1\r\nhost: {}\r\n{framing}{}{length}\r\n",
            self.path, self.authority, self.headers
        );
        [head.as_bytes(), body].concat().into()
    }
}

/// The dimensions of inputs by their names, without the batch.
pub type Shapes = BTreeMap<String, Vec<u64>>;

/// A request of so many rows with elements made up; inputs that `shapes` does not name have the
/// model's own shape.
pub fn generate(
    signature: &Signature,
    rows: u64,
    shapes: &Shapes,
    random: &mut Random,
) -> Result<Request, oip::DecodeError> {
    let batches = signature.batches();
    let mut inputs = Vec::with_capacity(signature.inputs.len());
    for spec in &signature.inputs {
        let dimension = |(index, dim): (usize, &i64)| match u64::try_from(*dim) {
            Ok(fixed) => fixed,
            Err(_) if index == 0 && batches => rows,
            Err(_) => OPEN_DIMENSION,
        };
        let shape: Vec<u64> = match shapes.get(&spec.name) {
            None => spec.shape.iter().enumerate().map(dimension).collect(),
            Some(given) => batches.then_some(rows).into_iter().chain(given.clone()).collect(),
        };
        let data = elements(spec.datatype, shape.iter().product(), random);
        inputs.push(Tensor::new(&spec.name, spec.datatype, shape, data)?);
    }
    Ok(Request { inputs, ..Request::default() })
}

#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("{path} is not the JSON expected")]
    Json { path: String, source: serde_json::Error },
    #[error("{path} has no data for the input {input:?}")]
    NoData { path: String, input: String },
    #[error("an input in {path} does not fit")]
    Input { path: String, source: oip::DecodeError },
}

/// One input's dimensions as they are typed, such as `x:3,320,320`.
pub fn shape(text: &str) -> Result<(String, Vec<u64>), String> {
    let wrong = || format!("{text:?} is no shape; give NAME:DIM,DIM, such as x:3,320,320");
    let (name, dimensions) = text.rsplit_once(':').ok_or_else(wrong)?;
    let dimension = |text: &str| text.trim().parse().ok().filter(|size: &u64| *size > 0);
    let dimensions: Option<Vec<u64>> = match dimensions.trim() {
        "" => Some(Vec::new()),
        listed => listed.split(',').map(dimension).collect(),
    };
    match (name, dimensions) {
        ("", _) | (_, None) => Err(wrong()),
        (name, Some(dimensions)) => Ok((name.to_owned(), dimensions)),
    }
}

/// The requests in a file: one or a list, each a protocol request or an object of input names and
/// their values.
pub fn read(path: &Path, text: &str, signature: &Signature) -> Result<Vec<Request>, PayloadError> {
    let name = || path.display().to_string();
    let value: Value =
        serde_json::from_str(text).map_err(|source| PayloadError::Json { path: name(), source })?;
    let bodies = match value {
        Value::Array(bodies) => bodies,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            vec![value]
        }
    };
    let request = |body: &Value| {
        let json = match body.get("inputs") {
            Some(_) => body.to_string(),
            None => named(body, signature)
                .map_err(|input| PayloadError::NoData { path: name(), input })?
                .to_string(),
        };
        Request::decode(json.into(), None)
            .map_err(|source| PayloadError::Input { path: name(), source })
    };
    bodies.iter().take(MAX_BODIES).map(request).collect()
}

pub fn encode(mut request: Request, encoding: Encoding) -> Result<oip::Encoded, oip::EncodeError> {
    let form = match encoding {
        Encoding::Binary => Form::Binary,
        Encoding::Json => Form::Json,
    };
    if request.outputs.is_empty() && encoding == Encoding::Binary {
        let mut parameters = Parameters::new();
        std::mem::swap(&mut parameters, &mut request.parameters);
        parameters.insert("binary_data_output", true);
        request.parameters = parameters;
    }
    request.encode(|_| form)
}

fn elements(datatype: Datatype, count: u64, random: &mut Random) -> Bytes {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut data = Vec::with_capacity(count * datatype.width().unwrap_or(8));
    for _ in 0..count {
        let small = (random.bits() >> 57) as u8;
        match datatype {
            Datatype::Bool => data.push(small & 1),
            Datatype::Uint8 | Datatype::Int8 => data.push(small),
            Datatype::Uint16 | Datatype::Int16 => {
                data.extend_from_slice(&u16::from(small).to_le_bytes());
            }
            Datatype::Uint32 | Datatype::Int32 => {
                data.extend_from_slice(&u32::from(small).to_le_bytes());
            }
            Datatype::Uint64 | Datatype::Int64 => {
                data.extend_from_slice(&u64::from(small).to_le_bytes());
            }
            // Both half formats hold these bits as a small normal number below one.
            Datatype::Fp16 | Datatype::Bf16 => {
                data.extend_from_slice(&(0x3000 | u16::from(small)).to_le_bytes());
            }
            Datatype::Fp32 => data.extend_from_slice(&(random.unit() as f32).to_le_bytes()),
            Datatype::Fp64 => data.extend_from_slice(&random.unit().to_le_bytes()),
            Datatype::Bytes => {
                let text = format!("{small:04}");
                data.extend_from_slice(&(text.len() as u32).to_le_bytes());
                data.extend_from_slice(text.as_bytes());
            }
        }
    }
    data.into()
}

fn named(body: &Value, signature: &Signature) -> Result<Value, String> {
    let inputs: Result<Vec<Value>, String> = signature
        .inputs
        .iter()
        .map(|spec| {
            let data = body.get(&spec.name).ok_or_else(|| spec.name.clone())?;
            Ok(serde_json::json!({
                "name": spec.name,
                "datatype": spec.datatype.name(),
                "shape": shape_of(spec, data),
                "data": data,
            }))
        })
        .collect();
    Ok(serde_json::json!({ "inputs": inputs? }))
}

/// The data's own nesting if it is as deep as the model's shape; else one row, or as many as the
/// count of elements makes.
fn shape_of(spec: &TensorSpec, data: &Value) -> Vec<u64> {
    let mut nesting = Vec::new();
    let mut level = data;
    while let Value::Array(items) = level {
        nesting.push(items.len() as u64);
        let Some(first) = items.first() else { break };
        level = first;
    }
    if nesting.len() == spec.shape.len() {
        return nesting;
    }
    let count = nesting.iter().product::<u64>();
    let fixed = spec.shape.iter().filter_map(|dim| u64::try_from(*dim).ok()).product::<u64>();
    let open = count.checked_div(fixed).unwrap_or(1).max(1);
    let mut open = std::iter::once(open).chain(std::iter::repeat(1));
    let dimension = |dim: &i64| u64::try_from(*dim).ok().or_else(|| open.next()).unwrap_or(1);
    spec.shape.iter().map(dimension).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(inputs: &[(&str, Datatype, &[i64])]) -> Signature {
        let spec = |(name, datatype, shape): &(&str, Datatype, &[i64])| TensorSpec {
            name: (*name).to_owned(),
            datatype: *datatype,
            shape: shape.to_vec(),
        };
        let output = spec(&("y", Datatype::Fp32, &[-1, 1]));
        Signature { inputs: inputs.iter().map(spec).collect(), outputs: vec![output] }
    }

    #[test]
    fn a_generated_request_of_any_datatype_fits_its_model() {
        for datatype in Datatype::ALL {
            let signature = signature(&[("a", datatype, &[-1, 3]), ("b", datatype, &[-1, -1])]);
            let mut request = generate(&signature, 4, &Shapes::new(), &mut Random::new(1)).unwrap();
            assert_eq!(signature.check(&mut request, 8).unwrap(), 4, "{datatype:?}");
        }
    }

    #[test]
    fn a_generated_request_survives_both_encodings() {
        let signature =
            signature(&[("a", Datatype::Fp32, &[-1, 3]), ("t", Datatype::Bytes, &[-1])]);
        for encoding in [Encoding::Binary, Encoding::Json] {
            let request = generate(&signature, 2, &Shapes::new(), &mut Random::new(1)).unwrap();
            let encoded = encode(request.clone(), encoding).unwrap();
            assert_eq!(encoded.header_length.is_some(), encoding == Encoding::Binary);
            let length = encoded.header_length;
            let decoded = Request::decode(encoded.into_body(), length).unwrap();
            assert_eq!(decoded.inputs, request.inputs);
            assert_eq!(decoded.wants_binary("y"), encoding == Encoding::Binary);
        }
    }

    #[test]
    fn a_file_may_name_inputs_or_hold_whole_requests() {
        let signature = signature(&[("x", Datatype::Fp32, &[-1, 2])]);
        let text = r#"[
            {"x": [1, 2], "label": 7},
            {"x": [[1, 2], [3, 4]]},
            {"x": [1, 2, 3, 4, 5, 6]},
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        ]"#;
        let mut requests = read(Path::new("in.json"), text, &signature).unwrap();
        let rows: Vec<u32> =
            requests.iter_mut().map(|request| signature.check(request, 8).unwrap()).collect();
        assert_eq!(rows, [1, 2, 3, 1]);
    }

    #[test]
    fn a_file_without_an_input_says_which() {
        let signature = signature(&[("x", Datatype::Fp32, &[-1, 2])]);
        let error = read(Path::new("in.json"), r#"{"z": [1]}"#, &signature).unwrap_err();
        assert_eq!(error.to_string(), "in.json has no data for the input \"x\"");
    }

    #[test]
    fn a_whole_request_frames_its_body() {
        let envelope = Envelope {
            authority: "h:1".to_owned(),
            path: Envelope::infer_path("/p", "a b"),
            headers: "sluice-timeout-ms: 20\r\n".to_owned(),
        };
        let encoded =
            oip::Encoded { header_length: Some(2), parts: vec!["{}".into(), "xy".into()] };
        assert_eq!(
            envelope.infer(encoded),
            "POST /p/v2/models/a%20b/infer HTTP/1.1\r\nhost: h:1\r\n\
             content-type: application/octet-stream\r\ninference-header-content-length: 2\r\n\
             sluice-timeout-ms: 20\r\ncontent-length: 4\r\n\r\n{}xy"
        );
        assert!(envelope.plain(None).starts_with(b"GET /p/"));
    }

    #[test]
    fn a_shape_is_typed_as_name_and_dimensions_without_the_batch() {
        assert_eq!(shape("x:3,320,320"), Ok(("x".to_owned(), vec![3, 320, 320])));
        assert_eq!(shape("sr:"), Ok(("sr".to_owned(), vec![])));
        assert_eq!(shape("a:0:7"), Ok(("a:0".to_owned(), vec![7])));
        for wrong in ["3,320", ":3", "x:3,,4", "x:0", "x:-1", "x:three"] {
            assert!(shape(wrong).unwrap_err().contains("such as x:3,320,320"), "{wrong}");
        }
    }

    #[test]
    fn named_shapes_take_the_place_of_free_dimensions() {
        let signature = signature(&[
            ("x", Datatype::Fp32, &[-1, 3, -1, -1]),
            ("y", Datatype::Uint8, &[-1, -1]),
        ]);
        let shapes = Shapes::from([("x".to_owned(), vec![3, 8, 9])]);
        let request = generate(&signature, 2, &shapes, &mut Random::new(7)).unwrap();
        assert_eq!(*request.inputs[0].shape, [2, 3, 8, 9]);
        assert_eq!(*request.inputs[1].shape, [2, OPEN_DIMENSION]);
    }
}
