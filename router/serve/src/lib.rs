//! The data plane: from a client's connection to an executor and back.
//!
//! [`http`] is the listener and the Open Inference Protocol, [`model`] joins the [`cache`] and the
//! [`dispatch`] of one served model, [`transport`] carries batches to executors, and results enter
//! through [`replica`]. What happened is in [`count`] and [`trace`]. Nothing here knows the control
//! plane.

pub mod alarm;
pub mod auth;
pub mod cache;
pub mod clock;
pub mod count;
pub mod dispatch;
pub mod drain;
pub mod error;
pub mod http;
pub mod model;
pub mod replica;
pub mod request;
pub mod trace;
pub mod transport;
