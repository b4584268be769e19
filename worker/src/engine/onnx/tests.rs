use std::path::PathBuf;

use oip::Datatype;
use protocol::{Batch, Part};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

use super::*;
use crate::signature::Refusal;

/// A model's file, for one test.
struct File(PathBuf);

impl File {
    fn new(test: &str, model: &ModelProto) -> Self {
        let name = format!("sluice-{}-{test}.onnx", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, model.write_buf().unwrap()).unwrap();
        Self(path)
    }

    fn load(&self) -> Result<Onnx, LoadError> {
        Onnx::load(self.0.to_str().unwrap(), 1, "this is a test")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn info(name: &str, datatype: DataType, shape: &[i64]) -> ValueInfoProto {
    let dimension = |size: &i64| match size {
        -1 => Dimension { dim_value: None, dim_param: Some("N".into()) },
        size => Dimension { dim_value: Some(*size), dim_param: None },
    };
    let shape = TensorShapeProto { dim: shape.iter().map(dimension).collect() };
    let tensor_type = TypeProtoTensor { elem_type: Some(datatype), shape: Some(shape) };
    let r#type = Some(TypeProto { tensor_type: Some(tensor_type), sequence: None });
    ValueInfoProto { name: Some(name.into()), r#type }
}

fn node(op: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        name: Some(op.into()),
        input: inputs.iter().map(|name| (*name).into()).collect(),
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

fn cast(input: &str, to: DataType) -> NodeProto {
    let attribute = AttributeProto {
        name: Some("to".into()),
        r#type: Some(AttributeType::INT),
        i: Some(to.0.into()),
        ..AttributeProto::default()
    };
    NodeProto { attribute: vec![attribute], ..node("Cast", &[input], "y") }
}

fn model(
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
) -> ModelProto {
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: inputs,
        output: outputs,
        value_info: vec![],
    };
    ModelProto {
        ir_version: Some(9),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..ModelProto::default()
    }
}

/// `y = x * w`, with `w` a column of 1, 10 and 100.
fn product(rows: i64) -> ModelProto {
    let weights = TensorProto {
        dims: vec![3, 1],
        data_type: Some(DataType::FLOAT),
        float_data: vec![1.0, 10.0, 100.0],
        name: Some("w".into()),
        ..TensorProto::default()
    };
    model(
        vec![info("x", DataType::FLOAT, &[rows, 3])],
        vec![info("y", DataType::FLOAT, &[rows, 1])],
        vec![node("MatMul", &["x", "w"], "y")],
        vec![weights],
    )
}

/// `y = a + b`, of one datatype.
fn sum(datatype: DataType) -> ModelProto {
    model(
        vec![info("a", datatype, &[-1, 2]), info("b", datatype, &[-1, 2])],
        vec![info("y", datatype, &[-1, 2])],
        vec![node("Add", &["a", "b"], "y")],
        vec![],
    )
}

fn batch(engine: &Onnx, tails: &[&[u64]], requests: &[(u32, &[u32])]) -> Batch {
    let inputs = engine.signature.inputs.iter().zip(tails);
    let batch = Batch {
        id: 1,
        replica: 1,
        inputs: inputs.map(|(spec, tail)| spec.head(tail.to_vec())).collect(),
        requests: requests
            .iter()
            .map(|(rows, bytes)| Part { rows: *rows, bytes: bytes.to_vec() })
            .collect(),
    };
    assert_eq!(engine.signature.check(&batch, 64), Ok(()));
    batch
}

fn floats(numbers: &[f32]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn longs(numbers: &[i64]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn the_signature_is_what_the_file_declares() {
    let file = File::new("signature", &sum(DataType::INT64));
    let engine = file.load().unwrap();
    let spec =
        |name: &str| Spec { name: name.into(), datatype: Datatype::Int64, shape: vec![-1, 2] };
    let (inputs, outputs) = (vec![spec("a"), spec("b")], vec![spec("y")]);
    assert_eq!(engine.signature, Signature { inputs, outputs });
    assert!(engine.signature.batches());
    assert!(engine.memory_bytes() > 0);
}

#[test]
fn requests_of_several_rows_run_as_one_batch_and_are_split() {
    let file = File::new("batch", &product(-1));
    let mut engine = file.load().unwrap();
    let batch = batch(&engine, &[&[3]], &[(1, &[12]), (2, &[24])]);
    let body = floats(&[1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 4.0, 0.0, 0.0]);
    let done = engine.run(&batch, &body).unwrap();
    assert_eq!(done.outputs[0].head, engine.signature.outputs[0].head(vec![1]));
    assert_eq!(done.outputs[0].lengths, [4, 8]);
    assert_eq!(done.outputs[0].data.concat(), floats(&[321.0, 100.0, 4.0]));
}

#[test]
fn inputs_of_different_requests_are_not_mixed_up() {
    let file = File::new("gather", &sum(DataType::INT64));
    let mut engine = file.load().unwrap();
    let batch = batch(&engine, &[&[2], &[2]], &[(1, &[16, 16]), (1, &[16, 16])]);
    let body = longs(&[1, 2, 10, 20, 3, 4, 30, -40]);
    let done = engine.run(&batch, &body).unwrap();
    assert_eq!(done.outputs[0].data.concat(), longs(&[11, 22, 33, -36]));
}

#[test]
fn an_int64_too_large_for_the_engine_is_refused_by_value() {
    let file = File::new("narrow", &sum(DataType::INT64));
    let mut engine = file.load().unwrap();
    let batch = batch(&engine, &[&[2], &[2]], &[(1, &[16, 16])]);
    let refused = engine.run(&batch, &longs(&[1, 2, 3, 5_000_000_000])).unwrap_err();
    let RunError::Refused(Refusal::Value { input, value }) = refused else { panic!("{refused}") };
    assert_eq!((input.as_str(), value), ("b", 5_000_000_000));
}

#[test]
fn bytes_and_truth_values_are_run_too() {
    let from_bytes = model(
        vec![info("x", DataType::UINT8, &[-1, 3])],
        vec![info("y", DataType::INT64, &[-1, 3])],
        vec![cast("x", DataType::INT64)],
        vec![],
    );
    let file = File::new("bytes", &from_bytes);
    let mut engine = file.load().unwrap();
    let one = batch(&engine, &[&[3]], &[(1, &[3])]);
    let done = engine.run(&one, &Bytes::from_static(&[0, 7, 255])).unwrap();
    assert_eq!(done.outputs[0].data.concat(), longs(&[0, 7, 255]));

    let to_truth = model(
        vec![info("x", DataType::BOOL, &[-1])],
        vec![info("y", DataType::BOOL, &[-1])],
        vec![node("Not", &["x"], "y")],
        vec![],
    );
    let file = File::new("truth", &to_truth);
    let mut engine = file.load().unwrap();
    let one = batch(&engine, &[&[]], &[(3, &[3])]);
    let done = engine.run(&one, &Bytes::from_static(&[0, 1, 1])).unwrap();
    assert_eq!(done.outputs[0].data.concat(), [1, 0, 0]);
    assert_eq!(done.outputs[0].lengths, [3]);
}

#[test]
fn int32_and_fp32_are_run_as_they_are() {
    let file = File::new("int32", &sum(DataType::INT32));
    let mut engine = file.load().unwrap();
    let one = batch(&engine, &[&[2], &[2]], &[(1, &[8, 8])]);
    let body: Bytes = [1_i32, 2, 3, 4].iter().flat_map(|number| number.to_le_bytes()).collect();
    let done = engine.run(&one, &body).unwrap();
    let wanted: Vec<u8> = [4_i32, 6].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(done.outputs[0].data.concat(), wanted);
}

#[test]
fn a_fixed_first_dimension_is_part_of_the_shape() {
    let file = File::new("fixed", &product(2));
    let mut engine = file.load().unwrap();
    assert!(!engine.signature.batches());
    let batch = batch(&engine, &[&[2, 3]], &[(1, &[24])]);
    let done = engine.run(&batch, &floats(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0])).unwrap();
    assert_eq!(done.outputs[0].head.tail, [2, 1]);
    assert_eq!(done.outputs[0].data.concat(), floats(&[1.0, 10.0]));
}

#[test]
fn a_model_that_only_claims_to_batch_is_found_out() {
    let sum_of_rows = model(
        vec![info("x", DataType::FLOAT, &[-1, 2])],
        vec![info("y", DataType::FLOAT, &[-1, 2])],
        vec![node("ReduceSum", &["x", "axes"], "y")],
        vec![TensorProto {
            dims: vec![1],
            data_type: Some(DataType::INT64),
            int64_data: vec![0],
            name: Some("axes".into()),
            ..TensorProto::default()
        }],
    );
    let file = File::new("claims", &sum_of_rows);
    let mut engine = file.load().unwrap();
    let two = batch(&engine, &[&[2]], &[(1, &[8]), (1, &[8])]);
    let failed = engine.run(&two, &floats(&[1.0, 2.0, 3.0, 4.0])).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "the model failed: output y has shape [1, 2] for a batch of 2 rows"
    );
}

#[test]
fn sizes_the_caller_chose_are_the_callers_fault() {
    let free = model(
        vec![info("a", DataType::FLOAT, &[-1, -1]), info("b", DataType::FLOAT, &[-1, 3])],
        vec![info("y", DataType::FLOAT, &[-1, 3])],
        vec![node("Add", &["a", "b"], "y")],
        vec![],
    );
    let file = File::new("free", &free);
    let mut engine = file.load().unwrap();
    let batch = batch(&engine, &[&[2], &[3]], &[(1, &[8, 12])]);
    let failed = engine.run(&batch, &Bytes::from(vec![0; 20])).unwrap_err();
    assert!(matches!(failed, RunError::Inputs { .. }), "{failed}");
}

#[test]
fn a_datatype_the_engine_lacks_is_named() {
    let file = File::new("double", &sum(DataType::DOUBLE));
    let Err(refused) = file.load() else { panic!("it loaded") };
    let refused = refused.to_string();
    assert!(
        refused.ends_with("input \"a\" is DOUBLE, which this engine does not run"),
        "{refused}"
    );
}
