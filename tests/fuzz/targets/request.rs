//! Any bytes at all, as a request: they are refused, or they are understood completely.
//!
//! The first byte of an input says how the rest is framed, so that the fuzzer can reach every path
//! without having to guess a header length that fits: see [`framed`]. A seed is `S` and a JSON part,
//! then, if there is binary data, the byte 0x1e, which JSON cannot contain, and the data.

use std::sync::LazyLock;

use bytes::Bytes;
use oip::{Datatype, DecodeError, Encoded, Form, Memory, Request, Response, Signature, TensorSpec};

const MAX_BATCH: u32 = 8;

static MODELS: LazyLock<Vec<Signature>> = LazyLock::new(|| {
    let model = |inputs: &[TensorSpec]| Signature {
        inputs: inputs.to_vec(),
        outputs: vec![spec("y", Datatype::Fp32, &[-1])],
    };
    vec![
        model(&[spec("x", Datatype::Fp32, &[-1, 2]), spec("b", Datatype::Bytes, &[-1])]),
        model(&[spec("x", Datatype::Fp32, &[-1, 2])]),
        model(&[spec("x", Datatype::Int16, &[-1, -1, 3])]),
        model(&[spec("x", Datatype::Bool, &[2, -1])]),
        model(&[spec("x", Datatype::Bytes, &[-1, 1])]),
    ]
});

fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSpec {
    TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
}

/// The body, and what `Inference-Header-Content-Length` would be.
fn framed(input: &[u8]) -> (Bytes, Option<usize>) {
    let Some((mode, rest)) = input.split_first() else { return (Bytes::new(), None) };
    match mode {
        // The length as the caller claims it, right or wrong.
        b'L' => match rest.split_first_chunk::<2>() {
            Some((length, body)) => {
                (Bytes::copy_from_slice(body), Some(u16::from_le_bytes(*length).into()))
            }
            None => (Bytes::new(), Some(0)),
        },
        // The length as it is.
        _ => match rest.iter().position(|byte| *byte == 0x1e) {
            Some(at) => ([&rest[..at], &rest[at + 1..]].concat().into(), Some(at)),
            None => (Bytes::copy_from_slice(rest), None),
        },
    }
}

fn read(encoded: Encoded) -> Request {
    let length = encoded.header_length;
    Request::decode(encoded.into_body(), length).expect("what was written can be read")
}

/// A request that was understood says the same thing however it is written.
fn rewrite(request: &Request) {
    let binary = request.encode(|_| Form::Binary).expect("binary holds every tensor");
    assert_eq!(read(binary), *request);
    if let Ok(json) = request.encode(|_| Form::Json) {
        assert_eq!(read(json), *request);
    }
}

/// One who remembers what was said last reads the same, the first time and the second.
fn remember(body: &Bytes, length: Option<usize>, decoded: &Result<Request, DecodeError>) {
    let mut memory = Memory::default();
    for _ in 0..2 {
        assert_eq!(memory.decode(body.clone(), length), *decoded);
    }
}

/// Its inputs, given back as outputs, survive the way to the client.
fn echo(request: &Request) {
    let response = Response {
        model_name: "m".to_owned(),
        id: request.id.clone(),
        parameters: request.parameters.clone(),
        outputs: request.inputs.clone(),
        ..Response::default()
    };
    let all = Request { parameters: request.parameters.clone(), ..Request::default() };
    if let Ok(encoded) = response.encode(&all) {
        let length = encoded.header_length;
        let read = Response::decode(encoded.into_body(), length);
        assert_eq!(read.expect("what was written can be read"), response);
    }
}

pub(super) fn run(input: &[u8]) {
    let (body, length) = framed(input);
    let _ = Response::decode(body.clone(), length);
    for model in MODELS.iter() {
        if let Ok(mut request) = model.raw_request(body.clone()) {
            assert!(request.wants_binary("y"));
            rewrite(&request);
            assert_eq!(model.check(&mut request, MAX_BATCH), Ok(1));
        }
    }
    let decoded = Request::decode(body.clone(), length);
    remember(&body, length, &decoded);
    let Ok(mut request) = decoded else { return };
    rewrite(&request);
    echo(&request);
    for model in MODELS.iter() {
        if let Ok(rows) = model.check(&mut request, MAX_BATCH) {
            assert!((1..=MAX_BATCH).contains(&rows));
            let names = request.inputs.iter().map(|input| &*input.name);
            assert!(names.eq(model.inputs.iter().map(|spec| spec.name.as_str())));
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    super::files("tests/fuzz/seeds/request", "")
}
