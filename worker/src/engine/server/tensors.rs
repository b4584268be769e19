//! Batches as the protocol's requests, and its answers as outputs of a batch.

use bytes::{Bytes, BytesMut};
use oip::{Encoded, Form, Parameters, Request, Response, Tensor, TensorSpec};
use protocol::{Batch, TensorShape};

use super::super::{Output, RunError, pieces::Pieces};
use crate::signature::{Signature, Spec};

pub(super) fn request(
    signature: &Signature,
    batch: &Batch,
    body: &Bytes,
    binary: bool,
) -> Result<Encoded, RunError> {
    let batches = signature.batches();
    let tensor = |(index, spec): (usize, &Spec)| Tensor {
        name: spec.name.as_str().into(),
        datatype: spec.datatype,
        shape: shape_of(batch, index, batches).into(),
        data: gather(batch, index, body),
    };
    let mut parameters = Parameters::new();
    if binary {
        parameters.insert("binary_data_output", true);
    }
    let inputs = signature.inputs.iter().enumerate().map(tensor).collect();
    let request = Request { parameters, inputs, ..Request::default() };
    let form = if binary { Form::Binary } else { Form::Json };
    // What the shape allows and JSON does not, such as NaN, is in the request's own values.
    request.encode(|_| form).map_err(|error| RunError::Inputs { reason: error.to_string() })
}

pub(super) fn outputs(
    signature: &Signature,
    batch: &Batch,
    mut response: Response,
) -> Result<Vec<Output>, RunError> {
    let batches = signature.batches();
    let mut outputs = Vec::with_capacity(signature.outputs.len());
    for spec in &signature.outputs {
        let wrong = |what: String| RunError::Model {
            reason: format!("the server's answer: output {} {what}", spec.name),
        };
        let found = response.outputs.iter().position(|tensor| *tensor.name == *spec.name);
        let tensor = response.outputs.swap_remove(found.ok_or_else(|| wrong("is missing".into()))?);
        if tensor.datatype != spec.datatype {
            return Err(wrong(format!("is {} instead of {}", tensor.datatype, spec.datatype)));
        }
        outputs.push(Output::of_batch(spec, &tensor.shape, tensor.data, batch, batches)?);
    }
    Ok(outputs)
}

pub(super) fn shape(spec: &TensorSpec) -> TensorShape {
    TensorShape {
        name: spec.name.clone(),
        datatype: spec.datatype.name().to_owned(),
        shape: spec.shape.clone(),
    }
}

fn shape_of(batch: &Batch, index: usize, batches: bool) -> Vec<u64> {
    let rows = batches.then_some(u64::from(batch.rows()));
    rows.into_iter().chain(batch.inputs[index].tail.iter().copied()).collect()
}

fn gather(batch: &Batch, index: usize, body: &Bytes) -> Bytes {
    if batch.inputs.len() == 1 {
        return body.clone();
    }
    let pieces = Pieces::of(index, batch, body);
    let mut gathered = BytesMut::with_capacity(pieces.elements(1));
    pieces.iter().for_each(|piece| gathered.extend_from_slice(piece));
    gathered.freeze()
}
