//! Why a message was refused, with the numbers that decided.

use crate::{
    datatype::Datatype,
    parameters::Value,
    slot::{Role, Slot, dims},
};

/// A message that does not follow the protocol, or does not fit its model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    #[error("Inference-Header-Content-Length is {header}, but the body has {body} bytes")]
    HeaderBeyondBody { header: usize, body: usize },
    /// A header length of 0 announces a raw tensor, which only a model's signature can explain.
    #[error("Inference-Header-Content-Length is 0: a raw request needs the model's signature")]
    Raw,
    #[error("the JSON is not an inference message: {problem}")]
    Json { problem: String },
    #[error("{count} {role}s; at most {limit} are allowed")]
    TooMany { role: Role, count: usize, limit: usize },
    #[error("{tensor}: the shape has {rank} dimensions; at most {limit} are allowed")]
    Rank { tensor: Slot, rank: usize, limit: usize },
    #[error("{tensor}: dimension {index} of the shape is {found}; give a whole number, 0 or more")]
    Dimension { tensor: Slot, index: usize, found: Value },
    #[error("{tensor}: shape {} of {datatype} is more than {} bytes", dims(shape), u64::MAX)]
    ShapeOverflow { tensor: Slot, shape: Vec<u64>, datatype: Datatype },
    #[error("{tensor}: {found:?} is not a datatype")]
    UnknownDatatype { tensor: Slot, found: String },
    #[error("{tensor} is given twice")]
    Duplicate { tensor: Slot },
    #[error("{tensor} has neither data nor binary_data_size")]
    NoData { tensor: Slot },
    #[error("{tensor} has both data and binary_data_size; give one")]
    TwoForms { tensor: Slot },
    #[error("{of}: parameter {parameter:?} is {found}; give {wanted}")]
    Parameter { of: String, parameter: &'static str, found: Value, wanted: &'static str },
    #[error("{tensor}: parameter {parameter:?} is not supported")]
    Unsupported { tensor: Slot, parameter: &'static str },
    #[error(
        "{tensor} has binary_data_size, but there is no Inference-Header-Content-Length header"
    )]
    MissingHeaderLength { tensor: Slot },
    #[error("binary_data_size adds up to {declared} bytes, but {tail} follow the JSON")]
    Tail {
        /// The sum, saturated.
        declared: u64,
        tail: usize,
    },
    #[error("{tensor}: shape {} needs {needed} bytes of {datatype}, got {got}", dims(shape))]
    ByteCount { tensor: Slot, shape: Vec<u64>, datatype: Datatype, needed: u64, got: u64 },
    #[error("{tensor}: shape {} needs {needed} elements, got {got}", dims(shape))]
    ElementCount { tensor: Slot, shape: Vec<u64>, needed: u64, got: u64 },
    #[error("{tensor}: BYTES element {element} needs {needed} bytes, {left} are left")]
    Truncated {
        tensor: Slot,
        element: u64,
        /// Its length, or the four bytes of the length itself.
        needed: u64,
        left: u64,
    },
    #[error("{tensor}: {datatype} has no JSON form; use binary")]
    NoJsonForm { tensor: Slot, datatype: Datatype },
    #[error("{tensor}: data is {found}; give a list")]
    NotAList { tensor: Slot, found: String },
    #[error("{tensor}: element {element} is {found}, which is not {datatype}")]
    Element { tensor: Slot, element: u64, datatype: Datatype, found: String },
    #[error("{tensor}: element {element} is {found}, which is out of range for {datatype}")]
    OutOfRange { tensor: Slot, element: u64, datatype: Datatype, found: String },
    #[error("{tensor} is missing")]
    Missing { tensor: Slot },
    #[error("the model has no {tensor}; it has {}", known.join(", "))]
    Unknown {
        tensor: Slot,
        /// Those it has, at most eight of them.
        known: Vec<String>,
    },
    #[error("{tensor} is {got}; the model takes {wanted}")]
    Datatype { tensor: Slot, wanted: Datatype, got: Datatype },
    #[error("{tensor} has shape {}; the model takes {}", dims(got), dims(wanted))]
    Shape {
        tensor: Slot,
        /// The model's, -1 where any size will do.
        wanted: Vec<i64>,
        got: Vec<u64>,
    },
    #[error("{tensor} has {rows} rows, but {first} has {first_rows}")]
    Rows { tensor: Slot, rows: u64, first: Slot, first_rows: u64 },
    #[error("{tensor} has 0 rows; send at least 1")]
    NoRows { tensor: Slot },
    #[error("{rows} rows; the model takes at most {max_batch} at once")]
    TooManyRows { rows: u64, max_batch: u32 },
    #[error("a raw request needs a model of one input; this one has {inputs}")]
    RawInputs { inputs: usize },
    #[error("{tensor} of shape {} and {datatype} cannot come in a raw request", dims(shape))]
    RawShape { tensor: Slot, shape: Vec<i64>, datatype: Datatype },
    #[error(
        "{tensor}: {got} raw bytes are not a multiple of {unit}, the model's shape being {}",
        dims(shape)
    )]
    RawSize {
        tensor: Slot,
        shape: Vec<i64>,
        /// Bytes per step of the variable dimension.
        unit: u64,
        got: usize,
    },
}

/// A message that cannot be written in the form asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// JSON has no NaN and no infinity; writing something else would be a wrong answer.
    #[error("{tensor}: element {element} is {found}, which JSON cannot hold; ask for binary")]
    NotFinite { tensor: Slot, element: u64, found: String },
    /// JSON strings are Unicode; replacing what is not would be a wrong answer.
    #[error("{tensor}: element {element} is not UTF-8, which JSON cannot hold; ask for binary")]
    NotUtf8 { tensor: Slot, element: u64 },
    /// A tensor's bytes do not fit its own shape: whoever made it is at fault, not the caller.
    #[error("a tensor does not fit its shape")]
    Malformed(#[source] DecodeError),
    #[error("{tensor} was asked for, but the model did not give it")]
    Missing { tensor: Slot },
}
