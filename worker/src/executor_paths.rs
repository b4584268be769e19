//! Where the files of a lane are, and secrets for its door.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// The kind of file a worker finds executors by.
pub(crate) const CONTROL: &str = "control";

/// The kind of file an executor's log goes through.
pub(crate) const LOG: &str = "log";

/// The name of a lane's file of one kind, in the run directory. Short: sockets' paths must be.
pub(crate) fn file(slice: &str, lane: u32, kind: &str) -> String {
    format!("{}.{lane}.{kind}", slice.replace([':', '@', '/'], "-"))
}

pub(crate) fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if filled < bytes.len() {
        return Err(io::Error::other("the system has too little randomness"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
