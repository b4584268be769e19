//! The operators of an ONNX file that rten has not.
//!
//! rten names the first it meets. All are named here, so that nobody converts a model five times.

use std::{collections::BTreeSet, fs::File};

use rten::Model;
use rten_onnx::{
    onnx::{GraphProto, ModelProto, NodeProto},
    protobuf::{DecodeMessage, Fields, OwnedValues, ProtobufError, ReadValue, ValueReader},
};

/// The operators of the file that rten does not run, as `Domain/Type`; none if it cannot be read.
pub(super) fn missing(path: &str) -> Vec<String> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let Ok(model) = ModelNodes::decode(ValueReader::from_file(file)) else { return Vec::new() };
    let absent = model.0.iter().filter(|(domain, kind)| !is_known(domain, kind));
    absent.map(|(domain, kind)| named(domain, kind)).collect()
}

fn named(domain: &str, kind: &str) -> String {
    if domain.is_empty() { kind.to_owned() } else { format!("{domain}/{kind}") }
}

/// Whether rten has an operator. It keeps its register to itself, so it is asked with a model of one
/// node: whatever else it may say of that, of an operator it has it does not say that it has it not.
fn is_known(domain: &str, kind: &str) -> bool {
    let node = NodeProto {
        domain: Some(domain.to_owned()),
        op_type: Some(kind.to_owned()),
        ..NodeProto::default()
    };
    let graph = GraphProto { node: vec![node], ..GraphProto::default() };
    let model = ModelProto { ir_version: Some(8), graph: Some(graph), ..ModelProto::default() };
    let Ok(bytes) = model.write_buf() else { return true };
    match Model::load(bytes) {
        Ok(_) => true,
        Err(error) => !error.to_string().contains(UNKNOWN),
    }
}

/// What rten says of an operator that it has not, or was built without.
const UNKNOWN: &str = "operator not ";

/// A message of which only those within it are of interest: the field, and what is read of it.
macro_rules! within {
    ($name:ident { $($field:literal => $inner:ident),+ }) => {
        #[derive(Default)]
        struct $name(BTreeSet<(String, String)>);

        impl DecodeMessage for $name {
            type Types = OwnedValues;

            fn decode_fields<R: ReadValue<Types = Self::Types>>(
                mut fields: Fields<R>,
            ) -> Result<Self, ProtobufError> {
                let mut all = Self::default();
                while let Some(mut field) = fields.next()? {
                    match field.number() {
                        $($field => all.0.extend($inner::decode_field(&mut field)?.0),)+
                        _ => field.skip()?,
                    }
                }
                Ok(all)
            }
        }
    };
}

within!(ModelNodes { 7 => GraphNodes });
within!(GraphNodes { 1 => Node });
// The graph or the graphs of an attribute, of which `If` and `Loop` are made.
within!(Attribute { 6 => GraphNodes, 11 => GraphNodes });

#[derive(Default)]
struct Node(BTreeSet<(String, String)>);

impl DecodeMessage for Node {
    type Types = OwnedValues;

    fn decode_fields<R: ReadValue<Types = Self::Types>>(
        mut fields: Fields<R>,
    ) -> Result<Self, ProtobufError> {
        const KIND: u64 = 4;
        const ATTRIBUTE: u64 = 5;
        const DOMAIN: u64 = 7;
        let (mut all, mut kind, mut domain) = (BTreeSet::new(), String::new(), String::new());
        while let Some(mut field) = fields.next()? {
            match field.number() {
                KIND => kind = field.read_string()?,
                DOMAIN => domain = field.read_string()?,
                ATTRIBUTE => all.extend(Attribute::decode_field(&mut field)?.0),
                _ => field.skip()?,
            }
        }
        all.insert((if domain == "ai.onnx" { String::new() } else { domain }, kind));
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use rten_onnx::onnx::AttributeProto;

    use super::*;

    fn node(domain: &str, kind: &str) -> NodeProto {
        let (domain, op_type) = (Some(domain.to_owned()), Some(kind.to_owned()));
        NodeProto { domain, op_type, ..NodeProto::default() }
    }

    #[test]
    fn every_missing_operator_is_named_those_of_branches_too() {
        let branch = GraphProto { node: vec![node("", "StringConcat")], ..GraphProto::default() };
        let attribute = AttributeProto { g: Some(branch), ..AttributeProto::default() };
        let choice = NodeProto { attribute: vec![attribute], ..node("", "If") };
        let nodes = vec![
            node("ai.onnx.ml", "Scaler"),
            node("ai.onnx", "MatMul"),
            node("", "Relu"),
            choice,
            node("ai.onnx.ml", "LinearClassifier"),
        ];
        let graph = GraphProto { node: nodes, ..GraphProto::default() };
        let model = ModelProto { ir_version: Some(8), graph: Some(graph), ..ModelProto::default() };
        let path = std::env::temp_dir().join(format!("sluice-{}-ops.onnx", std::process::id()));
        std::fs::write(&path, model.write_buf().unwrap()).unwrap();
        let missing = missing(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(missing, ["StringConcat", "ai.onnx.ml/LinearClassifier", "ai.onnx.ml/Scaler"]);
    }
}
