//! The front door and the loops behind it.
//!
//! [`http`] and [`admin`] are the listeners, [`cache`] spares what was answered before, [`dispatch`]
//! turns requests into batches by the decisions of the `policy` package, [`transport`] carries them
//! to executors, [`fleet`] hears the workers and keeps the connections they report, [`place`] tells the
//! workers what there shall be, [`lend`] gives what is idle to [`jobs`], and [`leader`] says whether this
//! router does either.

pub mod admin;
pub mod alarm;
pub mod auth;
pub mod cache;
pub mod clock;
pub mod count;
pub mod dataplane;
pub mod dispatch;
pub mod drain;
pub mod election;
pub mod error;
pub mod fleet;
pub mod http;
pub mod jobs;
pub mod leader;
pub mod learned;
pub mod lend;
pub mod metrics;
pub mod model;
pub mod orders;
pub mod place;
pub mod plane;
pub mod records;
pub mod registry;
pub mod replay;
pub mod replica;
pub mod serve;
pub mod state;
mod steer;
pub mod trace;
pub mod transport;
