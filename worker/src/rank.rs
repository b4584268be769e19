//! `sluice rank`: the process that stands over one rank of a training job.
//!
//! It outlives the worker that started it, so that the next worker finds the rank at work; and what
//! it knows is in files before it acts on it, so that a rank of one start is never begun twice. It
//! starts the job's program in a process group of its own, keeps what it prints within bounds, reads
//! its progress, pauses it, and ends it: first a call to checkpoint, then one to stop, then the kill
//! of everything it ever started.

mod folder;
mod life;
mod limits;
mod log;
mod pace;
mod progress;
mod signals;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use protocol::{RankEnd, RankSpec};
use serde::{Deserialize, Serialize};

pub use self::limits::{Limits, User, user_named};
pub(crate) use self::{
    folder::{Ended, JobFolder, RunFile},
    log::read as read_log,
    signals::sweep,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) spec: RankSpec,
    pub(crate) gpu: u32,
    pub(crate) position: String,
    pub(crate) device: Option<String>,
    pub(crate) folder: PathBuf,
    pub(crate) control: PathBuf,
    pub(crate) limits: Limits,
    /// The highest version that its own process speaks; absent, 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) speaks: Option<u16>,
}

pub fn run_rank(path: &Path) -> ExitCode {
    let read = std::fs::read(path).map_err(|error| error.to_string());
    let read = read.and_then(|text| serde_json::from_slice(&text).map_err(|e| e.to_string()));
    let assignment: Assignment = match read {
        Ok(assignment) => assignment,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "failed to read rank file");
            return ExitCode::FAILURE;
        }
    };
    let mut run = match RunFile::begin(&assignment) {
        Ok(run) => run,
        Err(error) => {
            tracing::error!(rank = assignment.spec.name(), %error, "failed to start rank");
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(life::live(&assignment, run.mark())),
        Err(error) => {
            let end = RankEnd::Lost { reason: format!("no runtime: {error}") };
            Ended::silent(end)
        }
    };
    sweep(run.mark());
    let kept = run.end(ended);
    // A worker that hears nothing more reads the file.
    let _ = std::fs::remove_file(&assignment.control);
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(rank = assignment.spec.name(), %error, "failed to save how the rank ended");
            ExitCode::FAILURE
        }
    }
}
