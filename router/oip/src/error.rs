//! Why a message was refused, with the numbers that decided.

use crate::{
    datatype::Datatype,
    parameters::Value,
    slot::{Role, Slot, dims},
};

/// A message that does not follow the protocol, or does not fit its model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The header names more bytes than came.
    #[error("Inference-Header-Content-Length is {header}, but the body has {body} bytes")]
    HeaderBeyondBody {
        /// The header's value.
        header: usize,
        /// Bytes in the body.
        body: usize,
    },
    /// A header length of 0 announces a raw tensor, which only a model's signature can explain.
    #[error("Inference-Header-Content-Length is 0: a raw request needs the model's signature")]
    Raw,
    /// The JSON part is not JSON, or not of the protocol's form.
    #[error("the JSON is not an inference message: {problem}")]
    Json {
        /// What the parser said, with line and column.
        problem: String,
    },
    /// A list is longer than is allowed.
    #[error("{count} {role}s; at most {limit} are allowed")]
    TooMany {
        /// What the list holds.
        role: Role,
        /// How many came.
        count: usize,
        /// How many may.
        limit: usize,
    },
    /// A shape has more dimensions than are allowed.
    #[error("{tensor}: the shape has {rank} dimensions; at most {limit} are allowed")]
    Rank {
        /// Whose shape.
        tensor: Slot,
        /// How many came.
        rank: usize,
        /// How many may.
        limit: usize,
    },
    /// A dimension is not a whole number of zero or more.
    #[error("{tensor}: dimension {index} of the shape is {found}; give a whole number, 0 or more")]
    Dimension {
        /// Whose shape.
        tensor: Slot,
        /// Which dimension, from 0.
        index: usize,
        /// As the caller wrote it.
        found: Value,
    },
    /// The shape's size does not fit in 64 bits.
    #[error("{tensor}: shape {} of {datatype} is more than {} bytes", dims(shape), u64::MAX)]
    ShapeOverflow {
        /// Whose shape.
        tensor: Slot,
        /// The shape.
        shape: Vec<u64>,
        /// Its element type.
        datatype: Datatype,
    },
    /// The datatype is none of the protocol's.
    #[error("{tensor}: {found:?} is not a datatype")]
    UnknownDatatype {
        /// Whose datatype.
        tensor: Slot,
        /// As the caller wrote it.
        found: String,
    },
    /// A name stands twice in one list.
    #[error("{tensor} is given twice")]
    Duplicate {
        /// The name.
        tensor: Slot,
    },
    /// There is no data in either form.
    #[error("{tensor} has neither data nor binary_data_size")]
    NoData {
        /// The empty tensor.
        tensor: Slot,
    },
    /// There is data in both forms.
    #[error("{tensor} has both data and binary_data_size; give one")]
    TwoForms {
        /// The doubled tensor.
        tensor: Slot,
    },
    /// A parameter of the protocol has a value it cannot have.
    #[error("{of}: parameter {parameter:?} is {found}; give {wanted}")]
    Parameter {
        /// The request, or the tensor, that has it.
        of: String,
        /// Its name.
        parameter: &'static str,
        /// Its value.
        found: Value,
        /// What it may be.
        wanted: &'static str,
    },
    /// A parameter asks for an extension that is not offered.
    #[error("{tensor}: parameter {parameter:?} is not supported")]
    Unsupported {
        /// The tensor that has it.
        tensor: Slot,
        /// Its name.
        parameter: &'static str,
    },
    /// Binary data is announced, but not where it begins.
    #[error(
        "{tensor} has binary_data_size, but there is no Inference-Header-Content-Length header"
    )]
    MissingHeaderLength {
        /// The first binary tensor.
        tensor: Slot,
    },
    /// The announced sizes do not add up to what follows the JSON.
    #[error("binary_data_size adds up to {declared} bytes, but {tail} follow the JSON")]
    Tail {
        /// The sum, saturated.
        declared: u64,
        /// Bytes after the JSON.
        tail: usize,
    },
    /// Binary data has another size than the shape asks for.
    #[error("{tensor}: shape {} needs {needed} bytes of {datatype}, got {got}", dims(shape))]
    ByteCount {
        /// Whose data.
        tensor: Slot,
        /// Its shape.
        shape: Vec<u64>,
        /// Its element type.
        datatype: Datatype,
        /// What the shape asks for.
        needed: u64,
        /// What came.
        got: u64,
    },
    /// The data has another number of elements than the shape asks for.
    #[error("{tensor}: shape {} needs {needed} elements, got {got}", dims(shape))]
    ElementCount {
        /// Whose data.
        tensor: Slot,
        /// Its shape.
        shape: Vec<u64>,
        /// What the shape asks for.
        needed: u64,
        /// What came.
        got: u64,
    },
    /// A BYTES element is longer than what is left of the tensor.
    #[error("{tensor}: BYTES element {element} needs {needed} bytes, {left} are left")]
    Truncated {
        /// Whose data.
        tensor: Slot,
        /// Which element, from 0.
        element: u64,
        /// Its length, or the four bytes of the length itself.
        needed: u64,
        /// Bytes after what was read.
        left: u64,
    },
    /// JSON cannot hold this datatype.
    #[error("{tensor}: {datatype} has no JSON form; use binary")]
    NoJsonForm {
        /// Whose data.
        tensor: Slot,
        /// Its element type.
        datatype: Datatype,
    },
    /// The data is not a list.
    #[error("{tensor}: data is {found}; give a list")]
    NotAList {
        /// Whose data.
        tensor: Slot,
        /// As the caller wrote it.
        found: String,
    },
    /// An element is of the wrong kind.
    #[error("{tensor}: element {element} is {found}, which is not {datatype}")]
    Element {
        /// Whose data.
        tensor: Slot,
        /// Which element, from 0.
        element: u64,
        /// The tensor's element type.
        datatype: Datatype,
        /// As the caller wrote it.
        found: String,
    },
    /// An element is a number, but too large or too small.
    #[error("{tensor}: element {element} is {found}, which is out of range for {datatype}")]
    OutOfRange {
        /// Whose data.
        tensor: Slot,
        /// Which element, from 0.
        element: u64,
        /// The tensor's element type.
        datatype: Datatype,
        /// As the caller wrote it.
        found: String,
    },
    /// The model needs an input that did not come.
    #[error("{tensor} is missing")]
    Missing {
        /// The model's input.
        tensor: Slot,
    },
    /// The model has no tensor of this name.
    #[error("the model has no {tensor}; it has {}", known.join(", "))]
    Unknown {
        /// As the caller named it.
        tensor: Slot,
        /// Those it has, at most eight of them.
        known: Vec<String>,
    },
    /// The model takes another datatype.
    #[error("{tensor} is {got}; the model takes {wanted}")]
    Datatype {
        /// The input.
        tensor: Slot,
        /// The model's.
        wanted: Datatype,
        /// The caller's.
        got: Datatype,
    },
    /// The model takes another shape.
    #[error("{tensor} has shape {}; the model takes {}", dims(got), dims(wanted))]
    Shape {
        /// The input.
        tensor: Slot,
        /// The model's, -1 where any size will do.
        wanted: Vec<i64>,
        /// The caller's.
        got: Vec<u64>,
    },
    /// Inputs of one request have different numbers of rows.
    #[error("{tensor} has {rows} rows, but {first} has {first_rows}")]
    Rows {
        /// The input that differs.
        tensor: Slot,
        /// Its rows.
        rows: u64,
        /// The model's first input.
        first: Slot,
        /// Its rows.
        first_rows: u64,
    },
    /// The request has nothing to compute.
    #[error("{tensor} has 0 rows; send at least 1")]
    NoRows {
        /// The model's first input.
        tensor: Slot,
    },
    /// The request alone is larger than a batch may be.
    #[error("{rows} rows; the model takes at most {max_batch} at once")]
    TooManyRows {
        /// Rows in the request.
        rows: u64,
        /// The model's largest batch.
        max_batch: u32,
    },
    /// A raw request is for models of one input only.
    #[error("a raw request needs a model of one input; this one has {inputs}")]
    RawInputs {
        /// How many the model has.
        inputs: usize,
    },
    /// The length of a raw request does not settle the shape of the input.
    #[error("{tensor} of shape {} and {datatype} cannot come in a raw request", dims(shape))]
    RawShape {
        /// The model's input.
        tensor: Slot,
        /// The model's shape.
        shape: Vec<i64>,
        /// The model's datatype.
        datatype: Datatype,
    },
    /// A raw request's length fits no size of the input's one variable dimension.
    #[error(
        "{tensor}: {got} raw bytes are not a multiple of {unit}, the model's shape being {}",
        dims(shape)
    )]
    RawSize {
        /// The model's input.
        tensor: Slot,
        /// The model's shape.
        shape: Vec<i64>,
        /// Bytes per step of the variable dimension.
        unit: u64,
        /// Bytes that came.
        got: usize,
    },
}

/// A message that cannot be written in the form asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// JSON has no NaN and no infinity; writing something else would be a wrong answer.
    #[error("{tensor}: element {element} is {found}, which JSON cannot hold; ask for binary")]
    NotFinite {
        /// Whose data.
        tensor: Slot,
        /// Which element, from 0.
        element: u64,
        /// `NaN`, `inf` or `-inf`.
        found: String,
    },
    /// JSON strings are Unicode; replacing what is not would be a wrong answer.
    #[error("{tensor}: element {element} is not UTF-8, which JSON cannot hold; ask for binary")]
    NotUtf8 {
        /// Whose data.
        tensor: Slot,
        /// Which element, from 0.
        element: u64,
    },
    /// A tensor's bytes do not fit its own shape: whoever made it is at fault, not the caller.
    #[error("a tensor does not fit its shape")]
    Malformed(#[source] DecodeError),
    /// The request names an output that the answer does not have.
    #[error("{tensor} was asked for, but the model did not give it")]
    Missing {
        /// The output.
        tensor: Slot,
    },
}
