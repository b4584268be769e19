//! A request for inference.

use bytes::Bytes;
use serde::Deserialize;

use crate::{
    encode::{Encoded, Form, Message},
    envelope::{self, Capped, Draft, MAX_TENSORS, SHARED_MEMORY},
    error::{DecodeError, EncodeError},
    parameters::Parameters,
    slot::{Role, Slot},
    tensor::Tensor,
};

/// The request's parameter that asks for all outputs in binary.
pub(crate) const BINARY_OUTPUTS: &str = "binary_data_output";

/// An output's parameter that asks for it in binary, or not.
const BINARY: &str = "binary_data";

const CLASSIFICATION: &str = "classification";

/// An output the caller named.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedOutput {
    pub name: String,
    /// Whether it is wanted in binary; `None` leaves that to the request.
    pub binary: Option<bool>,
    pub parameters: Parameters,
}

/// A request, with every input in binary form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Given back in the response.
    pub id: Option<String>,
    /// The request's own parameters, such as `timeout` and `priority`.
    pub parameters: Parameters,
    pub inputs: Vec<Tensor>,
    /// The outputs wanted, in this order; all of the model's if empty.
    pub outputs: Vec<RequestedOutput>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    id: Option<String>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    inputs: Capped<Draft<'a>, MAX_TENSORS>,
    outputs: Option<Capped<DraftOutput, MAX_TENSORS>>,
}

#[derive(Deserialize)]
struct DraftOutput {
    name: String,
    parameters: Option<Parameters>,
}

impl DraftOutput {
    fn check(self) -> Result<RequestedOutput, DecodeError> {
        let slot = || Slot::output(&self.name);
        let mut parameters = self.parameters.unwrap_or_default();
        envelope::unsupported(slot, &parameters, &[SHARED_MEMORY, CLASSIFICATION])?;
        let binary = envelope::flag(|| slot().to_string(), &parameters, BINARY)?;
        parameters.remove(BINARY);
        Ok(RequestedOutput { name: self.name, binary, parameters })
    }
}

impl Request {
    /// Reads a whole body, already decompressed, and its `Inference-Header-Content-Length`.
    ///
    /// A header length of 0 announces a raw tensor: see [`Signature::raw_request`].
    ///
    /// [`Signature::raw_request`]: crate::Signature::raw_request
    pub fn decode(body: Bytes, header_length: Option<usize>) -> Result<Self, DecodeError> {
        let split = envelope::split(body, header_length)?;
        let envelope: Envelope<'_> = envelope::parse(&split.json)?;
        let parameters = envelope.parameters.unwrap_or_default();
        envelope::flag(|| "the request".to_owned(), &parameters, BINARY_OUTPUTS)?;
        let outputs = envelope.outputs.unwrap_or_default().all(Role::Output)?;
        envelope::unique(Role::Output, outputs.iter().map(|output| output.name.as_str()))?;
        Ok(Self {
            id: envelope.id,
            parameters,
            inputs: envelope::tensors(envelope.inputs, Role::Input, split.tail)?,
            outputs: outputs.into_iter().map(DraftOutput::check).collect::<Result<_, _>>()?,
        })
    }

    /// Writes the request, each input in the form that `form` gives for it.
    ///
    /// FP16 and BF16 have no JSON form and are always written in binary.
    pub fn encode(&self, form: impl Fn(&Tensor) -> Form) -> Result<Encoded, EncodeError> {
        let mut message = Message::new();
        message.raw("{");
        if let Some(id) = &self.id {
            message.raw("\"id\":");
            message.value(id);
            message.raw(",");
        }
        message.parameters(&self.parameters);
        message.raw("\"inputs\":[");
        for (index, tensor) in self.inputs.iter().enumerate() {
            message.raw(if index > 0 { "," } else { "" });
            message.tensor(Role::Input, tensor, form(tensor))?;
        }
        message.raw("]");
        if !self.outputs.is_empty() {
            message.raw(",\"outputs\":[");
            for (index, output) in self.outputs.iter().enumerate() {
                message.raw(if index > 0 { "," } else { "" });
                write_output(&mut message, output);
            }
            message.raw("]");
        }
        message.raw("}");
        Ok(message.finish())
    }

    /// Whether `output` is to be answered in binary: as the output says, else as the request says.
    pub fn wants_binary(&self, output: &str) -> bool {
        let own = self.outputs.iter().find(|wanted| wanted.name == output);
        own.and_then(|wanted| wanted.binary)
            .or_else(|| self.parameters.get_bool(BINARY_OUTPUTS))
            .unwrap_or(false)
    }
}

