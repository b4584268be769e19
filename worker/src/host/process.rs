//! An executor's process, whoever started it, and the way to its control socket.

use std::{
    fs, io,
    net::IpAddr,
    ops::Not,
    os::{
        fd::OwnedFd,
        unix::{fs::MetadataExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use protocol::{
    ExecutorId, ExecutorState, JOIN_VERSION, KNOCK, MAX_LINE, Notice, OLDEST, Order, common, line,
    read,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
    sync::watch,
    time::{sleep, timeout},
};

use super::rank::Lending;
use crate::{OnnxRuntime, cores, executor_paths, lines::Lines, onnxruntime::LIBRARY_PATH};

const PAUSE: Duration = Duration::from_millis(5);

/// What processes that are started of this program are called, wherever that is.
pub(super) const NAME: &str = "sluice";

const STOP_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Launch {
    /// The program that has the subcommand `executor`: this one, as a rule.
    pub program: PathBuf,
    /// The directory of the executors' sockets; it is made if it is missing.
    pub run_dir: PathBuf,
    /// The address they listen on over TCP; absent, they have Unix sockets.
    pub listen: Option<IpAddr>,
    /// The certificate they show there; absent, they speak plainly.
    pub certificate: Option<tls::Identity>,
    pub orphan_wait: Duration,
    /// What ONNX models are run by, where a GPU has none of its own.
    pub onnxruntime: OnnxRuntime,
    /// On what terms jobs run here now; absent, none do. All clones share them.
    pub lending: watch::Sender<Option<Lending>>,
}

/// A lane, by the names its process and its files have.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) seat: ExecutorId,
    pub(super) slice: String,
    pub(super) device: Option<String>,
}

impl Launch {
    pub(super) fn path(&self, identity: &Identity, kind: &str) -> PathBuf {
        self.run_dir.join(executor_paths::file(&identity.slice, identity.seat.lane, kind))
    }

    pub(super) fn start(
        &self,
        identity: &Identity,
        onnxruntime: &OnnxRuntime,
        log: OwnedFd,
    ) -> io::Result<Process> {
        let ExecutorId { gpu, position, lane } = &identity.seat;
        let mut command = Command::new(&self.program);
        command.arg0(NAME).args(["executor", "--slice", &identity.slice, "--position", position]);
        command.args(["--gpu", &gpu.to_string(), "--lane", &lane.to_string()]);
        command.args(["--orphan-wait-ms", &self.orphan_wait.as_millis().to_string()]);
        command.arg("--run-dir").arg(&self.run_dir);
        if let Some(address) = self.listen {
            command.args(["--listen", &address.to_string()]);
            if let Some(tls::Identity { cert, key }) = &self.certificate {
                command.arg("--cert").arg(cert).arg("--key").arg(key);
            }
        }
        command.args(onnxruntime.arguments());
        if let Some(path) = onnxruntime.library_path() {
            command.env(LIBRARY_PATH, path);
        }
        if let Some(device) = &identity.device {
            // A slice of cores has no GPU, whatever the machine has.
            let visible = if cores::cores(device).is_some() { "" } else { device };
            command.args(["--device", device]).env("CUDA_VISIBLE_DEVICES", visible);
        }
        if let Some(selected) = logging::selected() {
            command.env(logging::VARIABLE, selected);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(log));
        let child = command.process_group(0).spawn()?;
        let pid = child.id().and_then(known_pid);
        let pid = pid.ok_or_else(|| io::Error::other("it ended as it began"))?;
        Ok(Process { pid, kin: Kin::Child(child), spared: false })
    }
}

fn known_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) how: String,
    /// Whether it was its own code's doing: nobody sends these signals.
    pub(super) crashed: bool,
}

const CRASHES: [i32; 5] = [
    Signal::ABORT.as_raw(),
    Signal::BUS.as_raw(),
    Signal::FPE.as_raw(),
    Signal::ILL.as_raw(),
    Signal::SEGV.as_raw(),
];

pub(super) struct Process {
    pid: Pid,
    kin: Kin,
    /// It outlives this worker, for another one.
    spared: bool,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Kin::Child(child), false) = (&mut self.kin, self.spared) {
            // It fails if it has ended, which is as well.
            let _ = child.start_kill();
        }
    }
}

enum Kin {
    Child(Child),
    /// Another worker's child: it cannot be waited for, but watched.
    Stranger(OwnedFd),
}

