//! The operator's file, read once and checked whole.
//!
//! Reading has two steps. A draft mirrors the file and remembers where each
//! value stood; [`Config`] holds only values that passed every check. The file
//! is walked as a tree of spans rather than by derived deserializers, which
//! stop at their first error: an operator sees every problem at once. Code
//! past this module never sees a draft.

pub(crate) mod check;
mod diff;
mod draft;
mod effective;
pub(crate) mod etcd;
mod files;
mod loans;
mod model;
mod objective;
pub mod planfile;
pub(crate) mod planner;
pub(crate) mod problems;
pub(crate) mod profile;
mod report;
mod secrets;
mod summary;
mod tls;
mod tracing;
pub(crate) mod tree;
mod worker;

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use oip::{Signature, TensorSpec};
pub use policy::rule::Batching;

pub use self::{
    diff::{Change, Effect, diff},
    effective::{Effective, Origin, Setting},
    etcd::Etcd,
    loans::{Limits, Loans},
    model::{Class, Engine, Model, Replicas, Server},
    objective::{Objective, ObjectiveError},
    planner::Planner,
    problems::{Problem, Problems, Warnings},
    profile::{Profile, Row},
    report::Report,
    secrets::KeyHash,
    summary::{GpuSummary, ModelSummary, Summary},
    tls::Tls,
    tracing::Tracing,
    worker::{Gpu, Join, JoinTls, Slice, Worker, read_token},
};

use self::{files::Unreadable, problems::Notes};

/// The demo's configuration; its model paths are relative to the directory given to [`demo`].
pub const DEMO: &str = include_str!("../../../configs/demo.toml");

/// The largest configuration file read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The front door's own settings.
    pub router: RouterSettings,
    /// The models served, in file order.
    pub models: Vec<Model>,
    /// Who may infer; with none, inference is open.
    pub tenants: Vec<Tenant>,
    /// Who may use jobs and admin; with none, both answer on loopback only.
    pub keys: Vec<Key>,
    /// Terms for training jobs; absent, there are none.
    pub loans: Option<Loans>,
    /// How models are placed.
    pub planner: Planner,
    /// Where traces go; absent, nowhere.
    pub tracing: Option<Tracing>,
    /// Where several routers agree on who leads; absent, this one is alone.
    pub etcd: Option<Etcd>,
    /// TLS on every listener; absent, plain.
    pub tls: Option<Tls>,
    /// How this machine's worker joins a router; in a worker's file only.
    pub join: Option<Join>,
    /// The GPUs of this machine, in file order.
    pub workers: Vec<Worker>,
    /// Every value in force and where it came from.
    pub effective: Effective,
}

/// The front door's own settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterSettings {
    /// Where inference HTTP is served.
    pub listen: SocketAddr,
    /// Where admin and `/metrics` are served.
    pub admin_listen: SocketAddr,
    /// Where workers of other machines join; absent, none can.
    pub join_listen: Option<SocketAddr>,
    /// The file of the token they must know; present where `join_listen` is.
    pub join_token_file: Option<PathBuf>,
    /// Where state outlives the process; absent, memory only.
    pub state_dir: Option<PathBuf>,
    /// The longest request body as it arrives.
    pub max_body_bytes: u64,
    /// The longest request body once decompressed.
    pub max_decompressed_bytes: u64,
    /// The most bytes that the bodies of all requests may be together.
    pub max_buffered_bytes: u64,
    /// The longest request head.
    pub max_header_bytes: u64,
    /// The most connections open at once.
    pub max_connections: u32,
    /// Time allowed for a request's head to arrive.
    pub header_timeout: Duration,
    /// Time allowed for a request's body to arrive.
    pub body_timeout: Duration,
    /// How long a quiet connection is kept.
    pub idle_timeout: Duration,
    /// How long a stopping router still accepts, so that balancers notice first.
    pub drain_delay: Duration,
    /// How long a stopping router waits for requests in flight.
    pub drain_timeout: Duration,
    /// Which requests get a log line.
    pub access_log: AccessLog,
}

/// Which requests get a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    Off,
    /// Those not answered with success.
    Errors,
    /// Every one.
    All,
}

impl AccessLog {
    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Errors => "errors",
            Self::All => "all",
        }
    }
}

/// A caller of inference, known by its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// The name in metrics.
    pub name: String,
    /// The hashes of its keys: one, or more while they are exchanged.
    pub keys: Vec<KeyHash>,
    /// The most requests per second before 429; absent, no quota.
    pub rate_rps: Option<f64>,
    /// The most requests under way before 429; absent, no limit.
    pub max_in_flight: Option<u32>,
    /// Weight against other tenants when both wait. More than 0.
    pub share: f64,
}

/// A key of an operator or a job's owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The name in logs.
    pub name: String,
    /// The hashes of the key and of those that take its place.
    pub keys: Vec<KeyHash>,
    /// What it opens. At least one.
    pub scopes: Vec<Scope>,
}

/// What a [`Key`] opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Inference.
    Infer,
    /// Training jobs.
    Jobs,
    /// The admin listener, and loading and unloading of models.
    Admin,
}

impl Scope {
    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Jobs => "jobs",
            Self::Admin => "admin",
        }
    }
}

/// What the environment says about settings that differ per host.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `SLUICE_LISTEN`.
    pub listen: Option<String>,
    /// `SLUICE_ADMIN_LISTEN`.
    pub admin_listen: Option<String>,
}

impl Environment {
    /// This process's own.
    pub fn of_process() -> Self {
        let lossy = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self { listen: lossy("SLUICE_LISTEN"), admin_listen: lossy("SLUICE_ADMIN_LISTEN") }
    }
}

/// A configuration's text and what is needed to understand it.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    /// The file's name in messages.
    pub path: &'a Path,
    /// Its content.
    pub text: &'a str,
    /// What relative paths in it are relative to.
    pub base_dir: &'a Path,
    /// What overrides it.
    pub environment: Environment,
}

/// Reads a configuration under this process's environment, or says everything wrong with it.
pub fn parse(path: &Path, text: &str, base_dir: &Path) -> Result<(Config, Warnings), Problems> {
    parse_source(&Source { path, text, base_dir, environment: Environment::of_process() })
}

/// As [`parse`], under the environment given.
pub fn parse_source(source: &Source<'_>) -> Result<(Config, Warnings), Problems> {
    let text = source.text.strip_prefix('\u{feff}').unwrap_or(source.text);
    let mut notes = Notes::new(source.path, text);
    let draft = draft::read(text, &mut notes);
    let config = check::run(draft, source, &mut notes);
    notes.into_result(config)
}

/// Reads the file at `path`; paths in it are relative to its directory.
pub fn load(path: &Path) -> Result<(Config, Warnings), Problems> {
    let text = read(path)?;
    parse(path, &text, path.parent().unwrap_or(path))
}

/// Reads the built-in demo, whose model files are under `base_dir`.
pub fn demo(base_dir: &Path) -> Result<(Config, Warnings), Problems> {
    parse(Path::new("built-in demo"), DEMO, base_dir)
}

/// Reads a file's text, or says why it cannot be.
pub(crate) fn read(path: &Path) -> Result<String, Problems> {
    files::read(path, MAX_FILE_BYTES).map_err(|unreadable| match unreadable {
        Unreadable::Unopened(why) => Problems::of_file(path, why),
        Unreadable::NotText(valid) => Problems::of_text(path, &valid, "not UTF-8 from here on"),
    })
}
