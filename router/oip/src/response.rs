//! The answer to a request.

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    encode::{Encoded, Form, Message},
    envelope::{self, Capped, Draft, MAX_TENSORS},
    error::{DecodeError, EncodeError},
    parameters::Parameters,
    request::Request,
    slot::{Role, Slot},
    tensor::Tensor,
};

/// An answer, with every output in binary form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    pub model_name: String,
    /// Its version; empty if the server did not say.
    pub model_version: String,
    pub id: Option<String>,
    pub parameters: Parameters,
    pub outputs: Vec<Tensor>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default)]
    model_name: String,
    #[serde(default)]
    model_version: String,
    id: Option<String>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    outputs: Capped<Draft<'a>, MAX_TENSORS>,
}

impl Response {
    /// Reads a whole body and its `Inference-Header-Content-Length`, as a client does.
    pub fn decode(body: Bytes, header_length: Option<usize>) -> Result<Self, DecodeError> {
        let split = envelope::split(body, header_length)?;
        let envelope: Envelope<'_> = envelope::parse(&split.json)?;
        Ok(Self {
            model_name: envelope.model_name,
            model_version: envelope.model_version,
            id: envelope.id,
            parameters: envelope.parameters.unwrap_or_default(),
            outputs: envelope::tensors(envelope.outputs, Role::Output, split.tail)?,
        })
    }

    /// Writes what `request` asked for: the outputs it named, in its order, each in its form.
    ///
    /// FP16 and BF16 have no JSON form and are always written in binary. NaN, infinities and
    /// strings that are not UTF-8 have none either, but there the caller expects JSON and would
    /// not look for binary, so they are an error that says to ask for it.
    pub fn encode(&self, request: &Request) -> Result<Encoded, EncodeError> {
        let mut message = Message::new();
        message.raw("{\"model_name\":");
        message.value(&self.model_name);
        if !self.model_version.is_empty() {
            message.raw(",\"model_version\":");
            message.value(&self.model_version);
        }
        if let Some(id) = &self.id {
            message.raw(",\"id\":");
            message.value(id);
        }
        message.raw(",");
        message.parameters(&self.parameters);
        message.raw("\"outputs\":[");
        for (index, tensor) in self.wanted(request)?.into_iter().enumerate() {
            message.raw(if index > 0 { "," } else { "" });
            let binary = request.wants_binary(&tensor.name);
            message.tensor(Role::Output, tensor, if binary { Form::Binary } else { Form::Json })?;
        }
        message.raw("]}");
        Ok(message.finish())
    }

