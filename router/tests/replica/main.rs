//! Models before replicas over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cache;
mod executor;
mod fleet;
mod lies;
mod messages;
mod partition;
mod stack;
mod together;
mod turns;
