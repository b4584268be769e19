//! Restarting a worker in its own process: what is on disk now takes its place, and adopts what runs.

use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::time::interval;

use crate::{handover, program::this_program};

/// How long the program on disk may take to judge the configuration.
const CHECK_WAIT: Duration = Duration::from_secs(20);

/// The program to restart as.
#[derive(Debug)]
pub(crate) struct Successor {
    path: PathBuf,
}

impl Successor {
    /// Must be called when the program starts: later, its path may be that of another.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { path: handover::program()? })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program on disk can be run and takes the file, or why not.
    pub(crate) async fn check(&self, config: &Path) -> Result<(), String> {
        let mut command = tokio::process::Command::new(&self.path);
        command.arg("check").arg(config).stdin(Stdio::null()).kill_on_drop(true);
        let checked = tokio::time::timeout(CHECK_WAIT, command.output()).await;
        let checked = checked.map_err(|_| format!("it took more than {CHECK_WAIT:?}"))?;
        let output = checked.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}", output.status, said.trim()))
    }

    /// Becomes that program, with the same arguments, environment and process id. Its children and
    /// open pipes stay; everything else is closed. Returns only if nothing can be run.
    pub(crate) fn become_it(&self) -> io::Error {
        let again = |path: &Path| {
            logging::flush();
            let mut command = Command::new(path);
            command.arg0(&self.path).args(env::args_os().skip(1)).exec()
        };
        let error = again(&self.path);
        tracing::error!(path = %self.path.display(), %error, "failed to start the program on disk; restarting this one");
        again(&this_program())
    }
}

/// Reaps the children that this process had before it was restarted. Nobody else waits for them:
/// their worker adopts them as it does those of any other.
pub(crate) async fn reap_inherited(inherited: Vec<Pid>) {
    let mut left = inherited;
    let mut ticks = interval(Duration::from_secs(1));
    while !left.is_empty() {
        ticks.tick().await;
        left.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
    }
}

/// The children of this process. Must be called before it starts any.
pub(crate) fn children() -> Vec<Pid> {
    let path = format!("/proc/self/task/{}/children", std::process::id());
    let list = fs::read_to_string(path).unwrap_or_default();
    let pids = list.split_whitespace().flat_map(str::parse::<i32>);
    pids.filter_map(Pid::from_raw).collect()
}
