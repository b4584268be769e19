//! Code shared by commands: what they print, and how those that serve start.

use std::{
    env,
    io::{Write, stderr, stdout},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use config::{Config, Gpu, Problems, Warnings};
use tokio::sync::watch;
use worker::{
    GpuSettings, Lending, Limits, OnnxRuntime, Open,
    cores::{Offer, offer},
    gpu::{
        CoreDevice, CoreSetup, GpuError,
        nvml::Library,
        simulated::{Delays, Setup, SimulatedGpu},
    },
};

/// The exit code of an invalid file.
pub(crate) const BAD_CONFIGURATION: u8 = 78;

/// How long executors wait for a new worker after theirs is gone.
pub(crate) const ADOPTION_WAIT: Duration = Duration::from_secs(30);

/// The program that runs, whatever has taken its place on disk since. What is started of it is of the
/// same version, however long after an upgrade that is.
pub(crate) fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Has `ps` and `top` show a process that was started by [`this_program`] as what it is.
pub(crate) fn take_name() {
    // It is for people alone.
    let _ = rustix::thread::set_name(c"sluice");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// For scripts
    Json,
}

/// What a command prints, and its exit code.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: u8,
}

impl Verdict {
    pub(crate) fn print(&self) -> ExitCode {
        let written = stderr()
            .write_all(self.stderr.as_bytes())
            .and_then(|()| stdout().write_all(self.stdout.as_bytes()));
        if written.is_err() { ExitCode::FAILURE } else { ExitCode::from(self.code) }
    }
}

/// The configuration that was read, with its warnings logged.
pub(crate) fn warned(read: Result<(Config, Warnings), Problems>) -> Result<Config, String> {
    let (config, warnings) = read.map_err(|problems| problems.to_string())?;
    crate::log::follow(&config);
    for warning in warnings.iter() {
        tracing::warn!(%warning, "configuration has a warning");
    }
    Ok(config)
}

/// The devices of a file: its GPUs, and its cores, at most 8 a device. `program` tries the libraries
/// of ONNX Runtime that it names.
pub(crate) fn gpus(
    config: &Config,
    run_dir: &Path,
    program: &Path,
) -> Result<Vec<GpuSettings>, String> {
    let mut offers = offers(config)?.into_iter();
    let mut gpus: Vec<GpuSettings> = Vec::new();
    for worker in &config.workers {
        let pinned = worker.geometry.clone();
        let library = worker.onnxruntime.as_deref();
        let onnxruntime = library.map(|library| OnnxRuntime::find(Some(library), program));
        let open: Open = match &worker.gpu {
            Gpu::Simulated { kind } => simulated(gpus.len(), kind, run_dir),
            Gpu::Nvml { index, library } => nvml(*index, library.clone()),
            Gpu::Cores(_) => {
                let all = cores(offers.next(), gpus.len(), run_dir, pinned.as_deref());
                gpus.extend(
                    all.into_iter()
                        .map(|one| GpuSettings { onnxruntime: onnxruntime.clone(), ..one }),
                );
                continue;
            }
        };
        gpus.push(GpuSettings { source: worker.gpu.source(), open, pinned, onnxruntime });
    }
    Ok(gpus)
}

/// The cores of each `[[worker]]` of cores, or why this process cannot offer so many.
fn offers(config: &Config) -> Result<Vec<Offer>, String> {
    let cores = |worker: &config::Worker| match worker.gpu {
        Gpu::Cores(cores) => Some(cores.count()),
        Gpu::Simulated { .. } | Gpu::Nvml { .. } => None,
    };
    let wanted: Vec<Option<u32>> = config.workers.iter().filter_map(cores).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let file = &config.effective.file;
    offer(&wanted).map_err(|error| format!("{file}: [[worker]]: {error}"))
}

/// Why this machine cannot offer what a file says, if it cannot.
pub(crate) fn short_of_cores(config: &Config) -> Option<String> {
    offers(config).err()
}

/// Looks for ONNX Runtime, from now on and elsewhere.
pub(crate) fn onnxruntime(program: PathBuf) -> impl Future<Output = OnnxRuntime> {
    let looking = tokio::task::spawn_blocking(move || OnnxRuntime::find(None, &program));
    async {
        let why = || "looking for onnxruntime failed".to_owned();
        looking.await.unwrap_or_else(|_| OnnxRuntime::Missing { why: why() })
    }
}

