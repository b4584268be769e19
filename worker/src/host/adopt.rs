//! Finding the executors that a worker before this one left at work.
//!
//! The truth is in the executors: every control socket in the run directory is called, and who
//! answers says what it is and has. There is no file of state that could say otherwise.

use std::{fs, io, path::Path, time::Duration};

use protocol::VERSION;
use tokio::{task::JoinSet, time::timeout};

use super::{
    lane::Adopted,
    process::{Control, Process},
};
use crate::executor_paths;

const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Every executor at work in `run_dir`. Sockets nobody listens on are removed.
pub(super) async fn find(run_dir: &Path) -> io::Result<Vec<Adopted>> {
    let mut called = JoinSet::new();
    for entry in fs::read_dir(run_dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|kind| kind != executor_paths::CONTROL) {
            continue;
        }
        match Control::connect(&path).await {
            // All at once: one of the version before takes a second to be known for that.
            Ok(control) => {
                called.spawn(async move { call(control, &path).await });
            }
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "removed stale executor socket");
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(called.join_all().await.into_iter().flatten().collect())
}

/// The executor at the other end; one that cannot be understood is ended.
async fn call(mut control: Control, path: &Path) -> Option<Adopted> {
    let process = Process::adopt(control.pid()?).ok()?;
    let path = path.display();
    match timeout(ANSWER_WAIT, control.first()).await {
        Ok(Ok(state)) if state.version == VERSION => Some(Adopted { process, control, state }),
        Ok(Ok(state)) => {
            let version = state.version;
            tracing::warn!(%path, version, expected = VERSION, "stopped executor: incompatible version");
            process.kill().await;
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(%path, %error, "stopped executor: invalid message");
            process.kill().await;
            None
        }
        Err(_) => {
            let wait_ms = ANSWER_WAIT.as_millis() as u64;
            tracing::warn!(%path, wait_ms, "stopped executor: no response");
            process.kill().await;
            None
        }
    }
}
