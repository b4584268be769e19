//! What a configuration would run, in a few lines for people and as data for scripts.

use std::{fmt, net::SocketAddr};

use serde::Serialize;

use crate::{check::Config, problems::Problems, tables::worker::Join};

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub file: String,
    pub listen: Option<SocketAddr>,
    pub admin_listen: Option<SocketAddr>,
    /// The routers to join; of a worker's file only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<String>,
    pub models: Vec<ModelSummary>,
    /// How many tenants; with none, inference is open.
    pub tenants: usize,
    pub keys: usize,
    pub gpus: Vec<GpuSummary>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ModelSummary {
    pub name: String,
    pub engine: &'static str,
    pub slo_ms: f64,
    pub slo_target: f64,
    pub max_batch: u32,
    pub replicas_min: u32,
    /// Absent: as many as fit.
    pub replicas_max: Option<u32>,
    pub memory_mib: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct GpuSummary {
    /// Such as `simulated:A100-80GB`.
    pub gpu: String,
    /// Such as `3g.40gb@4`; none if the file alone cannot tell.
    pub slices: Vec<String>,
}

impl Config {
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
        let gpus = self.workers.iter().map(|worker| {
            let known = worker.known_slices().unwrap_or_default();
            let known = || known.into_iter().map(|slice| slice.position).collect();
            let slices = worker.geometry.clone().unwrap_or_else(known);
            GpuSummary { gpu: worker.gpu.source(), slices }
        });
        let serves = self.join.is_none();
        Summary {
            file: self.effective.file.clone(),
            listen: serves.then_some(self.router.listen),
            admin_listen: serves.then_some(self.router.admin_listen),
            joins: self.join.as_ref().map(|join| join.routers.clone()).unwrap_or_default(),
            models: models.collect(),
            tenants: self.tenants.len(),
            keys: self.keys.len(),
            gpus: gpus.collect(),
        }
    }

    /// What `sluice router` needs beyond a sound file: to be a router's, and one that can be joined.
    pub fn check_router(&self) -> Result<(), Problems> {
        let file = std::path::Path::new(&self.effective.file);
        let problem = if self.join.is_some() {
            "a worker's file; start it with `sluice worker`"
        } else if !self.workers.is_empty() {
            "[[worker]] is for `sluice up`; here each worker has a file of its own"
        } else if self.router.join_listen.is_none() {
            "no join_listen: workers could not join, and nothing could be served"
        } else {
            return Ok(());
        };
        Err(Problems::of_file(file, problem))
    }

    /// What `sluice worker` needs beyond a sound file.
    pub fn check_worker(&self) -> Result<&Join, Problems> {
        let file = std::path::Path::new(&self.effective.file);
        let missing = "no [join]: a worker needs a router to join";
        self.join.as_ref().ok_or_else(|| Problems::of_file(file, missing))
    }

    /// What `sluice up` needs beyond a sound file: something to serve and something to serve it
    /// on.
    pub fn check_up(&self) -> Result<(), Problems> {
        let file = std::path::Path::new(&self.effective.file);
        if self.join.is_some() {
            let message = "a worker's file; start it with `sluice worker`";
            return Err(Problems::of_file(file, message));
        }
        if self.etcd.is_some() {
            let message = "[etcd] is for `sluice router`: the worker of `up` speaks with its own \
                           router alone";
            return Err(Problems::of_file(file, message));
        }
        if self.workers.is_empty() {
            let message = "no [[worker]]: `up` needs cores or a GPU to start executors on, such as \
                           cpu = \"auto\" or gpu = \"nvml:0\"";
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
        if let (Some(listen), Some(admin)) = (self.listen, self.admin_listen) {
            writeln!(f, "inference on {listen}, admin on {admin}")?;
        }
        if !self.joins.is_empty() {
            writeln!(f, "joins {}", self.joins.join(", "))?;
        }
        for model in &self.models {
            writeln!(f, "model {model}")?;
        }
        for (index, gpu) in self.gpus.iter().enumerate() {
            let slices = match gpu.slices.is_empty() {
                true => "as it is",
                false => &gpu.slices.join(", "),
            };
            match gpu.gpu.strip_prefix("cpu:") {
                Some("auto") => writeln!(f, "cpu {index}: all cores but one, divided as needed")?,
                Some(cores) => writeln!(f, "cpu {index}: {cores} cores, divided as needed")?,
                None => writeln!(f, "gpu {index}: {}: {slices}", gpu.gpu)?,
            }
        }
        match (self.tenants, self.keys) {
            _ if self.listen.is_none() => Ok(()),
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
            (1, Some(1)) => write!(f, "1 replica")?,
            (min, Some(max)) if min == max => write!(f, "{min} replicas")?,
            (min, Some(max)) => write!(f, "{min} to {max} replicas")?,
            (min, None) => write!(f, "{min} or more replicas")?,
        }
        write!(f, " of {} MiB", self.memory_mib)
    }
}
