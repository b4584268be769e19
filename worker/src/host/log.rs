//! An executor's log, through a pipe that both ends hold open for reading and writing.
//!
//! It therefore never breaks: the next worker opens it again and reads on. It never blocks either:
//! what an executor says while nobody reads, beyond what the pipe holds, is lost.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkfifoat, open},
    io::Errno,
};
use tokio::{
    net::unix::pipe::{OpenOptions, Receiver},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    lines::{Allowance, Line, Lines},
    said,
};

const MAX_LOG_LINE: usize = 4 << 10;

/// The target of lines that name none.
const TARGET: &str = "executor";

const LINES_PER_SECOND: u32 = 200;

/// How long the last words may take to come through the pipe.
const LAST_WORDS: Duration = Duration::from_millis(20);

pub(super) struct Log {
    path: PathBuf,
    finish: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Log {
    /// Makes the pipe if it is not there, and reads it into our own log.
    pub(super) fn relay(path: PathBuf, slice: &str) -> io::Result<Self> {
        match mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let receiver = OpenOptions::new().read_write(true).open_receiver(&path)?;
        let (finish, finished) = oneshot::channel();
        let task = tokio::spawn(relay(receiver, finished, slice.to_owned()));
        Ok(Self { path, finish, task })
    }

    pub(super) fn end(&self) -> io::Result<OwnedFd> {
        writing_end(&self.path)
    }

    pub(super) async fn close(self) {
        // It reads until told.
        let _ = self.finish.send(());
        let _ = self.task.await;
        let _ = std::fs::remove_file(&self.path);
    }
}

fn writing_end(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

async fn relay(receiver: Receiver, mut finished: oneshot::Receiver<()>, slice: String) {
    let mut lines = Lines::new(receiver, MAX_LOG_LINE);
    let mut allowance = Allowance::new(LINES_PER_SECOND, Instant::now());
    loop {
        tokio::select! {
            line = lines.next() => match line {
                Ok(Some(line)) => say(&line, &mut allowance, &slice),
                Ok(None) | Err(_) => return,
            },
            _ = &mut finished => break,
        }
    }
    while let Ok(Ok(Some(line))) = timeout(LAST_WORDS, lines.next()).await {
        say(&line, &mut allowance, &slice);
    }
}

fn say(line: &Line, allowance: &mut Allowance, slice: &str) {
    let (passes, dropped) = allowance.pass(Instant::now());
    if dropped > 0 {
        tracing::warn!(slice, dropped, "executor logs too fast; lines dropped");
    }
    if !passes {
        return;
    }
    let text = String::from_utf8_lossy(&line.bytes);
    let message = match line.cut {
        true => "executor wrote a line too long to keep whole",
        false => "executor wrote to stderr",
    };
    said::log(TARGET, message, &text, &[("slice", slice)]);
}