fn write_output(message: &mut Message<'_>, output: &RequestedOutput) {
    message.raw("{\"name\":");
    message.value(&output.name);
    let mut parameters = output.parameters.clone();
    if let Some(binary) = output.binary {
        parameters.insert(BINARY, binary);
    }
    if !parameters.is_empty() {
        message.raw(",\"parameters\":");
        message.value(&parameters);
    }
    message.raw("}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Datatype, parameters::Value};

    /// The example of Triton's binary extension, with the `model_name` the schema does not know.
    const BINARY_EXAMPLE: &str = r#"{
      "model_name" : "mymodel",
      "inputs" : [
        { "name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32",
          "parameters" : { "binary_data_size" : 16 } },
        { "name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL",
          "parameters" : { "binary_data_size" : 3 } }
      ],
      "outputs" : [ { "name" : "output0", "parameters" : { "binary_data" : true } } ]
    }"#;

    fn decode(json: &str, tail: &[u8]) -> Result<Request, DecodeError> {
        let body = [json.as_bytes(), tail].concat();
        Request::decode(body.into(), Some(json.len()))
    }

    fn asking(request: &str, outputs: &str) -> Request {
        let json = format!(r#"{{"parameters":{request},"inputs":[],"outputs":{outputs}}}"#);
        Request::decode(json.into(), None).unwrap()
    }

    #[test]
    fn the_example_of_the_binary_extension_is_understood() {
        let tail = [[1; 16].as_slice(), &[0, 1, 1]].concat();
        let request = decode(BINARY_EXAMPLE, &tail).unwrap();
        assert_eq!(request.id, None);
        assert_eq!(request.inputs[0].datatype, Datatype::Uint32);
        assert_eq!(request.inputs[0].data, [1; 16].as_slice());
        assert_eq!(*request.inputs[1].shape, [3]);
        assert_eq!(request.inputs[1].data, [0, 1, 1].as_slice());
        assert!(request.wants_binary("output0"));
    }

    #[test]
    fn binary_data_is_not_copied() {
        let json = r#"{"inputs":[{"name":"x","shape":[3],"datatype":"UINT8",
                       "parameters":{"binary_data_size":3}}]}"#;
        let body = Bytes::from([json.as_bytes(), &[1, 2, 3]].concat());
        let request = Request::decode(body.clone(), Some(json.len())).unwrap();
        assert_eq!(request.inputs[0].data.as_ptr(), body[json.len()..].as_ptr());
    }

    #[test]
    fn data_may_stand_before_the_shape_that_explains_it() {
        let json = r#"{"inputs":[{"data":[[1,2],[3,4]],"shape":[2,2],"datatype":"INT8",
                       "name":"x","colour":{"red":[1,{}]}}],"id":"7","extra":null}"#;
        let request = Request::decode(json.into(), None).unwrap();
        assert_eq!(request.id.as_deref(), Some("7"));
        assert_eq!(request.inputs[0].data, [1, 2, 3, 4].as_slice());
    }

    #[test]
    fn json_and_binary_inputs_may_be_mixed_in_any_order() {
        let json = r#"{"inputs":[
            {"name":"a","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":1}},
            {"name":"b","shape":[1],"datatype":"UINT8","data":[2]},
            {"name":"c","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":1}}]}"#;
        let request = decode(json, &[1, 3]).unwrap();
        let data: Vec<u8> = request.inputs.iter().map(|tensor| tensor.data[0]).collect();
        assert_eq!(data, [1, 2, 3]);
    }

    #[test]
    fn null_counts_as_absent() {
        let json = r#"{"id":null,"parameters":null,"outputs":null,"inputs":[]}"#;
        assert_eq!(Request::decode(json.into(), None).unwrap(), Request::default());
    }

    #[test]
    fn an_absent_flag_on_an_output_is_not_false() {
        let named = r#"[{"name":"a"},{"name":"b","parameters":{"binary_data":false}},
                        {"name":"c","parameters":{"binary_data":true}}]"#;
        let request = asking(r#"{"binary_data_output":true}"#, named);
        assert!(request.wants_binary("a"));
        assert!(!request.wants_binary("b"));
        assert!(request.wants_binary("c"));
    }

    #[test]
    fn json_is_the_default_of_outputs() {
        let named = r#"[{"name":"a"},{"name":"c","parameters":{"binary_data":true}}]"#;
        let request = asking("{}", named);
        assert!(!request.wants_binary("a"));
        assert!(request.wants_binary("c"));
        assert!(!asking("{}", "[]").wants_binary("a"));
    }

    #[test]
    fn the_python_clients_wish_for_binary_covers_outputs_it_does_not_name() {
        assert!(asking(r#"{"binary_data_output":true}"#, "[]").wants_binary("anything"));
    }

    #[test]
    fn other_parameters_of_an_output_are_kept() {
        let named = r#"[{"name":"a","parameters":{"binary_data":true,"k":3}}]"#;
        let request = asking("{}", named);
        assert_eq!(request.outputs[0].binary, Some(true));
        assert_eq!(request.outputs[0].parameters.get("k"), Some(&Value::Int(3)));
        assert_eq!(request.outputs[0].parameters.len(), 1);
    }

    #[test]
    fn an_input_of_no_elements_still_needs_its_size_and_header() {
        let json = r#"{"inputs":[{"name":"x","shape":[0,4],"datatype":"FP32",
                       "parameters":{"binary_data_size":0}}]}"#;
        assert!(decode(json, &[]).unwrap().inputs[0].data.is_empty());
        let error = Request::decode(json.into(), None).unwrap_err();
        assert!(matches!(error, DecodeError::MissingHeaderLength { .. }), "{error}");
    }

    #[test]
    fn a_request_is_written_as_the_protocol_shows_it() {
        let mut request = asking(r#"{"timeout":5000}"#, r#"[{"name":"y"}]"#);
        request.id = Some("7".to_owned());
        let data = Bytes::from_static(&[1, 2]);
        request.inputs.push(Tensor::new("x", Datatype::Uint8, vec![1, 2], data).unwrap());
        let written = request.encode(|_| Form::Json).unwrap();
        assert_eq!(written.header_length, None);
        assert_eq!(
            written.into_body(),
            r#"{"id":"7","parameters":{"timeout":5000},"inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","data":[1,2]}],"outputs":[{"name":"y"}]}"#
        );
        let written = request.encode(|_| Form::Binary).unwrap();
        let json = r#"{"id":"7","parameters":{"timeout":5000},"inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","parameters":{"binary_data_size":2}}],"outputs":[{"name":"y"}]}"#;
        assert_eq!(written.header_length, Some(json.len()));
        assert_eq!(written.into_body(), [json.as_bytes(), &[1, 2]].concat());
    }
}
