//! What a model takes and gives.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::{
    datatype::Datatype,
    error::DecodeError,
    parameters::Parameters,
    request::{BINARY_OUTPUTS, Request},
    slot::{Slot, clip},
    tensor::{PREFIX, Tensor},
};

/// How many of a model's names an error lists.
const LISTED: usize = 8;

/// One input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    pub name: String,
    pub datatype: Datatype,
    /// Its dimensions, -1 where any size will do; the batch first if the model batches.
    pub shape: Vec<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    pub inputs: Vec<TensorSpec>,
    pub outputs: Vec<TensorSpec>,
}

impl Signature {
    /// Whether requests can share a batch: every input and output begins with a dimension of any
    /// size.
    pub fn batches(&self) -> bool {
        let mut tensors = self.inputs.iter().chain(&self.outputs);
        !self.inputs.is_empty() && tensors.all(|spec| spec.shape.first() == Some(&-1))
    }

    /// Checks a request against the model, puts its inputs in the model's order, and returns its
    /// rows: the batch dimension, or 1 if the model does not batch or `max_batch` is 0.
    pub fn check(&self, request: &mut Request, max_batch: u32) -> Result<u32, DecodeError> {
        self.order(request)?;
        for (spec, tensor) in self.inputs.iter().zip(&request.inputs) {
            spec.check(tensor)?;
        }
        for output in &request.outputs {
            if !self.outputs.iter().any(|spec| spec.name == output.name) {
                return Err(unknown(Slot::output(&output.name), &self.outputs));
            }
        }
        if max_batch > 0 && self.batches() { rows(request, max_batch) } else { Ok(1) }
    }

    fn order(&self, request: &mut Request) -> Result<(), DecodeError> {
        let inputs = &mut request.inputs;
        let known = |tensor: &Tensor| self.inputs.iter().any(|spec| *spec.name == *tensor.name);
        for (index, spec) in self.inputs.iter().enumerate() {
            let found = (index..inputs.len()).find(|at| *inputs[*at].name == *spec.name);
            match found {
                Some(at) => inputs.swap(index, at),
                // A misspelt name is both unknown and missing; the spelling is the better news.
                None => {
                    return Err(match inputs.iter().find(|tensor| !known(tensor)) {
                        Some(stray) => unknown(Slot::input(&stray.name), &self.inputs),
                        None => DecodeError::Missing { tensor: Slot::input(&spec.name) },
                    });
                }
            }
        }
        match inputs.get(self.inputs.len()) {
            Some(stray) if known(stray) => {
                Err(DecodeError::Duplicate { tensor: Slot::input(&stray.name) })
            }
            Some(stray) => Err(unknown(Slot::input(&stray.name), &self.inputs)),
            None => Ok(()),
        }
    }

    /// Reads a body that is nothing but the one input's data, as one row; outputs come in binary.
    ///
    /// A BYTES input must be a single element, and the body is that element without its length.
    pub fn raw_request(&self, body: Bytes) -> Result<Request, DecodeError> {
        let [spec] = self.inputs.as_slice() else {
            return Err(DecodeError::RawInputs { inputs: self.inputs.len() });
        };
        let mut wanted = spec.shape.clone();
        if self.batches() {
            wanted[0] = 1;
        }
        let tensor = match spec.datatype.width() {
            Some(width) => spec.raw_numbers(wanted, width, body)?,
            None => spec.raw_string(&wanted, body)?,
        };
        let mut parameters = Parameters::new();
        parameters.insert(BINARY_OUTPUTS, true);
        Ok(Request { parameters, inputs: vec![tensor], ..Request::default() })
    }
}

impl TensorSpec {
    fn check(&self, tensor: &Tensor) -> Result<(), DecodeError> {
        if tensor.datatype != self.datatype {
            return Err(DecodeError::Datatype {
                tensor: Slot::input(&self.name),
                wanted: self.datatype,
                got: tensor.datatype,
            });
        }
        let fits = |(wanted, got): (&i64, &u64)| u64::try_from(*wanted).map_or(true, |w| w == *got);
        let same_rank = self.shape.len() == tensor.shape.len();
        if same_rank && self.shape.iter().zip(&*tensor.shape).all(fits) {
            return Ok(());
        }
        Err(DecodeError::Shape {
            tensor: Slot::input(&self.name),
            wanted: self.shape.clone(),
            got: tensor.shape.to_vec(),
        })
    }

    fn raw_numbers(
        &self,
        wanted: Vec<i64>,
        width: usize,
        body: Bytes,
    ) -> Result<Tensor, DecodeError> {
        let fixed = wanted.iter().filter_map(|dim| u64::try_from(*dim).ok());
        let unit = fixed.clone().try_fold(width as u64, u64::checked_mul);
        let open = wanted.len() - fixed.count();
        let Some(unit) = unit.filter(|_| open <= 1) else {
            return Err(self.no_raw_form());
        };
        let length = body.len() as u64;
        if open == 1 && (unit == 0 || !length.is_multiple_of(unit)) {
            return Err(DecodeError::RawSize {
                tensor: Slot::input(&self.name),
                shape: self.shape.clone(),
                unit,
                got: body.len(),
            });
        }
        let dimension = |dim: i64| u64::try_from(dim).unwrap_or_else(|_| length / unit);
        let shape = wanted.into_iter().map(dimension).collect();
        Tensor::new(&self.name, self.datatype, shape, body)
    }

