//! Connections to executors.
//!
//! One persistent connection per replica, over a Unix socket on the same host and TCP elsewhere,
//! which is encrypted where the worker has a certificate. A
//! batch is one frame: a small header made here, then the very bytes the clients sent. A reply's
//! body is read once into one buffer, and answers are slices of it.

mod link;
mod read;
mod unix;
mod write;

pub use self::link::{Hello, Link, LinkError, Received, connect};
