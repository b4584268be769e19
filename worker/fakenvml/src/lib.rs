//! A `libnvidia-ml.so.1` without a GPU behind it, for tests.
//!
//! Copy the built library into a folder as `libnvidia-ml.so.1`, put a [`State`] beside it as
//! [`STATE_FILE`], and any client of NVML that loads it sees those GPUs: the file is locked for
//! every call, so processes agree, and a test can write into it what hardware would do by itself.
//! MIG's rules are taken from the same table as package `mig` but enforced by code of their own.
//!
//! Handles behave as badly as the real ones may: that of a MIG device is its slot, and is given to
//! the next that takes the slot; GPU and compute instance ids are used again at once, and the UUID
//! of a MIG device follows from them.

pub mod exports;
mod pointers;
mod rules;
mod state;
mod store;
mod table;

pub use state::{Compute, Device, Event, Fault, Instance, Mig, State};

pub const STATE_FILE: &str = "nvml.json";

pub(crate) type Code = nvml_wrapper_sys::bindings::nvmlReturn_t;
