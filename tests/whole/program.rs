//! A running `sluice up`.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
};

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    client::{Client, Reply},
    exposition::Metrics,
    folder::Folder,
    process,
    wait::{PATIENCE, eventually},
};

/// For the demo, which has no file.
pub(crate) const FREE_PORTS: [(&str, &str); 2] =
    [("SLUICE_LISTEN", "127.0.0.1:0"), ("SLUICE_ADMIN_LISTEN", "127.0.0.1:0")];

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The program and what it has said. Ends it, and all it started, when dropped.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    folder: Arc<Folder>,
    inference: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    ended: Option<ExitStatus>,
}

pub(crate) fn sluice(args: &[&str]) -> Output {
    sluice_with(args, &[])
}

pub(crate) fn sluice_with(args: &[&str], environment: &[(&str, &str)]) -> Output {
    command(args).envs(environment.iter().copied()).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    command_of(Path::new(env!("CARGO_BIN_EXE_sluice")), args)
}

fn command_of(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    command.env_remove("SLUICE_LISTEN").env_remove("SLUICE_ADMIN_LISTEN");
    command.env_remove("SLUICE_LOG");
    command
}

impl Program {
    /// Starts it with `folder` for its sockets, without waiting for anything.
    pub(crate) fn launch(folder: Folder, args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::launch_in(Arc::new(folder), args, environment)
    }

    fn launch_in(folder: Arc<Folder>, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut program = Self::spawn(folder, args, environment);
        program.read_stderr();
        program
    }

    /// As [`Program::launch`], with a copy of the program.
    pub(crate) fn launch_copy(folder: Folder, copy: &Path, args: &[&str]) -> Self {
        let mut program = Self::spawn_command(Arc::new(folder), command_of(copy, args));
        program.read_stderr();
        program
    }

    /// As [`Program::launch`], with a stderr that nobody reads.
    pub(crate) fn launch_unread(
        folder: Folder,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self::spawn(Arc::new(folder), args, environment)
    }

    fn spawn(folder: Arc<Folder>, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(args);
        command.envs(environment.iter().copied());
        Self::spawn_command(folder, command)
    }

