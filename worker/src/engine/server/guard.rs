//! The process between an executor and the server it started.
//!
//! It starts the server in a process group of its own and ends that whole group when its stdin
//! ends, which the kernel brings about however the executor dies. The parent-death signal would
//! not do: it reaches the server alone and none of the processes the server has started.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::super::pause;
use crate::clock;

/// How long a server may take to stop when asked, before it is killed.
const GRACE: Duration = Duration::from_secs(1);

/// How often it is looked whether it has stopped.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The server runs, and its process group has this id.
    Started(i32),
    /// The server could not be started.
    NotStarted(String),
    Ended(String),
}

impl Word {
    fn line(&self) -> String {
        match self {
            Self::Started(group) => format!("started {group}\n"),
            Self::NotStarted(why) => format!("failed {why}\n"),
            Self::Ended(how) => format!("ended {how}\n"),
        }
    }

    pub(super) fn read(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end().split_once(' ')?;
        match word {
            "started" => rest.parse().ok().map(Self::Started),
            "failed" => Some(Self::NotStarted(rest.to_owned())),
            "ended" => Some(Self::Ended(rest.to_owned())),
            _ => None,
        }
    }
}

/// The body of `sluice guard`: runs `command` until it ends or this process's stdin does.
pub fn run_guard(command: &[String]) -> ExitCode {
    let word = match guard(command) {
        Ok(how) => Word::Ended(how),
        Err(error) => Word::NotStarted(error.to_string()),
    };
    say(&word);
    ExitCode::SUCCESS
}

fn guard(command: &[String]) -> io::Result<String> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
    let log = io::stderr().as_fd().try_clone_to_owned()?;
    let mut server = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .process_group(0)
        .spawn()?;
    let group = i32::try_from(server.id()).map_err(io::Error::other)?;
    say(&Word::Started(group));
    thread::spawn(move || {
        // Nobody writes to it: it ends, one way or another, with the executor or by its wish.
        let _ = io::stdin().read(&mut [0]);
        end_group(group);
    });
    let status = server.wait()?;
    // Whatever it started and left behind.
    kill(group, Signal::KILL);
    Ok(status.to_string())
}

/// Asks a process group to stop, and kills it if it does not.
pub(super) fn end_group(group: i32) {
    kill(group, Signal::TERM);
    let until = clock::now() + GRACE;
    while is_alive(group) && clock::now() < until {
        pause::until(clock::now() + LOOK_EVERY);
    }
    kill(group, Signal::KILL);
}

fn is_alive(group: i32) -> bool {
    Pid::from_raw(group).is_some_and(|group| test_kill_process_group(group).is_ok())
}

fn kill(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        // It fails if nobody is left, which is what is wanted.
        let _ = kill_process_group(group, signal);
    }
}

fn say(word: &Word) {
    // An executor that is gone needs no word.
    let _ = io::stdout().write_all(word.line().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reads_back() {
        for word in [
            Word::Started(7),
            Word::NotStarted("No such file".into()),
            Word::Ended("signal: 9 (SIGKILL)".into()),
        ] {
            assert_eq!(Word::read(&word.line()), Some(word));
        }
        assert_eq!(Word::read("started soon\n"), None);
    }
}