    fn raw_string(&self, wanted: &[i64], body: Bytes) -> Result<Tensor, DecodeError> {
        let length = u32::try_from(body.len()).ok();
        let Some(length) = length.filter(|_| wanted.iter().all(|dim| *dim < 0 || *dim == 1)) else {
            return Err(self.no_raw_form());
        };
        let mut data = BytesMut::with_capacity(PREFIX + body.len());
        data.put_u32_le(length);
        data.put(body);
        Tensor::new(&self.name, Datatype::Bytes, vec![1; wanted.len()], data.freeze())
    }

    fn no_raw_form(&self) -> DecodeError {
        DecodeError::RawShape {
            tensor: Slot::input(&self.name),
            shape: self.shape.clone(),
            datatype: self.datatype,
        }
    }
}

fn rows(request: &Request, max_batch: u32) -> Result<u32, DecodeError> {
    let mut batch =
        request.inputs.iter().filter_map(|tensor| Some((tensor, *tensor.shape.first()?)));
    let Some((first, first_rows)) = batch.next() else { return Ok(1) };
    for (tensor, rows) in batch {
        if rows != first_rows {
            return Err(DecodeError::Rows {
                tensor: Slot::input(&tensor.name),
                rows,
                first: Slot::input(&first.name),
                first_rows,
            });
        }
    }
    if first_rows == 0 {
        return Err(DecodeError::NoRows { tensor: Slot::input(&first.name) });
    }
    match u32::try_from(first_rows) {
        Ok(rows) if rows <= max_batch => Ok(rows),
        Ok(_) | Err(_) => Err(DecodeError::TooManyRows { rows: first_rows, max_batch }),
    }
}

