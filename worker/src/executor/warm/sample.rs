//! What a model is warmed with: one row of every input, at one choice of its free dimensions.

use std::{collections::BTreeMap, fs, path::Path};

use bytes::Bytes;
use oip::{Request, Tensor};
use protocol::{Batch, MAX_BODY, ModelSpec, Part, TensorHead};

use super::npz;
use crate::signature::{Signature, Spec};

#[derive(Debug)]
pub(super) struct Sample {
    heads: Vec<TensorHead>,
    /// One row of each input.
    rows: Vec<Bytes>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SampleError {
    #[error("a batch of {rows} has {bytes} bytes, at most {MAX_BODY} are allowed")]
    TooLarge { rows: u32, bytes: u64 },
    #[error("warmup names {found:?}; the model's inputs are {}", known.join(", "))]
    Unknown { found: String, known: Vec<String> },
    #[error(
        "warmup says nothing of input {input:?}, whose dimensions {wanted:?} are free; name each \
         input with its dimensions, without the batch"
    )]
    Free { input: String, wanted: Vec<i64> },
    #[error("warmup gives {found:?} for input {input:?}, which has {wanted:?} without the batch")]
    Dimensions { input: String, found: Vec<u64>, wanted: Vec<i64> },
    #[error("warmup_file {path}: {reason}")]
    File { path: String, reason: String },
}

/// What `spec` says to warm the model with. None, if its dimensions are free and nothing says which
/// are asked for: whatever was measured at others would be of no use.
pub(super) fn samples(signature: &Signature, spec: &ModelSpec) -> Result<Vec<Sample>, SampleError> {
    if let Some(path) = &spec.warmup_file {
        return Ok(vec![Sample::of_file(signature, path)?]);
    }
    if !spec.warmup.is_empty() {
        return spec.warmup.iter().map(|shape| Sample::zeros(signature, shape)).collect();
    }
    if signature.has_free_dimensions() {
        return Ok(Vec::new());
    }
    Ok(vec![Sample::zeros(signature, &BTreeMap::new())?])
}

impl Sample {
    /// Zeros, or empty strings.
    fn zeros(
        signature: &Signature,
        shape: &BTreeMap<String, Vec<u64>>,
    ) -> Result<Self, SampleError> {
        let known = || signature.inputs.iter().map(|spec| spec.name.clone()).collect();
        for name in shape.keys() {
            if !signature.inputs.iter().any(|spec| spec.name == *name) {
                return Err(SampleError::Unknown { found: name.clone(), known: known() });
            }
        }
        let batches = signature.batches();
        let mut sample = Self { heads: Vec::new(), rows: Vec::new() };
        for spec in &signature.inputs {
            let wanted = spec.tail(batches);
            let fixed = || wanted.iter().map(|dim| u64::try_from(*dim).ok()).collect();
            let free = || SampleError::Free { input: spec.name.clone(), wanted: wanted.to_vec() };
            let tail = match shape.get(&spec.name) {
                Some(given) => fitting(spec, wanted, given)?,
                None => Option::<Vec<u64>>::ok_or_else(fixed(), free)?,
            };
            let width = spec.datatype.width().unwrap_or(4) as u64;
            let bytes = tail.iter().fold(width, |bytes, dim| bytes.saturating_mul(*dim));
            let length = usize::try_from(bytes).ok().filter(|_| bytes <= u64::from(MAX_BODY));
            let length = length.ok_or(SampleError::TooLarge { rows: 1, bytes })?;
            sample.heads.push(spec.head(tail));
            sample.rows.push(Bytes::from(vec![0; length]));
        }
        Ok(sample)
    }

    /// The first row of a request.
    fn of_file(signature: &Signature, path: &str) -> Result<Self, SampleError> {
        let failed = |reason: String| SampleError::File { path: path.to_owned(), reason };
        let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
        let is_npz = Path::new(path).extension().is_some_and(|kind| kind == "npz");
        let tensors = if is_npz {
            npz::read(&bytes).map_err(|error| failed(error.to_string()))?
        } else {
            let request = Request::decode(bytes.into(), None);
            request.map_err(|error| failed(error.to_string()))?.inputs
        };
        let batches = signature.batches();
        let mut sample = Self { heads: Vec::new(), rows: Vec::new() };
        for spec in &signature.inputs {
            let tensor = tensors.iter().find(|tensor| *tensor.name == *spec.name);
            let tensor =
                tensor.ok_or_else(|| failed(format!("it has no input {:?}", spec.name)))?;
            let (tail, row) = first_row(spec, tensor, batches).map_err(failed)?;
            sample.heads.push(spec.head(tail));
            sample.rows.push(row);
        }
        Ok(sample)
    }

    /// The dimensions of each input.
    pub(super) fn inputs(&self) -> BTreeMap<String, Vec<u64>> {
        self.heads.iter().map(|head| (head.name.clone(), head.tail.clone())).collect()
    }

