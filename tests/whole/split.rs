//! A router and a worker as programs of their own.

use rustix::process::Signal;
use serde_json::Value;

use crate::{folder::Folder, process, program::Program, setup::Setup, wait::eventually};

pub(crate) const TOKEN: &str = "0123456789abcdef-fleet";

/// A router that waits for workers, and a worker of its own.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) router: Program,
    pub(crate) worker: Program,
    /// Where workers join, so that a router started again is found there.
    pub(crate) door: String,
}

/// A worker's program, which joins `door` under this name with these `gpus`.
pub(crate) fn worker(door: &str, token: &str, name: &str, gpus: &str) -> Program {
    let folder = Folder::new();
    folder.write("token", token);
    let file = folder.write("worker.toml", worker_file(door, name, gpus));
    Program::launch(folder, &["worker", "--config", file.to_str().unwrap()], &[])
}

fn worker_file(door: &str, name: &str, gpus: &str) -> String {
    format!(
        "[join]\nrouter = \"{door}\"\ntoken_file = \"token\"\nrun_dir = \"run\"\n\
         name = \"{name}\"\n{gpus}"
    )
}

pub(crate) fn router(setup: Setup) -> (Program, String) {
    setup.folder().write("token", TOKEN);
    let setup = setup
        .router("join_listen = \"127.0.0.1:0\"")
        .router("join_token_file = \"token\"")
        .router("drain_delay_s = 0");
    let mut program = setup.launch_as("router");
    program.wait_listening();
    let door = program.wait_word("join ");
    (program, door)
}

impl Split {
    pub(crate) fn start(setup: Setup, gpus: &str) -> Self {
        let (mut router, door) = router(setup);
        let mut worker = worker(&door, TOKEN, "alpha", gpus);
        worker.wait_word("worker ");
        router.wait_word("ready");
        Self { router, worker, door }
    }

    /// Kills the worker and starts another in its place, with `gpus` in its file.
    pub(crate) fn replace_worker(mut self, gpus: &str) -> Self {
        self.worker.signal(Signal::KILL);
        self.worker.wait_end();
        let text = worker_file(&self.door, "alpha", gpus);
        let file = self.worker.folder().write("worker.toml", text);
        self.worker = self.worker.again(&["worker", "--config", file.to_str().unwrap()]);
        self.worker.wait_word("worker ");
        self
    }

    /// Kills the router and starts another at the same door.
    pub(crate) fn replace_router(mut self) -> Self {
        self.router.signal(Signal::KILL);
        self.router.wait_end();
        let path = self.router.folder().path().join("sluice.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let fixed = format!("join_listen = \"{}\"", self.door);
        let text = text.replace("join_listen = \"127.0.0.1:0\"", &fixed);
        std::fs::write(&path, text).unwrap();
        self.router = self.router.again(&["router", "--config", path.to_str().unwrap()]);
        self.router.wait_listening();
        self
    }

    /// The slice of this label, once its first replica is ready.
    #[track_caller]
    pub(crate) fn ready_slice(&self, label: &str) -> Value {
        eventually("a replica is ready there", || {
            let slices = self.router.slices();
            let slice = slices.iter().find(|slice| slice["slice"] == label)?;
            (slice["replicas"][0]["state"] == "ready").then(|| slice.clone())
        })
    }

    /// Stops both in order; no executor may outlive them.
    pub(crate) fn stop(mut self, ever: &[u32]) {
        self.worker.signal(Signal::TERM);
        let (code, log) = self.worker.wait_end();
        assert_eq!(code, Some(0), "{log}");
        let left: Vec<u32> = ever.iter().copied().filter(|pid| process::is_alive(*pid)).collect();
        assert_eq!(left, [0; 0], "executors outlived their worker");
        self.router.signal(Signal::TERM);
        let (code, log) = self.router.wait_end();
        assert_eq!(code, Some(0), "{log}");
    }
}
