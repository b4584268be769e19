//! What runs a model inside an executor.

mod choice;
mod onnx;
mod ort;
mod pace;
pub(crate) mod pause;
mod pieces;
pub(crate) mod server;
mod synthetic;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use content::Content;
use oip::Datatype;
use protocol::{Batch, ModelSpec, Part, Runtime, TensorHead};

pub use self::pace::Pace;
use crate::{
    onnxruntime::OnnxRuntime,
    signature::{Refusal, Signature, Spec},
};

/// A loaded model.
///
/// One thread owns it and runs one batch at a time. Batches reach it only after
/// [`Signature::check`] has passed them.
pub trait Engine: Send {
    fn signature(&self) -> &Signature;

    fn platform(&self) -> &str;

    /// What runs an ONNX model.
    fn runtime(&self) -> Option<Runtime> {
        None
    }

    /// What is said of each output that is not served.
    fn left_out(&self) -> &[String] {
        &[]
    }

    /// Bytes the model needs that the process does not show, or shows too few of.
    fn memory_bytes(&self) -> u64;

    /// How long a batch of `rows` takes, if the engine knows without running one.
    fn known_latency(&self, _rows: u32) -> Option<Duration> {
        None
    }

    /// What slows it down beside busy neighbours, if it must be told of them: real ones are felt.
    fn pace(&self) -> Option<Pace> {
        None
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError>;

    /// How often to look after it while it has nothing to do; never, if it cannot go by itself.
    fn look_every(&self) -> Option<Duration> {
        None
    }

    /// Whether it is still there.
    fn look(&mut self) -> Result<(), Lost> {
        Ok(())
    }
}

/// A model that is gone, and that must be loaded anew to be had again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Lost {
    pub reason: String,
    /// What it said last, for operators; may be empty, or have several lines.
    pub last_words: String,
}

impl Lost {
    pub fn whole(&self) -> String {
        let Self { reason, last_words } = self;
        if last_words.is_empty() {
            reason.clone()
        } else {
            format!("{reason}; it said last:\n{last_words}")
        }
    }
}

#[derive(Debug, Default)]
pub struct Done {
    pub outputs: Vec<Output>,
    /// Making the model's inputs of the bytes.
    pub input: Duration,
    /// In the model.
    pub compute: Duration,
    /// Making bytes of the model's outputs.
    pub output: Duration,
}

#[derive(Debug)]
pub struct Output {
    pub head: TensorHead,
    pub lengths: Vec<u32>,
    /// Its bytes, in as many pieces as it pleased the engine.
    pub data: Vec<Bytes>,
}

impl Output {
    fn of_batch(
        spec: &Spec,
        shape: &[u64],
        data: Bytes,
        batch: &Batch,
        batches: bool,
    ) -> Result<Self, RunError> {
        let tail = match (batches, shape) {
            (true, [rows, tail @ ..]) if *rows == u64::from(batch.rows()) => tail.to_vec(),
            (false, whole) => whole.to_vec(),
            (true, _) => {
                let (name, rows) = (&spec.name, batch.rows());
                let reason =
                    format!("output {name} has shape {shape:?} for a batch of {rows} rows");
                return Err(RunError::Model { reason });
            }
        };
        let lengths = if spec.datatype == Datatype::Bytes {
            let row = tail.iter().product::<u64>() as usize;
            string_lengths(row, &data, batch)
        } else {
            let row = data.len() / batch.rows().max(1) as usize;
            let length =
                |rows: u32| u32::try_from(row.saturating_mul(rows as usize)).unwrap_or(u32::MAX);
            batch.requests.iter().map(|part| length(part.rows)).collect()
        };
        Ok(Self { head: spec.head(tail), lengths, data: vec![data] })
    }
}

fn string_lengths(row: usize, data: &[u8], batch: &Batch) -> Vec<u32> {
    let mut left = data;
    let mut skip = || {
        let (prefix, rest) = left.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*prefix);
        left = rest.get(length as usize..)?;
        length.checked_add(4)
    };
    let mut length = |part: &Part| (0..row * part.rows as usize).map_while(|_| skip()).sum();
    batch.requests.iter().map(&mut length).collect()
}