    fn wanted(&self, request: &Request) -> Result<Vec<&Tensor>, EncodeError> {
        if request.outputs.is_empty() {
            return Ok(self.outputs.iter().collect());
        }
        let find = |name: &str| {
            let given = self.outputs.iter().find(|tensor| &*tensor.name == name);
            given.ok_or_else(|| EncodeError::Missing { tensor: Slot::output(name) })
        };
        request.outputs.iter().map(|output| find(&output.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{datatype::Datatype, request::RequestedOutput};

    fn output(name: &str, datatype: Datatype, shape: &[u64], data: &[u8]) -> Tensor {
        let data = Bytes::copy_from_slice(data);
        Tensor { name: name.into(), datatype, shape: shape.into(), data }
    }

    fn response(outputs: Vec<Tensor>) -> Response {
        let (model_name, model_version) = ("m".to_owned(), "1".to_owned());
        Response { model_name, model_version, outputs, ..Response::default() }
    }

    fn asking(outputs: &[(&str, Option<bool>)]) -> Request {
        let outputs = outputs.iter().map(|(name, binary)| RequestedOutput {
            name: (*name).to_owned(),
            binary: *binary,
            parameters: Parameters::new(),
        });
        Request { outputs: outputs.collect(), ..Request::default() }
    }

    fn text(outputs: Vec<Tensor>) -> String {
        let encoded = response(outputs).encode(&Request::default()).unwrap();
        assert_eq!(encoded.header_length, None);
        String::from_utf8(encoded.into_body().to_vec()).unwrap()
    }

    fn problem(output: Tensor) -> String {
        response(vec![output]).encode(&Request::default()).unwrap_err().to_string()
    }

    #[test]
    fn an_answer_is_written_as_the_protocol_shows_it() {
        let data: Vec<u8> = [0.1_f32, -2.0, 1e30].iter().flat_map(|f| f.to_le_bytes()).collect();
        let mut answer = response(vec![output("y", Datatype::Fp32, &[1, 3], &data)]);
        answer.id = Some("a\"b".to_owned());
        let encoded = answer.encode(&Request::default()).unwrap();
        assert_eq!(
            encoded.into_body(),
            r#"{"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"y","shape":[1,3],"datatype":"FP32","data":[0.1,-2.0,1e+30]}]}"#
        );
    }

    #[test]
    fn booleans_and_strings_are_written_as_such() {
        let data = b"\x02\0\0\0hi\x01\0\0\0\n";
        let written = text(vec![
            output("b", Datatype::Bool, &[2], &[0, 1]),
            output("s", Datatype::Bytes, &[2], data),
        ]);
        assert!(written.contains(r#""data":[false,true]"#), "{written}");
        assert!(written.contains(r#""data":["hi","\n"]"#), "{written}");
    }

    #[test]
    fn only_named_outputs_are_written_in_the_callers_order_and_form() {
        let outputs = ["a", "b", "c"].map(|name| output(name, Datatype::Uint8, &[1], &[7]));
        let encoded =
            response(outputs.to_vec()).encode(&asking(&[("c", Some(true)), ("a", None)])).unwrap();
        let json = r#"{"model_name":"m","model_version":"1","outputs":[{"name":"c","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":1}},{"name":"a","shape":[1],"datatype":"UINT8","data":[7]}]}"#;
        assert_eq!(encoded.header_length, Some(json.len()));
        assert_eq!(encoded.into_body(), [json.as_bytes(), &[7]].concat());
    }

    #[test]
    fn half_floats_come_in_binary_even_when_not_asked_for() {
        for datatype in [Datatype::Fp16, Datatype::Bf16] {
            let answer = response(vec![output("y", datatype, &[1], &[0, 60])]);
            let encoded = answer.encode(&asking(&[("y", Some(false))])).unwrap();
            assert_eq!(
                Response::decode(encoded.clone().into_body(), encoded.header_length),
                Ok(answer)
            );
        }
    }

    #[test]
    fn json_that_cannot_hold_the_answer_is_refused_with_the_element() {
        let nan = [1.0_f32, f32::NAN].map(f32::to_le_bytes).concat();
        assert_eq!(
            problem(output("y", Datatype::Fp32, &[2], &nan)),
            "output \"y\": element 1 is NaN, which JSON cannot hold; ask for binary"
        );
        let infinite = f64::NEG_INFINITY.to_le_bytes();
        assert_eq!(
            problem(output("y", Datatype::Fp64, &[1], &infinite)),
            "output \"y\": element 0 is -inf, which JSON cannot hold; ask for binary"
        );
        assert_eq!(
            problem(output("y", Datatype::Bytes, &[1], b"\x01\0\0\0\xff")),
            "output \"y\": element 0 is not UTF-8, which JSON cannot hold; ask for binary"
        );
    }

    #[test]
    fn what_json_cannot_hold_binary_can() {
        let nan = f32::NAN.to_le_bytes();
        let answer = response(vec![output("y", Datatype::Fp32, &[1], &nan)]);
        let encoded = answer.encode(&asking(&[("y", Some(true))])).unwrap();
        let length = encoded.header_length;
        assert_eq!(Response::decode(encoded.into_body(), length), Ok(answer));
    }

    #[test]
    fn an_answer_that_does_not_fit_its_own_shape_is_not_sent() {
        let broken = response(vec![output("y", Datatype::Fp32, &[2], &[0; 4])]);
        for binary in [true, false] {
            let error = broken.encode(&asking(&[("y", Some(binary))])).unwrap_err();
            assert!(matches!(error, EncodeError::Malformed(_)), "{error:?}");
        }
    }

    #[test]
    fn an_output_asked_for_but_not_given_is_an_error() {
        let error = response(Vec::new()).encode(&asking(&[("y", None)])).unwrap_err();
        assert_eq!(error, EncodeError::Missing { tensor: Slot::output("y") });
    }

    #[test]
    fn large_tensors_are_parts_of_their_own_and_small_ones_are_not() {
        let large = Bytes::from(vec![0; 100_000]);
        let mut outputs = vec![output("a", Datatype::Uint8, &[4], &[0; 4])];
        outputs.push(Tensor {
            name: "b".into(),
            data: large.clone(),
            shape: [100_000].into(),
            ..outputs[0].clone()
        });
        outputs.push(Tensor { name: "c".into(), ..outputs[0].clone() });
        let wish = asking(&[("a", Some(true)), ("b", Some(true)), ("c", Some(true))]);
        let encoded = response(outputs).encode(&wish).unwrap();
        assert_eq!(encoded.parts.len(), 3);
        assert_eq!(encoded.parts[1].as_ptr(), large.as_ptr());
        assert_eq!(encoded.content_length(), encoded.header_length.unwrap() + 100_008);
    }

    #[test]
    fn an_answer_without_a_model_is_still_read() {
        let json = r#"{"outputs":[{"name":"y","shape":[1],"datatype":"INT8","data":[-1]}]}"#;
        let answer = Response::decode(json.into(), None).unwrap();
        assert_eq!(answer.model_name, "");
        assert_eq!(answer.outputs[0].data, [255].as_slice());
    }

    #[test]
    fn errors_in_an_answer_speak_of_outputs() {
        let json = r#"{"outputs":[{"name":"y","shape":[2],"datatype":"INT8","data":[-1]}]}"#;
        let error = Response::decode(json.into(), None).unwrap_err();
        assert_eq!(error.to_string(), "output \"y\": shape [2] needs 2 elements, got 1");
    }
}