fn unknown(tensor: Slot, specs: &[TensorSpec]) -> DecodeError {
    let known = specs.iter().take(LISTED).map(|spec| clip(&spec.name)).collect();
    DecodeError::Unknown { tensor, known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestedOutput;

    fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> TensorSpec {
        TensorSpec { name: name.to_owned(), datatype, shape: shape.to_vec() }
    }

    fn model(inputs: &[TensorSpec]) -> Signature {
        let outputs = vec![spec("y", Datatype::Fp32, &[-1, 10])];
        Signature { inputs: inputs.to_vec(), outputs }
    }

    fn tensor(name: &str, shape: &[u64]) -> Tensor {
        let data = vec![0; shape.iter().product::<u64>() as usize];
        Tensor::new(name, Datatype::Uint8, shape.to_vec(), data.into()).unwrap()
    }

    fn request(inputs: &[Tensor]) -> Request {
        Request { inputs: inputs.to_vec(), ..Request::default() }
    }

    fn problem(signature: &Signature, mut request: Request) -> String {
        signature.check(&mut request, 8).unwrap_err().to_string()
    }

    fn two() -> Signature {
        model(&[spec("a", Datatype::Uint8, &[-1, 2]), spec("b", Datatype::Uint8, &[-1])])
    }

    #[test]
    fn inputs_are_put_in_the_models_order_and_rows_counted() {
        let mut request = request(&[tensor("b", &[3]), tensor("a", &[3, 2])]);
        assert_eq!(two().check(&mut request, 8), Ok(3));
        assert_eq!(&*request.inputs[0].name, "a");
        assert_eq!(&*request.inputs[1].name, "b");
    }

    #[test]
    fn a_full_batch_is_taken_and_one_row_more_is_not() {
        let of = |rows| request(&[tensor("a", &[rows, 2]), tensor("b", &[rows])]);
        assert_eq!(two().check(&mut of(8), 8), Ok(8));
        assert_eq!(problem(&two(), of(9)), "9 rows; the model takes at most 8 at once");
    }

    #[test]
    fn no_rows_are_refused() {
        let empty = request(&[tensor("a", &[0, 2]), tensor("b", &[0])]);
        assert_eq!(problem(&two(), empty), "input \"a\" has 0 rows; send at least 1");
    }

    #[test]
    fn inputs_of_one_request_have_the_same_rows() {
        let uneven = request(&[tensor("a", &[2, 2]), tensor("b", &[3])]);
        assert_eq!(problem(&two(), uneven), "input \"b\" has 3 rows, but input \"a\" has 2");
    }

    #[test]
    fn a_missing_input_is_named_and_a_misspelt_one_even_more_so() {
        assert_eq!(problem(&two(), request(&[tensor("a", &[1, 2])])), "input \"b\" is missing");
        let misspelt = request(&[tensor("a", &[1, 2]), tensor("B", &[1])]);
        assert_eq!(problem(&two(), misspelt), "the model has no input \"B\"; it has a, b");
        let extra = request(&[tensor("a", &[1, 2]), tensor("b", &[1]), tensor("c", &[1])]);
        assert_eq!(problem(&two(), extra), "the model has no input \"c\"; it has a, b");
    }

    #[test]
    fn an_input_given_twice_by_hand_is_refused() {
        let doubled = request(&[tensor("a", &[1, 2]), tensor("b", &[1]), tensor("a", &[1, 2])]);
        assert_eq!(problem(&two(), doubled), "input \"a\" is given twice");
    }

    #[test]
    fn another_shape_is_refused_with_both() {
        let expected = "input \"a\" has shape [1,3]; the model takes [-1,2]";
        assert_eq!(problem(&two(), request(&[tensor("a", &[1, 3]), tensor("b", &[1])])), expected);
        let expected = "input \"a\" has shape [2]; the model takes [-1,2]";
        assert_eq!(problem(&two(), request(&[tensor("a", &[2]), tensor("b", &[1])])), expected);
    }

    #[test]
    fn another_datatype_is_refused_with_both() {
        let signature = model(&[spec("a", Datatype::Fp32, &[-1, 2])]);
        let expected = "input \"a\" is UINT8; the model takes FP32";
        assert_eq!(problem(&signature, request(&[tensor("a", &[1, 2])])), expected);
    }

    #[test]
    fn an_output_the_model_does_not_give_is_refused() {
        let mut request = request(&[tensor("a", &[1, 2]), tensor("b", &[1])]);
        let name = "z".to_owned();
        request.outputs.push(RequestedOutput { name, binary: None, parameters: Parameters::new() });
        assert_eq!(problem(&two(), request), "the model has no output \"z\"; it has y");
    }

    #[test]
    fn a_model_that_cannot_split_its_output_takes_one_request_at_a_time() {
        let mut signature = two();
        signature.outputs[0].shape = vec![10];
        let mut uneven = request(&[tensor("a", &[20, 2]), tensor("b", &[3])]);
        assert!(!signature.batches());
        assert_eq!(signature.check(&mut uneven, 8), Ok(1));
        let mut uneven = request(&[tensor("a", &[20, 2]), tensor("b", &[3])]);
        assert_eq!(two().check(&mut uneven, 0), Ok(1), "batching is off");
    }

    #[test]
    fn a_raw_body_is_one_row_answered_in_binary() {
        let signature = model(&[spec("x", Datatype::Fp32, &[-1, 2, 2])]);
        let mut request = signature.raw_request(vec![0; 16].into()).unwrap();
        assert_eq!(*request.inputs[0].shape, [1, 2, 2]);
        assert!(request.wants_binary("y"));
        assert_eq!(signature.check(&mut request, 8), Ok(1));
        assert_eq!(
            signature.raw_request(vec![0; 15].into()).unwrap_err().to_string(),
            "input \"x\": shape [1,2,2] needs 16 bytes of FP32, got 15"
        );
    }

    #[test]
    fn a_raw_bodys_length_settles_one_variable_dimension() {
        let signature = model(&[spec("x", Datatype::Int16, &[-1, 3, -1])]);
        let request = signature.raw_request(vec![0; 24].into()).unwrap();
        assert_eq!(*request.inputs[0].shape, [1, 3, 4]);
        assert_eq!(
            signature.raw_request(vec![0; 25].into()).unwrap_err().to_string(),
            "input \"x\": 25 raw bytes are not a multiple of 6, the model's shape being [-1,3,-1]"
        );
    }

    #[test]
    fn a_raw_body_cannot_settle_two_variable_dimensions_or_two_inputs() {
        let signature = model(&[spec("x", Datatype::Int16, &[-1, -1, -1])]);
        assert_eq!(
            signature.raw_request(vec![0; 8].into()).unwrap_err().to_string(),
            "input \"x\" of shape [-1,-1,-1] and INT16 cannot come in a raw request"
        );
        assert_eq!(two().raw_request(Bytes::new()), Err(DecodeError::RawInputs { inputs: 2 }));
    }

    #[test]
    fn a_raw_body_is_one_bytes_element_without_its_length() {
        let signature = model(&[spec("x", Datatype::Bytes, &[-1, 1])]);
        let request = signature.raw_request(Bytes::from_static(b"hello")).unwrap();
        assert_eq!(*request.inputs[0].shape, [1, 1]);
        assert_eq!(request.inputs[0].data, b"\x05\0\0\0hello".as_slice());
        let pair = model(&[spec("x", Datatype::Bytes, &[-1, 2])]);
        assert!(matches!(pair.raw_request(Bytes::new()), Err(DecodeError::RawShape { .. })));
    }

    #[test]
    fn a_raw_body_for_an_input_of_no_size_is_refused() {
        let signature = model(&[spec("x", Datatype::Fp32, &[-1, 0, -1])]);
        let refused = signature.raw_request(Bytes::new());
        assert!(matches!(refused, Err(DecodeError::RawSize { unit: 0, .. })), "{refused:?}");
    }
}