    /// As many requests of its row.
    pub(super) fn batch(&self, rows: u32) -> Result<(Batch, Bytes), SampleError> {
        let row: u64 = self.rows.iter().map(|row| row.len() as u64).sum();
        let bytes = row.saturating_mul(rows.into());
        if bytes > u64::from(MAX_BODY) {
            return Err(SampleError::TooLarge { rows, bytes });
        }
        let lengths = self.rows.iter().map(|row| row.len() as u32).collect();
        let requests = vec![Part { rows: 1, bytes: lengths }; rows as usize];
        let body = self.rows.concat().repeat(rows as usize);
        Ok((Batch { id: 0, replica: 0, inputs: self.heads.clone(), requests }, Bytes::from(body)))
    }
}

fn fitting(spec: &Spec, wanted: &[i64], given: &[u64]) -> Result<Vec<u64>, SampleError> {
    let same = |(wanted, given): (&i64, &u64)| *wanted < 0 || u64::try_from(*wanted) == Ok(*given);
    if wanted.len() == given.len() && wanted.iter().zip(given).all(same) {
        return Ok(given.to_vec());
    }
    let (input, found) = (spec.name.clone(), given.to_vec());
    Err(SampleError::Dimensions { input, found, wanted: wanted.to_vec() })
}

fn first_row(spec: &Spec, tensor: &Tensor, batches: bool) -> Result<(Vec<u64>, Bytes), String> {
    let (name, found) = (&spec.name, tensor.datatype);
    if found != spec.datatype {
        return Err(format!("input {name:?} is {found}, the model wants {}", spec.datatype));
    }
    let tail = match (batches, &tensor.shape[..]) {
        (true, [rows, tail @ ..]) if *rows > 0 => tail,
        (true, _) => return Err(format!("input {name:?} has no row; its first size is the batch")),
        (false, whole) => whole,
    };
    let tail = fitting(spec, spec.tail(batches), tail).map_err(|error| error.to_string())?;
    let elements = tail.iter().product::<u64>() as usize;
    let length = match spec.datatype.width() {
        Some(width) => width * elements,
        None => strings(&tensor.data, elements),
    };
    Ok((tail, tensor.data.slice(..length.min(tensor.data.len()))))
}

/// The bytes of the first `count` strings.
fn strings(data: &[u8], count: usize) -> usize {
    let mut at = 0;
    for _ in 0..count {
        let prefix = data.get(at..).and_then(|rest| rest.first_chunk::<4>());
        at += prefix.map_or(0, |prefix| 4 + u32::from_le_bytes(*prefix) as usize);
    }
    at
}

#[cfg(test)]
mod tests {
    use oip::Datatype;

    use super::*;

    fn signature() -> Signature {
        let spec = |name: &str, datatype, shape: &[i64]| Spec {
            name: name.into(),
            datatype,
            shape: shape.to_vec(),
        };
        Signature {
            inputs: vec![
                spec("x", Datatype::Fp32, &[-1, 3, -1, -1]),
                spec("names", Datatype::Bytes, &[-1, 2]),
            ],
            outputs: vec![spec("y", Datatype::Fp32, &[-1])],
        }
    }

    fn shape(x: &[u64]) -> BTreeMap<String, Vec<u64>> {
        BTreeMap::from([("x".to_owned(), x.to_vec())])
    }

    #[test]
    fn given_dimensions_make_batches_of_that_shape() {
        let sample = Sample::zeros(&signature(), &shape(&[3, 4, 5])).unwrap();
        let (batch, body) = sample.batch(2).unwrap();
        assert_eq!(batch.requests[1].bytes, [3 * 4 * 5 * 4, 8]);
        assert_eq!(body.len(), 2 * (240 + 8));
        assert_eq!(signature().check(&batch, 2), Ok(()));
    }

    #[test]
    fn dimensions_that_do_not_fit_are_told_with_those_that_do() {
        let refused = |given| Sample::zeros(&signature(), &given).unwrap_err().to_string();
        let said = refused(shape(&[1, 4, 5]));
        assert_eq!(
            said,
            "warmup gives [1, 4, 5] for input \"x\", which has [3, -1, -1] without the batch"
        );
        let said = refused(BTreeMap::new());
        assert!(said.starts_with("warmup says nothing of input \"x\""), "{said}");
        let said = refused(BTreeMap::from([("z".to_owned(), vec![1])]));
        assert_eq!(said, "warmup names \"z\"; the model's inputs are x, names");
    }

    #[test]
    fn a_request_of_a_file_gives_its_first_row_with_its_values() {
        let path = std::env::temp_dir().join(format!("sluice-{}-row.json", std::process::id()));
        let request = r#"{"inputs":[
            {"name":"x","datatype":"FP32","shape":[2,3,1,1],"data":[1,2,3,4,5,6]},
            {"name":"names","datatype":"BYTES","shape":[2,2],"data":["a","bc","d","e"]}]}"#;
        fs::write(&path, request).unwrap();
        let sample = Sample::of_file(&signature(), path.to_str().unwrap());
        fs::remove_file(&path).unwrap();
        let sample = sample.unwrap();
        let floats: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(sample.rows[0], floats);
        assert_eq!(&sample.rows[1][..], b"\x01\0\0\0a\x02\0\0\0bc");
        assert_eq!(sample.inputs()["x"], [3, 1, 1]);
    }
}
