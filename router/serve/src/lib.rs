//! The data plane: from a client's connection to an executor and back.
//!
//! [`listener`] accepts connections, [`layers`] do what every request needs, [`doors`] speak a protocol,
//! [`resolve`] finds the model, [`model`] joins the [`cache`] and the [`dispatch`] of one served model,
//! [`transport`] carries batches to executors, and results enter through [`replica`]. What happened is
//! in [`count`] and [`trace`]. Nothing here knows the control plane.

pub mod alarm;
pub mod auth;
pub mod body;
pub mod cache;
pub mod clock;
pub mod count;
pub mod dispatch;
pub mod doors;
pub mod drain;
pub mod error;
pub mod layers;
pub mod listener;
pub mod model;
pub mod note;
pub mod replica;
pub mod reply;
pub mod request;
pub mod resolve;
pub mod shared;
pub mod trace;
pub mod transport;
