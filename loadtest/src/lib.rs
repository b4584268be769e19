//! Open-loop load: when requests are due, how they are sent, and an honest account of how they end.

pub mod arrivals;
pub mod capacity;
mod clock;
pub mod compare;
pub mod engine;
pub mod error;
pub mod html;
pub mod interrupt;
pub mod pattern;
pub mod payload;
pub mod plan;
pub mod plot;
pub mod prepare;
pub mod progress;
pub mod random;
pub mod report;
pub mod scenario;
pub mod scrape;
pub mod table;
pub mod tally;
pub mod target;
pub mod trace;
