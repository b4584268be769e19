//! Finding the executors that a worker before this one left at work.
//!
//! The truth is in the executors: every control socket in the run directory is called, and who
//! answers says what it is and has. There is no file of state that could say otherwise.

use std::{fs, io, path::Path, time::Duration};

use protocol::VERSION;
use tokio::time::timeout;

use super::{
    lane::Adopted,
    process::{Control, Process},
};
use crate::seat;

/// How long an executor may take to say what it is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Every executor at work in `run_dir`. Sockets nobody listens on are removed.
pub(super) async fn find(run_dir: &Path) -> io::Result<Vec<Adopted>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(run_dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|kind| kind != seat::CONTROL) {
            continue;
        }
        match Control::connect(&path).await {
            Ok(control) => found.extend(call(control, &path).await),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "nobody there");
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(found)
}

/// The executor at the other end; one that cannot be understood is ended.
async fn call(mut control: Control, path: &Path) -> Option<Adopted> {
    let process = Process::adopt(control.pid()?).ok()?;
    let path = path.display();
    match timeout(ANSWER_WAIT, control.first()).await {
        Ok(Ok(state)) if state.version == VERSION => Some(Adopted { process, control, state }),
        Ok(Ok(state)) => {
            tracing::warn!(%path, theirs = state.version, ours = VERSION, "executor of another version ended");
            process.kill().await;
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(%path, %error, "executor not understood; it is ended");
            process.kill().await;
            None
        }
        Err(_) => {
            tracing::warn!(%path, wait = ?ANSWER_WAIT, "executor did not answer; it is ended");
            process.kill().await;
            None
        }
    }
}
