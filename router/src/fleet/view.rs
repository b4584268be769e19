//! The fleet as an operator sees it. Executors' tokens are not among it.

use protocol::{GpuReport, ReplicaReport, ReplicaState, SliceReport};
use serde_json::{Value, json};

use super::{Fleet, Member, SILENT};

impl Fleet {
    /// Every worker and what it last reported.
    pub fn workers(&self) -> Vec<Value> {
        let known = self.known.lock();
        let worker = |(name, member): (&String, &Member)| {
            let desired = member.desired.borrow().as_ref().map(|desired| desired.generation);
            let report = member.report.as_ref();
            json!({
                "name": name,
                "state": state(member),
                "silent_s": member.silent().as_secs_f64(),
                "generation": report.map(|report| report.generation),
                "desired_generation": desired,
                "gpus": report.iter().flat_map(|report| &report.gpus).map(gpu).collect::<Vec<_>>(),
            })
        };
        known.workers.iter().map(worker).collect()
    }

    /// Every slice of every worker.
    pub fn slices(&self) -> Vec<Value> {
        let known = self.known.lock();
        let mut slices = Vec::new();
        for (name, member) in &known.workers {
            for found in
                member.report.iter().flat_map(|report| &report.gpus).flat_map(|g| &g.slices)
            {
                let mut shown = slice(found);
                shown["worker"] = json!(name);
                slices.push(shown);
            }
        }
        slices
    }
}

fn state(member: &Member) -> &'static str {
    match member.conversation {
        Some(_) if member.silent() < SILENT => "connected",
        Some(_) => "silent",
        None => "away",
    }
}

fn gpu(report: &GpuReport) -> Value {
    let mut shown = serde_json::to_value(report).unwrap_or_default();
    shown["slices"] = report.slices.iter().map(slice).collect();
    shown
}

fn slice(report: &SliceReport) -> Value {
    let lanes = report.lanes.iter().map(|lane| {
        json!({
            "lane": lane.lane,
            "pid": lane.pid,
            "restarts": lane.restarts,
            "busy_s": lane.busy_us as f64 / 1e6,
        })
    });
    json!({
        "slice": report.slice,
        "position": report.position,
        "profile": report.profile,
        "uuid": report.uuid,
        "memory_bytes": report.memory_bytes,
        "lanes": lanes.collect::<Vec<_>>(),
        "replicas": report.replicas.iter().map(replica).collect::<Vec<_>>(),
    })
}

fn replica(report: &ReplicaReport) -> Value {
    let mut shown = json!({
        "replica": report.replica,
        "model": report.model,
        "version": report.version,
        "lane": report.lane,
    });
    shown["state"] = match &report.state {
        ReplicaState::Starting => json!("starting"),
        ReplicaState::Loading => json!("loading"),
        ReplicaState::Warming { batch } => json!({ "warming": batch }),
        ReplicaState::Draining => json!("draining"),
        ReplicaState::Failed { reason, .. } => json!({ "failed": reason }),
        ReplicaState::Ready(ready) => {
            shown["memory_bytes"] = json!(ready.memory_bytes);
            shown["load_ms"] = json!(ready.load_us as f64 / 1e3);
            shown["warmup"] = json!(ready.warmup);
            json!("ready")
        }
    };
    shown
}
