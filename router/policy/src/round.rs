//! One control round: from what is seen of the fleet to what it shall be.

pub mod throttle;
