//! The worker's NVML code against a library that is not NVIDIA's, through the real loader.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod failures;
mod fake;
mod reading;
mod reshaping;