/// How the reason begins where a model's files are not those that were ordered.
pub(crate) const CHANGED: &str = "changed while loading";

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// The files are not those that were ordered, or not the same throughout.
    #[error(
        "{CHANGED}: {path} has the digest {found}, and {ordered} was ordered; reload to take it"
    )]
    Changed { path: String, ordered: String, found: String },
    #[error("{path} is not an ONNX model: {reason}")]
    NotAModel { path: String, reason: String },
    #[error("{path} cannot be run: {reason}")]
    Unsupported { path: String, reason: String },
    #[error(
        "{path} cannot be run: rten, the embedded engine, has no operator {}; onnxruntime has: \
         pip install onnxruntime, or set onnxruntime in [[worker]] ({why})",
        operators.join(", ")
    )]
    Operators { path: String, operators: Vec<String>, why: String },
    #[error(
        "{path}: device is \"gpu\", but {reason}; install onnxruntime-gpu where python3 finds it, \
         set onnxruntime in [[worker]] to its library, or take device = \"auto\" or \"cpu\""
    )]
    NoGpu { path: String, reason: String },
    #[error("{}", .0.whole())]
    Server(Lost),
    #[error(transparent)]
    Datatype(#[from] oip::UnknownDatatype),
    #[error("the latency curve {curve:?} is not a list of finite latencies by rising batch size")]
    Curve { curve: Vec<(u32, f64)> },
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The model failed on it for the request's sake: only its own values or sizes can be why.
    #[error("the model cannot take these inputs: {reason}")]
    Inputs { reason: String },
    #[error("the model failed: {reason}")]
    Model { reason: String },
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// The body of `sluice executor --try-onnxruntime`: loads the library, or says why not.
pub fn try_onnxruntime(library: &Path) -> Result<(), String> {
    ort::Loaded::of(library).map(drop)
}

/// What an engine finds where it is loaded.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The program that has the subcommand `guard`: this one, as a rule.
    pub program: PathBuf,
    pub onnxruntime: OnnxRuntime,
}

#[cfg(test)]
impl Surroundings {
    /// Without another program and without ONNX Runtime.
    pub(crate) fn bare() -> Self {
        let why = "this is a test".to_owned();
        Self { program: PathBuf::new(), onnxruntime: OnnxRuntime::Missing { why } }
    }
}

/// Loads a model whose files have the content that was ordered, from before they are read until after.
pub fn load(spec: &ModelSpec, around: &Surroundings) -> Result<Box<dyn Engine>, LoadError> {
    let (Some(ordered), protocol::Engine::Onnx { path }) = (&spec.content, &spec.engine) else {
        return open(spec, around);
    };
    let read = |source| LoadError::Read { path: path.clone(), source };
    let look = || content::read(Path::new(path)).map_err(read);
    let changed = |found: &Content| LoadError::Changed {
        path: path.clone(),
        ordered: ordered.clone(),
        found: found.digest().to_owned(),
    };
    let before = look()?;
    if before.digest() != ordered {
        return Err(changed(&before));
    }
    let engine = open(spec, around);
    if before.still_holds() { engine } else { Err(changed(&look()?)) }
}

fn open(spec: &ModelSpec, around: &Surroundings) -> Result<Box<dyn Engine>, LoadError> {
    match &spec.engine {
        protocol::Engine::Onnx { path } => choice::load(path, spec, &around.onnxruntime),
        protocol::Engine::Server(server) => {
            Ok(Box::new(server::Server::start(server, &around.program)?))
        }
        protocol::Engine::Synthetic { curve, noise, inputs, outputs } => {
            let shapes = protocol::Shapes { inputs: inputs.clone(), outputs: outputs.clone() };
            let signature = Signature::read(&shapes)?;
            let curve = synthetic::Curve::new(curve, *noise)?;
            let memory_bytes = spec.memory_mib.saturating_mul(1 << 20);
            Ok(Box::new(synthetic::Synthetic::new(signature, curve, memory_bytes)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_different_lengths_are_told_apart_by_request() {
        let spec = Spec { name: "y".into(), datatype: Datatype::Bytes, shape: vec![-1, 2] };
        let part = |rows| Part { rows, bytes: vec![] };
        let batch =
            Batch { id: 1, replica: 1, inputs: vec![], requests: vec![part(1), part(2), part(1)] };
        let words = ["a", "", "four", "xx", "", "", "eleven char", "z"];
        let data: Vec<u8> = words
            .iter()
            .flat_map(|word| [&(word.len() as u32).to_le_bytes(), word.as_bytes()].concat())
            .collect();
        let whole = data.len() as u32;
        let output = Output::of_batch(&spec, &[4, 2], data.into(), &batch, true).unwrap();
        assert_eq!(output.lengths, [9, 22, 20]);
        assert_eq!(output.lengths.iter().sum::<u32>(), whole);
        assert_eq!(output.head.tail, [2]);
    }
}
