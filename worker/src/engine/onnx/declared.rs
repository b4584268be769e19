//! What an ONNX file declares its inputs and outputs to be.
//!
//! Only the declarations are read; the weights are skipped, since rten reads them.

use std::{collections::HashMap, fs::File};

use oip::Datatype;
use rten_onnx::{
    onnx::{DataType, Dimension, ValueInfoProto},
    protobuf::{DecodeMessage, Fields, OwnedValues, ProtobufError, ReadValue, ValueReader},
};

use crate::{
    engine::LoadError,
    signature::{Signature, Spec},
};

#[derive(Debug)]
pub(super) struct Declared {
    inputs: HashMap<String, ValueInfoProto>,
    outputs: HashMap<String, ValueInfoProto>,
}

pub(super) fn read(path: &str) -> Result<Declared, LoadError> {
    let file =
        File::open(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let not_a_model = |reason: String| LoadError::NotAModel { path: path.to_owned(), reason };
    let model = SlimModel::decode(ValueReader::from_file(file))
        .map_err(|error| not_a_model(error.kind().to_string()))?;
    let graph = model.graph.ok_or_else(|| not_a_model("it has no graph".to_owned()))?;
    let by_name = |infos: Vec<ValueInfoProto>| {
        infos.into_iter().map(|info| (info.name.clone().unwrap_or_default(), info)).collect()
    };
    Ok(Declared { inputs: by_name(graph.inputs), outputs: by_name(graph.outputs) })
}

impl Declared {
    pub(super) fn signature(
        &self,
        path: &str,
        inputs: &[String],
        outputs: &[String],
    ) -> Result<Signature, LoadError> {
        let specs = |role: &str, names: &[String], declared: &HashMap<_, _>| {
            let spec = |name: &String| {
                spec(name, declared.get(name)).map_err(|problem| LoadError::Unsupported {
                    path: path.to_owned(),
                    reason: format!("{role} {name:?} {problem}"),
                })
            };
            names.iter().map(spec).collect::<Result<Vec<_>, _>>()
        };
        Ok(Signature {
            inputs: specs("input", inputs, &self.inputs)?,
            outputs: specs("output", outputs, &self.outputs)?,
        })
    }
}

fn spec(name: &str, info: Option<&ValueInfoProto>) -> Result<Spec, String> {
    let tensor = info
        .and_then(|info| info.r#type.as_ref())
        .and_then(|kind| kind.tensor_type.as_ref())
        .ok_or("is not declared as a tensor")?;
    let declared = tensor.elem_type.ok_or("has no datatype")?;
    let datatype = match declared {
        DataType::FLOAT => Datatype::Fp32,
        DataType::INT32 => Datatype::Int32,
        DataType::INT64 => Datatype::Int64,
        DataType::BOOL => Datatype::Bool,
        DataType::UINT8 => Datatype::Uint8,
        DataType::INT8 => Datatype::Int8,
        other => return Err(format!("is {other}, which this engine does not run")),
    };
    let shape = tensor.shape.as_ref().ok_or("has no shape")?;
    Ok(Spec { name: name.to_owned(), datatype, shape: shape.dim.iter().map(size).collect() })
}

fn size(dimension: &Dimension) -> i64 {
    dimension.dim_value.filter(|size| *size >= 0).unwrap_or(-1)
}

#[derive(Default)]
struct SlimModel {
    graph: Option<SlimGraph>,
}

#[derive(Default)]
struct SlimGraph {
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
}

impl SlimModel {
    const GRAPH: u64 = 7;
}

impl DecodeMessage for SlimModel {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = Self::Types>>(
        mut fields: Fields<R>,
    ) -> Result<Self, ProtobufError> {
        let mut model = Self::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                Self::GRAPH => model.graph = Some(SlimGraph::decode_field(&mut field)?),
                _ => field.skip()?,
            }
        }
        Ok(model)
    }
}

impl SlimGraph {
    const INPUT: u64 = 11;
    const OUTPUT: u64 = 12;
}

impl DecodeMessage for SlimGraph {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = Self::Types>>(
        mut fields: Fields<R>,
    ) -> Result<Self, ProtobufError> {
        let mut graph = Self::default();
        while let Some(mut field) = fields.next()? {
            match field.number() {
                Self::INPUT => graph.inputs.push(ValueInfoProto::decode_field(&mut field)?),
                Self::OUTPUT => graph.outputs.push(ValueInfoProto::decode_field(&mut field)?),
                _ => field.skip()?,
            }
        }
        Ok(graph)
    }
}
