use protocol::{Part, TensorHead};

use super::*;
use crate::engine::onnx::Onnx;

const ROWS: [u32; 3] = [1, 2, 5];

fn library() -> std::ffi::OsString {
    std::env::var_os(LIBRARY).expect("ORT_DYLIB_PATH names the library these tests run")
}

fn model(name: &str) -> String {
    format!("{}/../configs/models/{name}.onnx", env!("CARGO_MANIFEST_DIR"))
}

fn batch(spec: &Spec) -> (Batch, Bytes) {
    let tail: Vec<u64> = spec.shape[1..].iter().map(|dim| *dim as u64).collect();
    let row = tail.iter().product::<u64>() as usize;
    let rows: u32 = ROWS.iter().sum();
    let element = |index: usize| -> Vec<u8> {
        let small = (index * 7 % 17) as u8;
        match spec.datatype {
            Datatype::Fp32 => f32::from(small).to_le_bytes().to_vec(),
            Datatype::Uint8 => vec![small * 13],
            other => panic!("the demo has no {other} inputs"),
        }
    };
    let body: Vec<u8> = (0..rows as usize * row).flat_map(element).collect();
    let bytes = body.len() as u32 / rows;
    let batch = Batch {
        id: 1,
        replica: 1,
        inputs: vec![TensorHead {
            name: spec.name.clone(),
            datatype: spec.datatype.name().to_owned(),
            tail,
        }],
        requests: ROWS.map(|rows| Part { rows, bytes: vec![rows * bytes] }).to_vec(),
    };
    (batch, Bytes::from(body))
}

fn numbers(output: &Output) -> Vec<f64> {
    let bytes: Vec<u8> = output.data.iter().flatten().copied().collect();
    match output.head.datatype.as_str() {
        "FP32" => bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it).into()).collect(),
        "INT64" => bytes.as_chunks().0.iter().map(|it| i64::from_le_bytes(*it) as f64).collect(),
        other => panic!("the demo has no {other} outputs"),
    }
}

#[test]
fn onnx_runtime_and_rten_agree_on_the_demos_models() {
    for name in ["digits", "langid"] {
        let path = model(name);
        let mut theirs = OnnxRuntime::load(&library(), &path, 1).unwrap();
        let mut ours = Onnx::load(&path, 1).unwrap();
        assert_eq!(theirs.signature(), ours.signature(), "{name}");
        let (batch, body) = batch(&ours.signature().inputs[0]);
        let (theirs, ours) = (theirs.run(&batch, &body).unwrap(), ours.run(&batch, &body).unwrap());
        for (theirs, ours) in theirs.outputs.iter().zip(&ours.outputs) {
            assert_eq!(theirs.head, ours.head, "{name}");
            assert_eq!(theirs.lengths, ours.lengths, "{name}");
            for (their, our) in numbers(theirs).into_iter().zip(numbers(ours)) {
                assert!((their - our).abs() < 1e-4, "{name} {}: {their} {our}", ours.head.name);
            }
        }
    }
}

#[test]
fn a_file_that_is_not_a_model_is_named() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let refused = OnnxRuntime::load(&library(), path, 1).err().unwrap().to_string();
    assert!(refused.contains("Cargo.toml is not an ONNX model"), "{refused}");
}