pub(crate) fn lending(config: &Config, run_dir: &Path) -> Result<Option<Lending>, String> {
    let Some(loans) = config.loans.as_ref().filter(|loans| !loans.allow.is_empty()) else {
        return Ok(None);
    };
    let limits = loans;
    let directory = limits.directory.clone().unwrap_or_else(|| run_dir.join("jobs"));
    let directory = std::path::absolute(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let user = limits.user.as_deref().map(worker::user_named).transpose();
    Ok(Some(Lending {
        allow: loans.allow.clone(),
        directory,
        limits: Limits {
            user: user.map_err(|error| error.to_string())?,
            nice: limits.nice,
            cpus: limits.cpus,
            memory_mib: limits.memory_mib,
            disk_mib: limits.disk_mib,
            log_mib: limits.log_mib,
        },
    }))
}

/// Has jobs run on the terms of `config` from now on; ranks that run keep theirs.
pub(crate) fn lend(config: &Config, run_dir: &Path, terms: &watch::Sender<Option<Lending>>) {
    match lending(config, run_dir) {
        Ok(new) => {
            terms.send_if_modified(|old| {
                *old != new && {
                    *old = new;
                    true
                }
            });
        }
        Err(error) => tracing::error!(error, "terms of [loans] not applied; the old ones stay"),
    }
}

/// The devices of the cores one `[[worker]]` offers, from index `first` on.
fn cores(
    offer: Option<Offer>,
    first: usize,
    run_dir: &Path,
    pinned: Option<&[String]>,
) -> Vec<GpuSettings> {
    let Some(Offer { devices, memory_mib, split }) = offer else { return Vec::new() };
    for (core, other) in split {
        tracing::warn!(core, other, "offered core is one of two threads of a physical core");
    }
    let device = |(index, cores): (usize, Vec<usize>)| {
        let source = format!("cpu:{}", worker::cores::list(&cores));
        let memory_mib = memory_mib.saturating_mul(cores.len() as u64);
        let path = run_dir.join(format!("cpu{index}.cores"));
        let setup = CoreSetup { cores, memory_mib, path };
        let open: Open = Arc::new(move || Ok(Box::new(CoreDevice::open(&setup)?)));
        let pinned = pinned.map(<[String]>::to_vec);
        GpuSettings { source, open, pinned, onnxruntime: None }
    };
    (first..).zip(devices).map(device).collect()
}

fn simulated(index: usize, kind: &str, run_dir: &Path) -> Open {
    let path = run_dir.join(format!("gpu{index}.simulated"));
    let kind = mig::kind(kind);
    Arc::new(move || {
        let setup = Setup {
            kind: kind
                .clone()
                .map_err(|error| GpuError::Simulated { reason: error.to_string() })?,
            name: path.display().to_string(),
            path: path.clone(),
            delays: Delays::default(),
        };
        Ok(Box::new(SimulatedGpu::open(&setup)?))
    })
}

fn nvml(index: u32, library: Option<PathBuf>) -> Open {
    Arc::new(move || {
        let gpu = Library::open(library.as_deref())?.gpu(index)?;
        Ok(Box::new(gpu))
    })
}

/// Where this user's sockets are.
pub(crate) fn runtime_dir() -> PathBuf {
    // The variable may name another user's, or one that is gone, after `su` or in a container.
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    runtime.filter(|path| path.is_dir()).unwrap_or_else(env::temp_dir)
}

/// An error and all its causes, in one line, without repetition.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Prints a line on stdout; a closed stdout does not stop serving.
pub(crate) fn say(line: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Tells the person at the terminal something that is no data.
pub(crate) fn note(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}

pub(crate) fn failed(why: &str) -> ExitCode {
    complain(why);
    ExitCode::FAILURE
}

pub(crate) fn bad(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(BAD_CONFIGURATION)
}

/// Says why on stderr: after the last line of the log, where there is one.
#[expect(clippy::print_stderr, reason = "a fatal error goes to stderr")]
fn complain(why: &str) {
    if !logging::say(why) {
        eprintln!("{why}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use wire::SendError;

    use super::*;

    #[test]
    fn chain_does_not_repeat_a_cause() {
        let broken = SendError::Broken(io::Error::other("it hung up"));
        assert_eq!(chain(&broken), "no answer: it hung up");
    }
}
