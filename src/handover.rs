//! `--replace`: how a new process finds the running one, and how SIGUSR2 starts a new one.

use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use config::Config;
use router::{
    handover::{
        path_by, path_in,
        take::{self, Taken},
    },
    jobs::Jobs,
    learned::Learned,
    orders::Orders,
};
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use crate::program::{chain, failed, runtime_dir};

const REPLACE: &str = "--replace";

/// Where the router of `config` listens for its successor.
pub(crate) fn socket(config: &Config) -> Option<PathBuf> {
    let Some(state_dir) = &config.router.state_dir else {
        return Some(path_by(&runtime_dir(), config.router.listen));
    };
    Some(path_in(&std::path::absolute(state_dir).ok()?.join("run")))
}

/// What the running `sluice COMMAND` of `config` gives; none, if nothing runs.
///
/// All that can be known to fail fails here, before the running one has changed anything. On failure
/// prints why and returns the exit code.
pub(crate) async fn take(config: &Config, command: &str) -> Result<Option<Taken>, ExitCode> {
    if let Some(state_dir) = &config.router.state_dir {
        let checked = Jobs::check(state_dir)
            .and_then(|()| Orders::check(state_dir))
            .and_then(|()| Learned::check(state_dir));
        checked.map_err(|error| {
            failed(&format!("cannot use what is kept in state_dir: {}", chain(&error)))
        })?;
    }
    let Some(socket) = socket(config) else { return Ok(None) };
    let hello = take::hello(crate::VERSION.to_owned(), command);
    let taken = take::ask(&socket, &hello).await;
    let taken = taken.map_err(|error| failed(&format!("cannot replace: {}", chain(&error))))?;
    match &taken {
        Some(taken) => tracing::info!(program = taken.program(), "taking over"),
        None => {
            let socket = socket.display();
            tracing::info!(%socket, "nothing to replace: nothing listens there; starting normally");
        }
    }
    Ok(taken)
}

/// On every SIGUSR2 starts the program again, as it is now on the disk, to replace this process.
pub(crate) fn replace_on_signal() -> io::Result<()> {
    let mut asked = signal(SignalKind::user_defined2())?;
    let program = program()?;
    tokio::spawn(async move {
        while asked.recv().await.is_some() {
            match successor(&program).await {
                Ok(how) => tracing::warn!(%how, "the new process ended; this one keeps serving"),
                Err(error) => {
                    let program = program.display();
                    tracing::error!(%program, %error, "cannot start a new process");
                }
            }
        }
    });
    Ok(())
}

/// Starts a successor with the arguments of this process, and returns how it ended.
async fn successor(program: &Path) -> io::Result<String> {
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if !arguments.iter().any(|argument| argument == REPLACE) {
        arguments.push(REPLACE.into());
    }
    let mut child = Command::new(program).args(arguments).spawn()?;
    tracing::info!(pid = child.id(), "started a new process to replace this one");
    Ok(child.wait().await?.to_string())
}

/// The path this program was started by. An upgrade puts another program there, and may move
/// the link in it, so it is not resolved.
pub(crate) fn program() -> io::Result<PathBuf> {
    let Some(name) = env::args_os().next().map(PathBuf::from) else { return env::current_exe() };
    if name.components().count() > 1 {
        return std::path::absolute(name);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&folders).map(|folder| folder.join(&name)).find(|one| one.is_file());
    found.map_or_else(env::current_exe, Ok)
}
