//! Every decision Sluice makes, as arithmetic.
//!
//! Nothing here reads a clock, waits, logs or counts. Time is an argument, so the router and the
//! simulator run the same code and a failing seed is a unit test.

pub mod aimd;
mod breaker;
pub mod demand;
pub mod dispatch;
mod fair;
pub mod fleet;
mod inflight;
pub mod interference;
pub mod job;
pub mod latency;
pub mod lead;
pub mod loan;
pub mod moment;
pub mod place;
pub mod plan;
pub mod queue;
mod rate;
pub mod round;
pub mod rule;
mod scarcity;