impl Process {
    pub(super) fn adopt(pid: u32) -> io::Result<Self> {
        let pid = known_pid(pid).ok_or_else(|| io::Error::other("no process id"))?;
        Ok(Self { pid, kin: Kin::Stranger(pidfd_open(pid, PidfdFlags::empty())?), spared: true })
    }

    /// Whether it runs another program than this process does, as far as can be told.
    pub(super) fn is_other_program(&self) -> bool {
        let file = |pid: &str| {
            let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
            Some((file.dev(), file.ino()))
        };
        let (mine, theirs) = (file("self"), file(&self.id().to_string()));
        mine.zip(theirs).is_some_and(|(mine, theirs)| mine != theirs)
    }

    pub(super) fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Returns when it has ended, with how.
    pub(super) async fn ended(&mut self) -> Ending {
        match &mut self.kin {
            Kin::Child(child) => match child.wait().await {
                Ok(status) => {
                    let crashed = status.signal().is_some_and(|signal| CRASHES.contains(&signal));
                    Ending { how: status.to_string(), crashed }
                }
                Err(error) => Ending { how: error.to_string(), crashed: false },
            },
            Kin::Stranger(watched) => {
                while !has_ended(watched) {
                    sleep(PAUSE).await;
                }
                Ending { how: "it is gone".to_owned(), crashed: false }
            }
        }
    }

    /// Gives it a moment to end by itself, then ends it and all it started. Returns how it ended.
    pub(super) async fn end(mut self) -> Ending {
        let by_itself = timeout(STOP_WAIT, self.ended()).await;
        // It fails if nobody is left, which is what is wanted.
        let _ = kill_process_group(self.pid, Signal::KILL);
        match by_itself {
            Ok(how) => how,
            Err(_) => self.ended().await,
        }
    }

    /// Leaves it at work.
    pub(super) fn spare(mut self) {
        self.spared = true;
    }

    pub(super) async fn kill(self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        self.end().await;
    }
}

fn has_ended(watched: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(watched, PollFlags::IN)];
    // An error means that nothing more can be known of it.
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready == 0).not()
}

pub(super) struct Control {
    notices: Lines<OwnedReadHalf>,
    orders: OwnedWriteHalf,
    pid: Option<u32>,
    /// The version it is spoken to in.
    version: u16,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    #[error("it closed its control socket")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it said what cannot be understood: {0}")]
    Gibberish(#[from] serde_json::Error),
}

impl Control {
    pub(super) async fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        let pid = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
        let (read, orders) = stream.into_split();
        let notices = Lines::new(read, MAX_LINE);
        Ok(Self { notices, orders, pid, version: OLDEST })
    }

    /// Connects as soon as the executor listens, which is of this program and speaks as it does.
    pub(super) async fn await_connect(path: &Path) -> Self {
        loop {
            if let Ok(mut control) = Self::connect(path).await
                && control.speak(JOIN_VERSION).await.is_ok()
            {
                return control;
            }
            sleep(PAUSE).await;
        }
    }

    async fn speak(&mut self, version: u16) -> Result<(), ControlError> {
        self.version = JOIN_VERSION;
        self.order(&Order::Speak { version }).await?;
        self.version = version;
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The next notice that is known here. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Notice, ControlError> {
        loop {
            let line = self.notices.next().await?.ok_or(ControlError::Closed)?;
            if let Some(notice) = read(&line.bytes)? {
                return Ok(notice);
            }
        }
    }

    /// Agrees on a version with an executor that may be of another program, and hears what it has.
    ///
    /// One of version 3 does not answer the knock: the next it says is how long it has been at work.
    pub(super) async fn first(&mut self) -> Result<ExecutorState, ControlError> {
        self.order(&Order::Unload { replica: KNOCK }).await?;
        let mut known = None;
        loop {
            match (self.next().await?, known) {
                (Notice::State(state), _) if self.version > OLDEST => return Ok(*state),
                (Notice::State(state), _) => known = Some(*state),
                (Notice::Busy { .. }, Some(state)) => return Ok(state),
                (Notice::Busy { .. }, None) => known = None,
                (Notice::Hello { versions }, state) => {
                    known = state;
                    if let Some(version) = common(&versions) {
                        self.speak(version).await?;
                    }
                }
            }
        }
    }

    pub(super) async fn order(&mut self, order: &Order) -> Result<(), ControlError> {
        if let Some(line) = line(order, self.version)? {
            self.orders.write_all(&line).await?;
        }
        Ok(())
    }
}
