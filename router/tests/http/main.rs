//! The listeners over real sockets, in front of a model of a few lines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod admin;
mod bad_input;
mod client;
mod drain;
mod hangup;
mod limits;
mod model;
mod protocol;
mod server;
mod tenants;
