//! Whatever can be said can be written, read back, and written again to the same bytes.

#![expect(clippy::unwrap_used, reason = "the helpers of a test may fail as it may")]

use bytes::Bytes;
use oip::{Datatype, Encoded, Form, Parameters, Request, RequestedOutput, Response, Tensor, Value};
use proptest::{collection::vec, option, prelude::*, sample::select};

const CASES: u32 = 256;

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..12).prop_map(String::from_iter)
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |f| f.is_finite())
            .prop_map(Value::Float),
    ]
}

fn parameters() -> impl Strategy<Value = Parameters> {
    vec((text(), value()), 0..4).prop_map(|entries| {
        let mut parameters = Parameters::new();
        for (name, value) in entries {
            parameters.insert(name, value);
        }
        parameters
    })
}

/// Bytes that are `elements` elements of `datatype`, and have a JSON form if it has one.
fn data(datatype: Datatype, elements: usize) -> BoxedStrategy<Bytes> {
    match datatype {
        Datatype::Bool => vec(0..=1_u8, elements).prop_map(Bytes::from).boxed(),
        Datatype::Bytes => vec(text(), elements).prop_map(prefixed).boxed(),
        Datatype::Fp32 => vec(any::<f32>().prop_filter("finite", |f| f.is_finite()), elements)
            .prop_map(|all| all.into_iter().flat_map(f32::to_le_bytes).collect())
            .boxed(),
        Datatype::Fp64 => vec(any::<f64>().prop_filter("finite", |f| f.is_finite()), elements)
            .prop_map(|all| all.into_iter().flat_map(f64::to_le_bytes).collect())
            .boxed(),
        Datatype::Uint8
        | Datatype::Uint16
        | Datatype::Uint32
        | Datatype::Uint64
        | Datatype::Int8
        | Datatype::Int16
        | Datatype::Int32
        | Datatype::Int64
        | Datatype::Fp16
        | Datatype::Bf16 => {
            let bytes = elements * datatype.width().unwrap();
            vec(any::<u8>(), bytes).prop_map(Bytes::from).boxed()
        }
    }
}

fn prefixed(strings: Vec<String>) -> Bytes {
    let mut all = Vec::new();
    for string in strings {
        all.extend_from_slice(&u32::try_from(string.len()).unwrap().to_le_bytes());
        all.extend_from_slice(string.as_bytes());
    }
    all.into()
}

prop_compose! {
    fn outline()(
        datatype in select(Datatype::ALL.to_vec()),
        shape in vec(0..5_u64, 0..4),
    ) -> (Datatype, Vec<u64>) {
        (datatype, shape)
    }
}

prop_compose! {
    fn tensor()(outline in outline())(
        data in data(outline.0, outline.1.iter().product::<u64>() as usize),
        name in text(),
        outline in Just(outline),
    ) -> Tensor {
        let (datatype, shape) = outline;
        Tensor::new(&name, datatype, shape, data).unwrap()
    }
}

/// Tensors of distinct names, each with the form it is to travel in.
fn tensors() -> impl Strategy<Value = Vec<(Tensor, bool)>> {
    vec((tensor(), any::<bool>()), 0..5).prop_map(|mut tensors| {
        for (index, (tensor, _)) in tensors.iter_mut().enumerate() {
            tensor.name = format!("{}{index}", tensor.name).into();
        }
        tensors
    })
}

prop_compose! {
    fn request()(
        id in option::of(text()),
        mut values in parameters(),
        inputs in tensors(),
        outputs in vec((option::of(any::<bool>()), parameters()), 0..4),
        binary in option::of(any::<bool>()),
    ) -> (Request, Vec<bool>) {
        if let Some(binary) = binary {
            values.insert("binary_data_output", binary);
        }
        let (inputs, forms) = inputs.into_iter().unzip();
        let outputs = (0..).zip(outputs).map(|(index, (binary, parameters))| {
            RequestedOutput { name: format!("y{index}"), binary, parameters }
        });
        (Request { id, parameters: values, inputs, outputs: outputs.collect() }, forms)
    }
}

fn form(binary: bool) -> Form {
    if binary { Form::Binary } else { Form::Json }
}

fn encode(request: &Request, forms: &[bool]) -> Encoded {
    let of = |tensor: &Tensor| {
        let at = request.inputs.iter().position(|input| input.name == tensor.name).unwrap();
        form(forms[at])
    };
    request.encode(of).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_request_reads_back_as_it_was_written((request, forms) in request()) {
        let written = encode(&request, &forms);
        let read = Request::decode(written.clone().into_body(), written.header_length).unwrap();
        prop_assert_eq!(&read, &request);
        prop_assert_eq!(encode(&read, &forms).into_body(), written.into_body());
    }

    #[test]
    fn json_and_binary_carry_the_same_request((request, forms) in request()) {
        let json = encode(&request, &vec![false; forms.len()]);
        let binary = encode(&request, &vec![true; forms.len()]);
        let json = Request::decode(json.clone().into_body(), json.header_length).unwrap();
        let binary = Request::decode(binary.clone().into_body(), binary.header_length).unwrap();
        prop_assert_eq!(json, binary);
    }

    #[test]
    fn a_response_reads_back_as_it_was_written(
        outputs in tensors(),
        id in option::of(text()),
        names in (text(), text()),
        parameters in parameters(),
        everything_binary in option::of(any::<bool>()),
    ) {
        let mut request = Request::default();
        if let Some(binary) = everything_binary {
            request.parameters.insert("binary_data_output", binary);
        }
        for (tensor, binary) in &outputs {
            let (name, binary) = (tensor.name.to_string(), binary.then_some(true));
            request.outputs.push(RequestedOutput { name, binary, parameters: Parameters::new() });
        }
        let outputs = outputs.into_iter().map(|(tensor, _)| tensor).collect();
        let (model_name, model_version) = names;
        let response = Response { model_name, model_version, id, parameters, outputs };
        let written = response.encode(&request).unwrap();
        let read = Response::decode(written.clone().into_body(), written.header_length).unwrap();
        prop_assert_eq!(&read, &response);
        prop_assert_eq!(read.encode(&request).unwrap().into_body(), written.into_body());
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        body in vec(any::<u8>(), 0..200),
        header in option::of(0..220_usize),
    ) {
        let _ = Request::decode(Bytes::from(body.clone()), header);
        let _ = Response::decode(Bytes::from(body), header);
    }
}
