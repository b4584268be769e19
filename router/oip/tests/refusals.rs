//! Every way a message can be refused, each reached by a message a caller could send.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may fail as it may")]

use std::collections::BTreeSet;

use bytes::Bytes;
use oip::{Datatype, DecodeError, MAX_RANK, MAX_TENSORS, Request, Signature, TensorSpec};

/// The variant's name. No wildcard: a new variant needs a name here, and then an example below.
fn name(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::HeaderBeyondBody { .. } => "HeaderBeyondBody",
        DecodeError::Raw => "Raw",
        DecodeError::Json { .. } => "Json",
        DecodeError::TooMany { .. } => "TooMany",
        DecodeError::Rank { .. } => "Rank",
        DecodeError::Dimension { .. } => "Dimension",
        DecodeError::ShapeOverflow { .. } => "ShapeOverflow",
        DecodeError::UnknownDatatype { .. } => "UnknownDatatype",
        DecodeError::Duplicate { .. } => "Duplicate",
        DecodeError::NoData { .. } => "NoData",
        DecodeError::TwoForms { .. } => "TwoForms",
        DecodeError::Parameter { .. } => "Parameter",
        DecodeError::Unsupported { .. } => "Unsupported",
        DecodeError::MissingHeaderLength { .. } => "MissingHeaderLength",
        DecodeError::Tail { .. } => "Tail",
        DecodeError::ByteCount { .. } => "ByteCount",
        DecodeError::ElementCount { .. } => "ElementCount",
        DecodeError::Truncated { .. } => "Truncated",
        DecodeError::NoJsonForm { .. } => "NoJsonForm",
        DecodeError::NotAList { .. } => "NotAList",
        DecodeError::Element { .. } => "Element",
        DecodeError::OutOfRange { .. } => "OutOfRange",
        DecodeError::Missing { .. } => "Missing",
        DecodeError::Unknown { .. } => "Unknown",
        DecodeError::Datatype { .. } => "Datatype",
        DecodeError::Shape { .. } => "Shape",
        DecodeError::Rows { .. } => "Rows",
        DecodeError::NoRows { .. } => "NoRows",
        DecodeError::TooManyRows { .. } => "TooManyRows",
        DecodeError::RawInputs { .. } => "RawInputs",
        DecodeError::RawShape { .. } => "RawShape",
        DecodeError::RawSize { .. } => "RawSize",
    }
}

const VARIANTS: usize = 32;

/// The fields of an input that lacks only its data.
const BYTES_2: &str = r#""shape":[2],"datatype":"INT8""#;

fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

fn signature(inputs: &[TensorSpec]) -> Signature {
    Signature { inputs: inputs.to_vec(), outputs: vec![spec("y", Datatype::Int8, &[-1])] }
}

fn json(text: &str) -> DecodeError {
    Request::decode(Bytes::copy_from_slice(text.as_bytes()), None).unwrap_err()
}

/// A request of one input, its other fields given, with `tail` behind it.
fn input(fields: &str, tail: Option<&[u8]>) -> DecodeError {
    let text = format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#);
    let body = [text.as_bytes(), tail.unwrap_or_default()].concat();
    Request::decode(body.into(), tail.map(|_| text.len())).unwrap_err()
}

