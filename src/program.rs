//! Code shared by the commands that serve.

use std::{
    io::{Write, stdout},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use config::{Config, Gpu};
use worker::{
    GpuSettings, Lending, Limits, Open,
    gpu::{
        GpuError,
        nvml::Library,
        simulated::{Delays, Setup, SimulatedGpu},
    },
};

const BAD_CONFIGURATION: u8 = 78;

/// How long executors wait for a new worker after theirs is gone.
pub(crate) const ADOPTION_WAIT: Duration = Duration::from_secs(30);

/// The GPUs of a configuration, to be opened by a worker that runs in `run_dir`.
pub(crate) fn gpus(config: &Config, run_dir: &Path) -> Vec<GpuSettings> {
    let gpu = |(index, worker): (usize, &config::Worker)| GpuSettings {
        source: worker.gpu.source(),
        open: open(index, worker.gpu.clone(), run_dir),
        pinned: worker.geometry.clone(),
    };
    config.workers.iter().enumerate().map(gpu).collect()
}

/// How a worker that runs in `run_dir` runs jobs, if it does.
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

fn open(index: usize, gpu: Gpu, run_dir: &Path) -> Open {
    match gpu {
        Gpu::Simulated { kind } => {
            let path = run_dir.join(format!("gpu{index}.simulated"));
            let kind = mig::kind(&kind);
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
        Gpu::Nvml { index, library } => Arc::new(move || {
            let gpu = Library::open(library.as_deref())?.gpu(index)?;
            Ok(Box::new(gpu))
        }),
    }
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

#[expect(clippy::print_stderr, reason = "a fatal error goes to stderr")]
pub(crate) fn failed(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

/// Prints a fatal error in the configuration.
#[expect(clippy::print_stderr, reason = "a fatal error goes to stderr")]
pub(crate) fn bad(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(BAD_CONFIGURATION)
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
