//! What a program under test is to serve.

use std::{fmt::Write, fs, path::Path};

use crate::{
    folder::Folder,
    program::{Program, ROOT},
};

/// A whole simulated GPU, and two of them.
pub(crate) const ONE_GPU: &str = "[[worker]]\ngpu = \"simulated:A100-80GB\"\n";
pub(crate) const TWO_GPUS: &str =
    "[[worker]]\ngpu = \"simulated:A100-80GB\"\n[[worker]]\ngpu = \"simulated:A100-80GB\"\n";

/// `settings` of a model, which has one replica unless they say otherwise: a test that is not about
/// placement should not get another.
fn one_replica(settings: &str) -> String {
    if settings.contains("replicas") {
        return settings.to_owned();
    }
    format!("{settings}\nreplicas = {{ min = 1, max = 1 }}")
}

/// A configuration in the making, with the files it names.
///
/// Every model made by [`Setup::sleeper`] takes FP32 rows of four as `x` and gives them back as `y`.
#[derive(Debug)]
pub(crate) struct Setup {
    folder: Folder,
    router: String,
    tables: String,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { folder: Folder::new(), router: String::new(), tables: String::new() }
    }

    pub(crate) fn router(mut self, line: &str) -> Self {
        writeln!(self.router, "{line}").unwrap();
        self
    }

    pub(crate) fn tables(mut self, text: &str) -> Self {
        writeln!(self.tables, "{text}").unwrap();
        self
    }

    /// A model whose every batch takes `latency_ms`.
    pub(crate) fn sleeper(self, name: &str, latency_ms: u32, settings: &str) -> Self {
        let csv = format!(
            "profile,batch,processes,throughput_rps,latency_ms\n\
             7g.80gb,1,1,1,{latency_ms}\n7g.80gb,1024,1,1,{latency_ms}\n"
        );
        self.folder.write(&format!("{name}.csv"), csv);
        let settings = one_replica(settings);
        self.tables(&format!(
            "[[model]]\nname = \"{name}\"\nengine = \"synthetic\"\nprofile_csv = \"{name}.csv\"\n\
             inputs = [{{ name = \"x\", datatype = \"FP32\", shape = [-1, 4] }}]\n\
             outputs = [{{ name = \"y\", datatype = \"FP32\", shape = [-1, 4] }}]\n{settings}\n"
        ))
    }

    /// The demo's classifier of digits.
    pub(crate) fn digits(self, settings: &str) -> Self {
        fs::copy(
            Path::new(ROOT).join("configs/models/digits.onnx"),
            self.folder.path().join("digits.onnx"),
        )
        .unwrap();
        let settings = one_replica(settings);
        self.tables(&format!(
            "[[model]]\nname = \"digits\"\nengine = \"onnx\"\npath = \"digits.onnx\"\n{settings}\n"
        ))
    }

    pub(crate) fn gpus(self, count: usize) -> Self {
        self.tables(&ONE_GPU.repeat(count))
    }

    /// Puts `bytes` in place of one of the files.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) {
        self.folder.write(name, bytes);
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn into_folder(self) -> Folder {
        self.folder
    }

    pub(crate) fn text(&self) -> String {
        let Self { router, tables, .. } = self;
        format!(
            "[router]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n{router}\n{tables}"
        )
    }

    /// Writes the file and starts the program on it, without waiting for anything.
    pub(crate) fn launch(self) -> Program {
        self.launch_as("up")
    }

    pub(crate) fn launch_as(self, command: &str) -> Program {
        self.launch_with(command, &[])
    }

    pub(crate) fn launch_with(self, command: &str, environment: &[(&str, &str)]) -> Program {
        let config = self.folder.write("sluice.toml", self.text());
        let args = [command, "--config", config.to_str().unwrap()];
        Program::launch(self.folder, &args, environment)
    }

    pub(crate) fn start(self) -> Program {
        let mut program = self.launch();
        program.wait_ready();
        program
    }
}
