//! What a model takes and gives, and whether a batch is something it takes.

use oip::Datatype;
use protocol::{Batch, Part, Shapes, TensorHead, TensorShape};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub inputs: Vec<Spec>,
    pub outputs: Vec<Spec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub datatype: Datatype,
    /// Its dimensions, -1 where any size will do.
    pub shape: Vec<i64>,
}

/// Why a batch is not one the model takes, whichever replica it is sent to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the batch has {found} inputs, the model has {wanted}")]
    Inputs { found: usize, wanted: usize },
    #[error("the batch has input {found} where the model has {wanted}")]
    Input { found: String, wanted: String },
    #[error("input {input} has dimensions {found:?} after the batch, the model has {wanted:?}")]
    Shape { input: String, found: Vec<u64>, wanted: Vec<i64> },
    #[error("input {input} of request {request} has {found} bytes, its shape needs {wanted}")]
    Length {
        input: String,
        request: usize,
        found: u32,
        /// Bytes it needs; the least if its elements differ in length.
        wanted: u64,
    },
    #[error("the batch has {rows} rows, the replica takes {max_batch}")]
    Rows { rows: u32, max_batch: u32 },
    #[error("input {input} has the value {value}, this engine holds INT64 only as large as INT32")]
    Value { input: String, value: i64 },
}

impl Signature {
    /// Understands the datatypes of `shapes`, or returns the name of one that is none.
    pub fn read(shapes: &Shapes) -> Result<Self, oip::UnknownDatatype> {
        let read = |shapes: &[TensorShape]| shapes.iter().map(Spec::read).collect::<Result<_, _>>();
        Ok(Self { inputs: read(&shapes.inputs)?, outputs: read(&shapes.outputs)? })
    }

    pub fn shapes(&self) -> Shapes {
        let shapes = |specs: &[Spec]| specs.iter().map(Spec::shape).collect();
        Shapes { inputs: shapes(&self.inputs), outputs: shapes(&self.outputs) }
    }

    /// Whether requests can share a batch: every tensor's first dimension takes any size.
    pub fn batches(&self) -> bool {
        let mut tensors = self.inputs.iter().chain(&self.outputs);
        tensors.all(|spec| spec.shape.first() == Some(&-1)) && !self.inputs.is_empty()
    }

    /// Why requests cannot share a batch, if they cannot.
    pub fn unbatched(&self) -> Option<String> {
        if self.inputs.is_empty() {
            return Some("it has no input".to_owned());
        }
        let role = |specs: &[Spec], role: &str| {
            let odd = specs.iter().find(|spec| spec.shape.first() != Some(&-1))?;
            let name = &odd.name;
            Some(match odd.shape.first() {
                Some(size) => format!("{role} {name:?} has the fixed first dimension {size}"),
                None => format!("{role} {name:?} has no dimensions"),
            })
        };
        role(&self.inputs, "input").or_else(|| role(&self.outputs, "output"))
    }

    /// Whether an input has dimensions, after the batch, whose sizes are the caller's to choose.
    pub fn has_free_dimensions(&self) -> bool {
        let batches = self.batches();
        self.inputs.iter().any(|spec| spec.tail(batches).iter().any(|dim| *dim < 0))
    }

    /// Refuses a batch this model cannot take, whatever its values are.
    pub fn check(&self, batch: &Batch, max_batch: u32) -> Result<(), Refusal> {
        if batch.inputs.len() != self.inputs.len() {
            let (found, wanted) = (batch.inputs.len(), self.inputs.len());
            return Err(Refusal::Inputs { found, wanted });
        }
        let rows = batch.rows();
        if rows > max_batch {
            return Err(Refusal::Rows { rows, max_batch });
        }
        let batches = self.batches();
        for (index, (spec, head)) in self.inputs.iter().zip(&batch.inputs).enumerate() {
            spec.check_head(head, batches)?;
            spec.check_lengths(head, index, &batch.requests)?;
        }
        Ok(())
    }
}

impl Spec {
    fn read(shape: &TensorShape) -> Result<Self, oip::UnknownDatatype> {
        Ok(Self {
            name: shape.name.clone(),
            datatype: shape.datatype.parse()?,
            shape: shape.shape.clone(),
        })
    }

    fn shape(&self) -> TensorShape {
        TensorShape {
            name: self.name.clone(),
            datatype: self.datatype.name().to_owned(),
            shape: self.shape.clone(),
        }
    }

    /// Its dimensions after the batch dimension, or all of them if the model does not batch.
    pub fn tail(&self, batches: bool) -> &[i64] {
        if batches { self.shape.get(1..).unwrap_or_default() } else { &self.shape }
    }

    /// Its head in a batch or an answer whose dimensions after the batch are `tail`.
    pub fn head(&self, tail: Vec<u64>) -> TensorHead {
        TensorHead { name: self.name.clone(), datatype: self.datatype.name().to_owned(), tail }
    }

    /// The dimensions after the batch, where those of any size have the size `any`.
    pub fn tail_with(&self, batches: bool, any: u64) -> Vec<u64> {
        self.tail(batches).iter().map(|dim| u64::try_from(*dim).unwrap_or(any)).collect()
    }