/// A request of INT8 zeros that is well formed, checked against a model of inputs `a` and `b`.
fn checked(inputs: &[(&str, &[u64])]) -> DecodeError {
    let inputs: Vec<String> = inputs
        .iter()
        .map(|(name, shape)| {
            let zeros = vec!["0"; shape.iter().product::<u64>() as usize].join(",");
            format!(r#"{{"name":"{name}","shape":{shape:?},"datatype":"INT8","data":[{zeros}]}}"#)
        })
        .collect();
    let text = format!(r#"{{"inputs":[{}]}}"#, inputs.join(","));
    let mut request = Request::decode(text.into(), None).unwrap();
    let pair = [spec("a", Datatype::Int8, &[-1, 2]), spec("b", Datatype::Int8, &[-1])];
    signature(&pair).check(&mut request, 4).unwrap_err()
}

/// A refusal and what it must say.
type Example = (DecodeError, &'static str);

fn framing() -> Vec<Example> {
    let many = vec![r#"{"name":"x","shape":[],"datatype":"INT8"}"#; MAX_TENSORS + 1].join(",");
    vec![
        (
            Request::decode(Bytes::from_static(b"{}"), Some(3)).unwrap_err(),
            "Inference-Header-Content-Length is 3, but the body has 2 bytes",
        ),
        (
            Request::decode(Bytes::from_static(b"{}"), Some(0)).unwrap_err(),
            "Inference-Header-Content-Length is 0: a raw request needs the model's signature",
        ),
        (
            json("{}"),
            "the JSON is not an inference message: missing field `inputs` at line 1 column 2",
        ),
        (json(&format!(r#"{{"inputs":[{many}]}}"#)), "1025 inputs; at most 1024 are allowed"),
        (
            json(
                r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1]},
                              {"name":"x","shape":[1],"datatype":"INT8","data":[1]}]}"#,
            ),
            r#"input "x" is given twice"#,
        ),
    ]
}

fn shapes() -> Vec<Example> {
    let high = vec!["1"; MAX_RANK + 1].join(",");
    vec![
        (
            input(&format!(r#""shape":[{high}],"datatype":"INT8","data":[1]"#), None),
            r#"input "x": the shape has 33 dimensions; at most 32 are allowed"#,
        ),
        (
            input(r#""shape":[2,-1],"datatype":"INT8","data":[1]"#, None),
            r#"input "x": dimension 1 of the shape is -1; give a whole number, 0 or more"#,
        ),
        (
            input(r#""shape":[4294967296,4294967296],"datatype":"INT8","data":[1]"#, None),
            r#"input "x": shape [4294967296,4294967296] of INT8 is more than 18446744073709551615 bytes"#,
        ),
        (
            input(r#""shape":[1],"datatype":"FP8","data":[1]"#, None),
            r#"input "x": "FP8" is not a datatype"#,
        ),
    ]
}

fn sizes() -> Vec<Example> {
    let sized = |size: &str| format!(r#"{BYTES_2},"parameters":{{"binary_data_size":{size}}}"#);
    vec![
        (input(BYTES_2, None), r#"input "x" has neither data nor binary_data_size"#),
        (
            input(&format!(r#"{},"data":[1,2]"#, sized("2")), Some(&[1, 2])),
            r#"input "x" has both data and binary_data_size; give one"#,
        ),
        (
            input(&sized("-2"), Some(&[1, 2])),
            r#"input "x": parameter "binary_data_size" is -2; give a whole number, 0 or more"#,
        ),
        (
            input(&format!(r#"{BYTES_2},"parameters":{{"shared_memory_region":"r"}}"#), None),
            r#"input "x": parameter "shared_memory_region" is not supported"#,
        ),
        (
            input(&sized("2"), None),
            r#"input "x" has binary_data_size, but there is no Inference-Header-Content-Length header"#,
        ),
        (
            input(&sized("2"), Some(&[1, 2, 3])),
            "binary_data_size adds up to 2 bytes, but 3 follow the JSON",
        ),
        (
            input(
                r#""shape":[2,3],"datatype":"FP32","parameters":{"binary_data_size":20}"#,
                Some(&[0; 20]),
            ),
            r#"input "x": shape [2,3] needs 24 bytes of FP32, got 20"#,
        ),
        (
            input(
                r#""shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}"#,
                Some(b"\x02\0\0\0a"),
            ),
            r#"input "x": BYTES element 0 needs 2 bytes, 1 are left"#,
        ),
    ]
}

fn elements() -> Vec<Example> {
    let holding = |data: &str| input(&format!(r#"{BYTES_2},"data":{data}"#), None);
    vec![
        (holding("[1,2,3]"), r#"input "x": shape [2] needs 2 elements, got 3"#),
        (
            input(r#""shape":[1],"datatype":"BF16","data":[1]"#, None),
            r#"input "x": BF16 has no JSON form; use binary"#,
        ),
        (holding("\"a\""), r#"input "x": data is "a"; give a list"#),
        (holding("[1,2.5]"), r#"input "x": element 1 is 2.5, which is not INT8"#),
        (holding("[1,128]"), r#"input "x": element 1 is 128, which is out of range for INT8"#),
    ]
}

fn models() -> Vec<Example> {
    let wrong_type = {
        let text = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[0]}]}"#;
        let mut request = Request::decode(text.into(), None).unwrap();
        signature(&[spec("x", Datatype::Int8, &[-1])]).check(&mut request, 4).unwrap_err()
    };
    vec![
        (wrong_type, r#"input "x" is FP32; the model takes INT8"#),
        (checked(&[("a", &[1, 2])]), r#"input "b" is missing"#),
        (checked(&[("a", &[1, 2]), ("B", &[1])]), r#"the model has no input "B"; it has a, b"#),
        (
            checked(&[("a", &[1, 3]), ("b", &[1])]),
            r#"input "a" has shape [1,3]; the model takes [-1,2]"#,
        ),
        (checked(&[("a", &[2, 2]), ("b", &[1])]), r#"input "b" has 1 rows, but input "a" has 2"#),
        (checked(&[("a", &[0, 2]), ("b", &[0])]), r#"input "a" has 0 rows; send at least 1"#),
        (checked(&[("a", &[5, 2]), ("b", &[5])]), "5 rows; the model takes at most 4 at once"),
    ]
}

fn raw_requests() -> Vec<Example> {
    let raw = |inputs: &[TensorSpec], body: &'static [u8]| {
        signature(inputs).raw_request(Bytes::from_static(body)).unwrap_err()
    };
    vec![
        (raw(&[], b""), "a raw request needs a model of one input; this one has 0"),
        (
            raw(&[spec("x", Datatype::Bytes, &[-1, 2])], b""),
            r#"input "x" of shape [-1,2] and BYTES cannot come in a raw request"#,
        ),
        (
            raw(&[spec("x", Datatype::Int16, &[-1, -1])], b"abc"),
            r#"input "x": 3 raw bytes are not a multiple of 2, the model's shape being [-1,-1]"#,
        ),
    ]
}

#[test]
fn every_refusal_can_be_reached_and_names_its_numbers() {
    let examples = [framing(), shapes(), sizes(), elements(), models(), raw_requests()].concat();
    for (error, message) in &examples {
        assert_eq!(error.to_string(), *message);
    }
    let reached: BTreeSet<&str> = examples.iter().map(|(error, _)| name(error)).collect();
    assert_eq!(reached.len(), VARIANTS, "{reached:?}");
}

#[test]
fn sizes_that_overflow_when_added_do_not_match_a_short_tail() {
    let text = format!(
        r#"{{"inputs":[
            {{"name":"a","shape":[1],"datatype":"INT8","parameters":{{"binary_data_size":{0}}}}},
            {{"name":"b","shape":[1],"datatype":"INT8","parameters":{{"binary_data_size":2}}}}]}}"#,
        u64::MAX
    );
    let body = [text.as_bytes(), &[1]].concat();
    let error = Request::decode(body.into(), Some(text.len())).unwrap_err();
    assert_eq!(error, DecodeError::Tail { declared: u64::MAX, tail: 1 });
}

#[test]
fn a_body_that_is_not_text_is_refused() {
    let error = Request::decode(Bytes::from_static(b"\xff\xfe{}"), None).unwrap_err();
    assert_eq!(name(&error), "Json");
}

#[test]
fn bytes_after_the_json_need_a_header_length() {
    let text = r#"{"inputs":[]}tail"#;
    assert_eq!(name(&json(text)), "Json");
    let error = Request::decode(text.into(), Some(13)).unwrap_err();
    assert_eq!(error, DecodeError::Tail { declared: 0, tail: 4 });
}

#[test]
fn non_boolean_flags_are_rejected_everywhere() {
    let request = json(r#"{"parameters":{"binary_data_output":1},"inputs":[]}"#);
    assert_eq!(
        request.to_string(),
        r#"the request: parameter "binary_data_output" is 1; give true or false"#
    );
    let output = json(r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":"x"}}]}"#);
    assert_eq!(
        output.to_string(),
        r#"output "y": parameter "binary_data" is "x"; give true or false"#
    );
}

#[test]
fn outputs_are_held_to_the_same_limits_as_inputs() {
    let twice = json(r#"{"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]}"#);
    assert_eq!(twice.to_string(), r#"output "y" is given twice"#);
    let many = vec![r#"{"name":"y"}"#; MAX_TENSORS + 2].join(",");
    let many = json(&format!(r#"{{"inputs":[],"outputs":[{many}]}}"#));
    assert_eq!(many.to_string(), "1026 outputs; at most 1024 are allowed");
    let classes =
        json(r#"{"inputs":[],"outputs":[{"name":"y","parameters":{"classification":3}}]}"#);
    assert_eq!(classes.to_string(), r#"output "y": parameter "classification" is not supported"#);
}

#[test]
fn a_callers_long_text_is_repeated_in_part_only() {
    let long = "n".repeat(10_000);
    for text in [
        format!(r#"{{"inputs":[{{"name":"{long}","shape":[1],"datatype":"INT8"}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"{long}","data":[]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","shape":["{long}"],"datatype":"INT8","data":[]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","data":"{long}"}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","data":["{long}"]}}]}}"#),
        format!(r#"{{"inputs":"{long}"}}"#),
    ] {
        let message = json(&text).to_string();
        assert!(message.len() < 300, "{} bytes: {message}", message.len());
    }
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let ignored = format!(r#"{{"x":{deep},"inputs":[]}}"#);
    assert_eq!(Request::decode(ignored.into(), None), Ok(Request::default()));
    let data = input(&format!(r#""shape":[1],"datatype":"INT8","data":{deep}"#), None);
    assert_eq!(data.to_string(), r#"input "x": shape [1] needs 1 elements, got 0"#);
    assert_eq!(name(&json(&deep)), "Json");
}
