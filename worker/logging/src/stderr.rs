//! Standard error without the lock of the standard library, which others may need while we wait.

use std::io::{self, Write};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

pub(crate) struct Stderr;

impl Write for Stderr {
    /// Waits for a reader, as long as it takes: the pipe of an executor does not block by itself.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let error = match rustix::io::write(io::stderr(), bytes) {
                Ok(count) => return Ok(count),
                Err(error) => error,
            };
            if error == Errno::AGAIN {
                let stderr = io::stderr();
                match poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            } else if error != Errno::INTR {
                return Err(error.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
