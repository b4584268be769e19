//! Open Inference Protocol v2: requests and responses, in JSON and in binary.
//!
//! No I/O happens here: bodies come in and go out as [`bytes::Bytes`]. A decoded tensor always
//! holds the binary form (little endian, row major), whatever form it arrived in, so that a wrong
//! element is found before a request can enter a queue and nothing later needs to know about JSON.
//! Binary tensors are slices of the body and are never copied.

pub mod model;

mod datatype;
mod encode;
mod envelope;
mod error;
mod memory;
mod parameters;
mod request;
mod response;
mod scan;
mod signature;
mod slot;
mod tensor;

pub use datatype::{Datatype, UnknownDatatype};
pub use encode::{Encoded, Form};
pub use envelope::{MAX_RANK, MAX_TENSORS};
pub use error::{DecodeError, EncodeError};
pub use memory::Memory;
pub use parameters::{MAX_PARAMETERS, Parameters, Value};
pub use request::{Request, RequestedOutput};
pub use response::Response;
pub use signature::{Signature, TensorSpec};
pub use slot::{Role, Slot};
pub use tensor::Tensor;
