//! The planner: legal by an independent checker, near the bound, and always the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod checker;
mod fleets;
mod incremental;
mod neighbours;
mod random;
mod scenarios;
mod spare;
