use protocol::{Part, Shapes, TensorShape};

use super::*;

const QUICK: &[(u32, f64)] = &[(1, 0.0)];

fn curve(points: &[(u32, f64)]) -> Curve {
    Curve::new(points, 0.0).unwrap()
}

fn shape(name: &str, datatype: &str, shape: &[i64]) -> TensorShape {
    TensorShape { name: name.into(), datatype: datatype.into(), shape: shape.to_vec() }
}

fn engine(inputs: Vec<TensorShape>, outputs: Vec<TensorShape>) -> Synthetic {
    let signature = Signature::read(&Shapes { inputs, outputs }).unwrap();
    Synthetic::new(signature, curve(QUICK), 0)
}

fn batch(engine: &Synthetic, tails: &[&[u64]], requests: &[(u32, &[u32])]) -> Batch {
    let inputs = engine.signature.inputs.iter().zip(tails);
    Batch {
        id: 1,
        replica: 1,
        inputs: inputs.map(|(spec, tail)| spec.head(tail.to_vec())).collect(),
        requests: requests
            .iter()
            .map(|(rows, bytes)| Part { rows: *rows, bytes: bytes.to_vec() })
            .collect(),
    }
}

fn joined(output: &Output) -> Vec<u8> {
    output.data.concat()
}

#[test]
fn latency_is_linear_between_measured_points() {
    let curve = curve(&[(1, 10.0), (4, 16.0), (8, 40.0)]);
    let ms = |rows| curve.latency(rows).as_secs_f64() * 1_000.0;
    for (rows, wanted) in [(1, 10.0), (2, 12.0), (4, 16.0), (6, 28.0), (8, 40.0), (10, 52.0)] {
        assert!((ms(rows) - wanted).abs() < 1e-6, "{rows} rows take {} ms", ms(rows));
    }
}

#[test]
fn batch_below_the_first_point_takes_as_long_as_that_point() {
    let curve = curve(&[(4, 16.0), (8, 40.0)]);
    assert_eq!(curve.latency(1), Duration::from_millis(16));
}

#[test]
fn one_point_is_a_constant() {
    let curve = curve(&[(4, 16.0)]);
    assert_eq!(curve.latency(1), Duration::from_millis(16));
    assert_eq!(curve.latency(64), Duration::from_millis(16));
}

#[test]
fn a_falling_line_does_not_go_below_zero() {
    let curve = curve(&[(1, 10.0), (2, 1.0)]);
    assert_eq!(curve.latency(100), Duration::ZERO);
}

#[test]
fn a_curve_without_points_or_order_is_refused() {
    let bad: &[&[(u32, f64)]] = &[&[], &[(2, 1.0), (1, 2.0)], &[(1, f64::NAN)], &[(1, -1.0)]];
    for points in bad {
        assert!(Curve::new(points, 0.0).is_err(), "{points:?}");
    }
    assert!(Curve::new(&[(1, 1.0)], 1.5).is_err());
}

#[test]
fn noise_spreads_latencies_around_the_curve_and_repeats() {
    let mut noisy = Curve::new(&[(1, 10.0)], 0.1).unwrap();
    let mut again = noisy.clone();
    let ms: Vec<f64> = (0..1_000).map(|_| noisy.noisy_latency(1).as_secs_f64() * 1e3).collect();
    let mean = ms.iter().sum::<f64>() / 1_000.0;
    let spread = (ms.iter().map(|ms| (ms - mean).powi(2)).sum::<f64>() / 1_000.0).sqrt();
    assert!((mean - 10.0).abs() < 0.2, "mean {mean}");
    assert!((spread - 1.0).abs() < 0.15, "spread {spread}");
    assert!(ms.iter().all(|ms| (6.0..=16.0).contains(ms)));
    assert!((again.noisy_latency(1).as_secs_f64() * 1e3 - ms[0]).abs() < 1e-9);
}

#[test]
fn an_output_of_an_inputs_shape_and_datatype_repeats_it() {
    let mut engine = engine(
        vec![shape("a", "FP32", &[-1, 1]), shape("b", "BYTES", &[-1])],
        vec![shape("strings", "BYTES", &[-1]), shape("numbers", "FP32", &[-1, 1])],
    );
    let batch = batch(&engine, &[&[1], &[]], &[(1, &[4, 5]), (2, &[8, 8])]);
    let body = Bytes::from((0..25).collect::<Vec<u8>>());
    let done = engine.run(&batch, &body).unwrap();
    assert_eq!(done.outputs[0].lengths, [5, 8]);
    assert_eq!(joined(&done.outputs[0]), [&body[4..9], &body[17..25]].concat());
    assert_eq!(done.outputs[1].lengths, [4, 8]);
    assert_eq!(joined(&done.outputs[1]), [&body[0..4], &body[9..17]].concat());
}

#[test]
fn the_echo_of_a_single_input_is_the_body_itself() {
    let mut engine =
        engine(vec![shape("x", "FP32", &[-1, -1])], vec![shape("y", "FP32", &[-1, -1])]);
    let batch = batch(&engine, &[&[2]], &[(1, &[8]), (1, &[8])]);
    let body = Bytes::from(vec![7; 16]);
    let done = engine.run(&batch, &body).unwrap();
    assert_eq!(done.outputs[0].head.tail, [2]);
    assert_eq!(done.outputs[0].data[0].as_ptr(), body.as_ptr());
}

#[test]
fn any_other_output_is_zeros() {
    let mut engine = engine(
        vec![shape("x", "FP32", &[-1, 2])],
        vec![shape("wider", "INT64", &[-1, 3, -1]), shape("words", "BYTES", &[-1, 2])],
    );
    let batch = batch(&engine, &[&[2]], &[(1, &[8]), (2, &[16])]);
    let done = engine.run(&batch, &Bytes::from(vec![7; 24])).unwrap();
    assert_eq!(done.outputs[0].head.tail, [3, 1]);
    assert_eq!(done.outputs[0].lengths, [24, 48]);
    assert_eq!(joined(&done.outputs[0]), [0; 72]);
    assert_eq!(done.outputs[1].lengths, [8, 16]);
    assert_eq!(joined(&done.outputs[1]), [0; 24]);
}

#[test]
fn a_model_that_does_not_batch_keeps_its_whole_shape() {
    let mut engine = engine(vec![shape("x", "UINT8", &[3])], vec![shape("y", "FP32", &[1, 5])]);
    let batch = batch(&engine, &[&[3]], &[(1, &[3])]);
    assert_eq!(engine.signature.check(&batch, 1), Ok(()));
    let done = engine.run(&batch, &Bytes::from_static(b"abc")).unwrap();
    assert_eq!(done.outputs[0].head.tail, [1, 5]);
    assert_eq!(done.outputs[0].lengths, [20]);
}

#[test]
fn its_pace_can_be_changed_from_elsewhere() {
    let signature = engine(vec![shape("x", "FP32", &[-1, 1])], vec![]).signature;
    let mut engine = Synthetic::new(signature, curve(&[(1, 600_000.0)]), 0);
    let pace = engine.pace().unwrap();
    assert_eq!(pace.factor(), 1.0);
    pace.slow_down(0.0);
    let batch = batch(&engine, &[&[1]], &[(1, &[4])]);
    let done = engine.run(&batch, &Bytes::from_static(&[0; 4])).unwrap();
    assert!(done.compute < Duration::from_secs(600), "{:?}", done.compute);
    pace.slow_down(f64::NAN);
    assert_eq!(pace.factor(), 1.0);
}