    fn check_head(&self, head: &TensorHead, batches: bool) -> Result<(), Refusal> {
        if head.name != self.name || head.datatype != self.datatype.name() {
            return Err(Refusal::Input {
                found: format!("{} of {}", head.name, head.datatype),
                wanted: format!("{} of {}", self.name, self.datatype),
            });
        }
        let tail = self.tail(batches);
        let fits =
            |(wanted, found): (&i64, &u64)| *wanted < 0 || u64::try_from(*wanted) == Ok(*found);
        if tail.len() != head.tail.len() || !tail.iter().zip(&head.tail).all(fits) {
            return Err(Refusal::Shape {
                input: self.name.clone(),
                found: head.tail.clone(),
                wanted: tail.to_vec(),
            });
        }
        Ok(())
    }

    fn check_lengths(
        &self,
        head: &TensorHead,
        index: usize,
        requests: &[Part],
    ) -> Result<(), Refusal> {
        // An element of BYTES is at least its length, which takes four.
        let width = self.datatype.width().unwrap_or(4) as u64;
        let row = head.tail.iter().fold(width, |bytes, dim| bytes.saturating_mul(*dim));
        for (request, part) in requests.iter().enumerate() {
            let wanted = row.saturating_mul(part.rows.into());
            let found = part.bytes[index];
            let enough = match self.datatype.width() {
                Some(_) => u64::from(found) == wanted,
                None => u64::from(found) >= wanted,
            };
            if !enough {
                return Err(Refusal::Length { input: self.name.clone(), request, found, wanted });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, datatype: Datatype, shape: &[i64]) -> Spec {
        Spec { name: name.into(), datatype, shape: shape.to_vec() }
    }

    fn pairs() -> Signature {
        let inputs =
            vec![spec("ids", Datatype::Int64, &[-1, 4]), spec("text", Datatype::Bytes, &[-1, -1])];
        Signature { inputs, outputs: vec![spec("y", Datatype::Fp32, &[-1])] }
    }

    fn batch(lengths: [u32; 2]) -> Batch {
        let inputs = vec![
            TensorHead { name: "ids".into(), datatype: "INT64".into(), tail: vec![4] },
            TensorHead { name: "text".into(), datatype: "BYTES".into(), tail: vec![3] },
        ];
        let requests = vec![Part { rows: 2, bytes: lengths.to_vec() }];
        Batch { id: 1, replica: 1, inputs, requests }
    }

    #[test]
    fn a_batch_as_the_model_wants_it_is_taken() {
        assert_eq!(pairs().check(&batch([64, 24]), 2), Ok(()));
        assert_eq!(pairs().check(&batch([64, 99]), 2), Ok(()), "strings may be of any length");
    }

    #[test]
    fn bytes_that_do_not_fit_the_shape_are_refused_with_the_numbers() {
        let refusal = pairs().check(&batch([63, 24]), 2).unwrap_err();
        assert_eq!(refusal.to_string(), "input ids of request 0 has 63 bytes, its shape needs 64");
        let refusal = pairs().check(&batch([64, 23]), 2).unwrap_err();
        assert!(matches!(refusal, Refusal::Length { wanted: 24, found: 23, .. }), "{refusal}");
    }

    #[test]
    fn more_rows_than_were_warmed_are_refused() {
        let refusal = pairs().check(&batch([64, 24]), 1);
        assert_eq!(refusal, Err(Refusal::Rows { rows: 2, max_batch: 1 }));
    }

    #[test]
    fn another_name_type_or_shape_is_refused() {
        let mut named = batch([64, 24]);
        named.inputs[0].name = "id".into();
        let refusal = pairs().check(&named, 2).unwrap_err().to_string();
        assert_eq!(refusal, "the batch has input id of INT64 where the model has ids of INT64");

        let mut shaped = batch([64, 24]);
        shaped.inputs[0].tail = vec![5];
        let refusal = pairs().check(&shaped, 2).unwrap_err().to_string();
        assert_eq!(refusal, "input ids has dimensions [5] after the batch, the model has [4]");

        let mut fewer = batch([64, 24]);
        fewer.inputs.pop();
        assert_eq!(pairs().check(&fewer, 2), Err(Refusal::Inputs { found: 1, wanted: 2 }));
    }

    #[test]
    fn a_shape_too_large_to_count_is_refused_and_not_wrapped() {
        let mut huge = batch([64, 24]);
        huge.inputs[1].tail = vec![u64::MAX];
        let refusal = pairs().check(&huge, 2).unwrap_err();
        assert!(matches!(refusal, Refusal::Length { wanted: u64::MAX, .. }), "{refusal}");
    }

    #[test]
    fn one_fixed_first_dimension_is_enough_not_to_batch() {
        assert!(pairs().batches());
        let mut fixed = pairs();
        fixed.outputs[0].shape = vec![1];
        assert!(!fixed.batches());
        let mut scalar = pairs();
        scalar.inputs[0].shape = vec![];
        assert!(!scalar.batches());
        assert_eq!(pairs().unbatched(), None);
        let said = "output \"y\" has the fixed first dimension 1";
        assert_eq!(fixed.unbatched().as_deref(), Some(said));
        assert_eq!(scalar.unbatched().as_deref(), Some("input \"ids\" has no dimensions"));
    }

    #[test]
    fn what_travels_reads_back() {
        assert_eq!(Signature::read(&pairs().shapes()), Ok(pairs()));
    }
}
