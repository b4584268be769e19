//! The front door and the loops behind it.
//!
//! [`http`] and [`admin`] are the listeners, [`cache`] spares what was answered before, [`dispatch`]
//! turns requests into batches by the decisions of the `policy` package, [`transport`] carries them
//! to executors over the connections of [`replica`]. The control plane is the package `control`, which
//! asks the data plane through [`plane`].

pub mod admin;
pub mod alarm;
pub mod auth;
pub mod cache;
pub mod clock;
pub mod count;
pub mod dispatch;
pub mod drain;
pub mod error;
pub mod http;
pub mod metrics;
pub mod model;
pub mod plane;
pub mod registry;
pub mod reload;
pub mod replica;
pub mod request;
pub mod serve;
pub mod state;
mod steer;
pub mod trace;
pub mod transport;

pub use control::{
    election, fleet, jobs, leader, learned, ledger, lend, office, orders, place, records, replay,
    takeover,
};
