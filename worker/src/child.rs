//! A child process that is asked one thing and may take only so long over it.

use std::{
    io::Read,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The most it may say.
const MOST: u64 = 16 << 20;

pub(crate) struct Said {
    pub(crate) stdout: Vec<u8>,
    /// What it wrote to stderr, at its end.
    pub(crate) stderr: String,
    pub(crate) success: bool,
    pub(crate) status: ExitStatus,
}

/// Runs `command` to its end, or ends it after `patience`.
pub(crate) fn output(mut command: Command, patience: Duration) -> Result<Said, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (done, heard) = mpsc::channel();
    for (is_stdout, stream) in
        [(true, child.stdout.take().map(boxed)), (false, child.stderr.take().map(boxed))]
    {
        let (Some(stream), done) = (stream, done.clone()) else { continue };
        thread::spawn(move || {
            let mut text = Vec::new();
            // What can be read is enough: the exit status says whether all was well.
            let _ = stream.take(MOST).read_to_end(&mut text);
            let _ = done.send((is_stdout, text));
        });
    }
    drop(done);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        match heard.recv_timeout(patience) {
            Ok((true, text)) => stdout = text,
            Ok((false, text)) => stderr = text,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no answer within {} s", patience.as_secs()));
            }
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(Said { stdout, stderr, success: status.success(), status })
}

fn boxed(stream: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let refused = output(command, Duration::from_millis(1)).err().unwrap();
        assert_eq!(refused, "no answer within 0 s");
    }

    #[test]
    fn both_streams_of_a_child_are_heard() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let said = output(command, Duration::from_secs(60)).unwrap();
        assert_eq!((said.stdout.as_slice(), said.stderr.as_str()), (&b"one\n"[..], "two\n"));
        assert_eq!((said.success, said.status.code()), (false, Some(3)));
    }
}