    fn spawn_command(folder: Arc<Folder>, mut command: Command) -> Self {
        command.env("XDG_RUNTIME_DIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().unwrap();
        let (said, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let speech = thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        let (log, readers) = (Arc::default(), vec![speech]);
        Self { child, lines, log, readers, folder, inference: None, admin: None, ended: None }
    }

    fn read_stderr(&mut self) {
        let (kept, mut stderr) = (Arc::clone(&self.log), self.child.stderr.take().unwrap());
        self.readers.push(thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut some) {
                kept.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..count]));
            }
        }));
    }

    /// Starts it again in the same folder; it must have ended.
    pub(crate) fn again(self, args: &[&str]) -> Self {
        assert!(self.ended.is_some(), "it still runs");
        Self::launch_in(Arc::clone(&self.folder), args, &[])
    }

    /// Starts another in the same folder while this one runs.
    pub(crate) fn beside(&self, args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::launch_in(Arc::clone(&self.folder), args, environment)
    }

    pub(crate) fn demo() -> Self {
        let mut program = Self::launch(Folder::new(), &["up"], &FREE_PORTS);
        program.wait_ready();
        program
    }

    #[track_caller]
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it says nothing"),
        }
    }

    /// Reads on until it has said where it listens.
    #[track_caller]
    pub(crate) fn wait_listening(&mut self) {
        while self.inference.is_none() || self.admin.is_none() {
            let line = self.line().unwrap_or_else(|| panic!("it ended before it listened"));
            let address = |name| {
                let url = line.strip_prefix(name)?.trim_start();
                let (_, address) = url.split_once("://")?;
                Some(address.parse().unwrap())
            };
            self.inference = self.inference.or_else(|| address("inference "));
            self.admin = self.admin.or_else(|| address("admin "));
        }
    }

    /// Reads on until it says a line that begins with `word`, and returns the rest of it.
    #[track_caller]
    pub(crate) fn wait_word(&mut self, word: &str) -> String {
        loop {
            let line = self.line().unwrap_or_else(|| panic!("it ended before it said {word:?}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    #[track_caller]
    pub(crate) fn wait_ready(&mut self) {
        self.wait_listening();
        while self.line().unwrap_or_else(|| panic!("it ended before it was ready")) != "ready" {}
    }

    pub(crate) fn inference(&self) -> SocketAddr {
        self.inference.expect("the program has said where it serves")
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("the program has said where it is administered")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.inference())
    }

    /// What the admin port says to a GET, on a connection of its own.
    pub(crate) fn ask_admin(&self, path: &str) -> Reply {
        Client::connect(self.admin()).get(path)
    }

    pub(crate) fn reload(&self) -> Reply {
        Client::connect(self.admin()).post("/admin/v1/reload", &[], b"")
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(&self.ask_admin("/metrics").text())
    }

    pub(crate) fn state(&self, model: &str) -> Value {
        let state = self.ask_admin("/admin/v1/state").json();
        let models = state["models"].as_array().unwrap();
        models.iter().find(|entry| entry["name"] == model).unwrap().clone()
    }

    pub(crate) fn in_rotation(&self, model: &str) -> usize {
        self.state(model)["dispatch"]["limits"].as_array().unwrap().len()
    }

    pub(crate) fn stats(&self, model: &str) -> Value {
        let stats = self.client().get(&format!("/v2/models/{model}/stats")).json();
        stats["model_stats"][0].clone()
    }

    pub(crate) fn workers(&self) -> Vec<Value> {
        self.ask_admin("/admin/v1/workers").json()["workers"].as_array().unwrap().clone()
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        let list = |value: &Value| value.as_array().unwrap().clone();
        let gpus =
            self.workers().iter().flat_map(|worker| list(&worker["gpus"])).collect::<Vec<_>>();
        gpus.iter().flat_map(|gpu| list(&gpu["slices"])).collect()
    }

    pub(crate) fn executors(&self) -> Vec<u32> {
        let pid = |lane: &Value| lane["pid"].as_u64().map(|pid| pid.try_into().unwrap());
        let slices = self.slices();
        let lanes = slices.iter().flat_map(|slice| slice["lanes"].as_array().unwrap());
        lanes.filter_map(pid).collect()
    }

    #[track_caller]
    pub(crate) fn wait_idle(&self, model: &str) {
        eventually("nobody waits", || {
            let dispatch = &self.state(model)["dispatch"];
            (dispatch["waiting"] == 0 && dispatch["in_flight"] == 0).then_some(())
        });
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Waits until `words` are in the log, which another thread reads.
    #[track_caller]
    pub(crate) fn wait_log(&self, words: &str) {
        eventually(words, || self.log().contains(words).then_some(()));
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn rewrite(&self, text: &str) {
        self.folder.write("sluice.toml", text);
    }

    /// Waits for its end and returns its exit code, with all it has logged.
    #[track_caller]
    pub(crate) fn wait_end(&mut self) -> (Option<i32>, String) {
        let child = &mut self.child;
        let status = eventually("the program ends", || child.try_wait().unwrap());
        self.ended = Some(status);
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        (status.code(), self.log())
    }
}

impl Program {
    /// Waits for its end while another process still has its output; returns its exit code and what
    /// was logged so far.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self) -> (Option<i32>, String) {
        let child = &mut self.child;
        let status = eventually("the program ends", || child.try_wait().unwrap());
        self.ended = Some(status);
        (status.code(), self.log())
    }
}

impl Drop for Program {
    #[expect(clippy::print_stderr, reason = "of a test that failed, the log says why")]
    fn drop(&mut self) {
        if self.ended.is_none() {
            let executors = process::children(self.pid());
            process::end(self.pid());
            // They end by themselves, or there is a bug; even then nothing is left behind.
            executors.into_iter().filter(|pid| process::is_alive(*pid)).for_each(process::end);
            let _ = self.child.wait();
        }
        let log = self.log();
        if thread::panicking() {
            eprintln!("{log}");
        } else {
            assert!(!log.contains("panicked at"), "{log}");
        }
    }
}
