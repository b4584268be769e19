//! What a configuration would run, in a few lines for people and as data for scripts.

use std::{fmt, net::SocketAddr};

use serde::Serialize;

use super::{Config, Problems};

/// What a configuration would run.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The file's name.
    pub file: String,
    /// Where inference is served.
    pub listen: SocketAddr,
    /// Where admin is served.
    pub admin_listen: SocketAddr,
    /// The models.
    pub models: Vec<ModelSummary>,
    /// How many tenants; with none, inference is open.
    pub tenants: usize,
    /// How many keys.
    pub keys: usize,
    /// The GPUs.
    pub gpus: Vec<GpuSummary>,
}

/// One model, in short.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSummary {
    /// Its name.
    pub name: String,
    /// Its engine's word.
    pub engine: &'static str,
    /// The objective.
    pub slo_ms: f64,
    /// The part of requests within it.
    pub slo_target: f64,
    /// The largest batch.
    pub max_batch: u32,
    /// Least replicas.
    pub replicas_min: u32,
    /// Most replicas.
    pub replicas_max: u32,
    /// Memory of each.
    pub memory_mib: u64,
}

/// One GPU, in short.
#[derive(Clone, Debug, Serialize)]
pub struct GpuSummary {
    /// Such as `A100-80GB`.
    pub kind: String,
    /// Such as `3g.40gb@4`.
    pub slices: Vec<String>,
}

impl Config {
    /// What this configuration would run.
    pub fn summary(&self) -> Summary {
        let models = self.models.iter().map(|model| ModelSummary {
            name: model.name.clone(),
            engine: model.engine.name(),
            slo_ms: model.slo.as_secs_f64() * 1000.0,
            slo_target: model.slo_target,
            max_batch: model.max_batch,
            replicas_min: model.replicas.min,
            replicas_max: model.replicas.max,
            memory_mib: model.memory_mib,
        });
        let gpus = self.workers.iter().map(|worker| GpuSummary {
            kind: worker.gpu.kind().to_owned(),
            slices: worker.slices.iter().map(|slice| slice.position.clone()).collect(),
        });
        Summary {
            file: self.effective.file.clone(),
            listen: self.router.listen,
            admin_listen: self.router.admin_listen,
            models: models.collect(),
            tenants: self.tenants.len(),
            keys: self.keys.len(),
            gpus: gpus.collect(),
        }
    }

    /// What `sluice up` needs beyond a sound file: something to serve and something to serve it
    /// on.
    pub fn check_up(&self) -> Result<(), Problems> {
        let file = std::path::Path::new(&self.effective.file);
        if self.workers.is_empty() {
            let message = "no [[worker]]: `up` needs a GPU to start executors on, such as \
                           gpu = \"simulated:A100-80GB\"";
            return Err(Problems::of_file(file, message));
        }
        if self.models.is_empty() {
            return Err(Problems::of_file(file, "no [[model]]: nothing would be served"));
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: good", self.file)?;
        writeln!(f, "inference on {}, admin on {}", self.listen, self.admin_listen)?;
        for model in &self.models {
            writeln!(f, "model {model}")?;
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            writeln!(f, "gpu {index}: simulated {}: {}", gpu.kind, gpu.slices.join(", "))?;
        }
        match (self.tenants, self.keys) {
            (0, 0) => writeln!(f, "open to all who reach it; admin on loopback only"),
            (tenants, keys) => writeln!(f, "{tenants} tenants, {keys} keys"),
        }
    }
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.slo_target * 1e6).round() / 1e4;
        write!(
            f,
            "{}: {}, {} ms for {percent} % of requests, batches to {}, ",
            self.name, self.engine, self.slo_ms, self.max_batch,
        )?;
        match (self.replicas_min, self.replicas_max) {
            (1, 1) => write!(f, "1 replica")?,
            (min, max) if min == max => write!(f, "{min} replicas")?,
            (min, max) => write!(f, "{min} to {max} replicas")?,
        }
        write!(f, " of {} MiB", self.memory_mib)
    }
}
