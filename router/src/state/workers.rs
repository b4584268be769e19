//! Workers as the state document shows them, made from what the fleet, the loans and the orders say.
//! Executors' tokens are not among it.

use std::collections::BTreeMap;

use policy::fleet::{GpuId, SliceId};
use protocol::{GpuReport, RankReport, RankState, ReplicaReport, SliceReport, WHOLE};

use super::{
    GpuState, LaneState, Memory, RankView, ReplicaPhase, ReplicaState, SliceState, WorkerState,
};
use crate::{
    fleet::{View, labelled},
    progress::DrainState,
};

/// A worker; `lent` has the job of each slice that is lent.
pub(super) fn worker(
    view: &View,
    lent: &BTreeMap<SliceId, u64>,
    drain: Option<DrainState>,
) -> WorkerState {
    let report = view.report.as_ref();
    let gpus = report.iter().flat_map(|report| &report.gpus);
    WorkerState {
        name: view.name.clone(),
        state: view.presence,
        silent_s: view.silent.as_secs_f64(),
        leaving: report.is_some_and(|report| report.leaving),
        drain,
        generation: report.map(|report| report.generation),
        desired_generation: view.desired_generation,
        gpus: gpus.map(|report| gpu(&view.name, report, lent)).collect(),
    }
}

fn gpu(worker: &str, report: &GpuReport, lent: &BTreeMap<SliceId, u64>) -> GpuState {
    let kind = report.kind.as_deref().and_then(|kind| mig::device(kind).ok());
    let memory_slices = kind.map_or(1, |kind| kind.memory_slices);
    let id = GpuId { worker: worker.to_owned(), gpu: report.index };
    GpuState {
        gpu: labelled(worker, &mig::device_label(report.index, kind)),
        source: report.source.clone(),
        simulated: report.is_simulated(),
        kind: report.kind.clone(),
        uuid: report.uuid.clone(),
        mode: report.mode,
        can_reshape: report.can_reshape,
        problem: report.problem.clone(),
        memory_slices,
        memory: report
            .memory_bytes
            .map(|(total_bytes, used_bytes)| Memory { total_bytes, used_bytes }),
        power_w: report.power_milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3),
        clock_mhz: report.clock_mhz,
        temperature_c: report.temperature_celsius,
        ecc: report.ecc,
        xids: report.xids.iter().map(|xid| xid.code).collect(),
        slices: report
            .slices
            .iter()
            .map(|one| SliceState {
                job: lent.get(&id.slice(&*one.position)).copied(),
                ..slice(worker, one, kind)
            })
            .collect(),
    }
}

fn slice(worker: &str, report: &SliceReport, kind: Option<&'static mig::Kind>) -> SliceState {
    let whole = (0, kind.map_or(1, |kind| kind.memory_slices));
    let position = kind.and_then(|kind| kind.position(&report.position).ok());
    let (start, end) = match position {
        Some(position) if report.position != WHOLE => (position.start(), position.end()),
        Some(_) | None => whole,
    };
    let lanes = report.lanes.iter().map(|lane| LaneState {
        lane: lane.lane,
        pid: lane.pid,
        restarts: lane.restarts,
        busy_s: lane.busy_us as f64 / 1e6,
    });
    SliceState {
        slice: labelled(worker, &report.slice),
        position: report.position.clone(),
        profile: report.profile.clone(),
        uuid: report.uuid.clone(),
        start,
        memory_slices: end - start,
        memory_bytes: report.memory_bytes,
        lanes: lanes.collect(),
        replicas: report.replicas.iter().map(replica).collect(),
        rank: report.rank.as_ref().map(rank),
        job: None,
    }
}

fn rank(report: &RankReport) -> RankView {
    let state = match &report.state {
        RankState::Starting => "starting",
        RankState::Running { .. } => "running",
        RankState::Checkpointing => "checkpointing",
        RankState::Stopping => "stopping",
        RankState::Ended(_) => "ended",
    };
    RankView { job: report.job, run: report.run, rank: report.rank, state: state.to_owned() }
}

fn replica(report: &ReplicaReport) -> ReplicaState {
    let mut shown = ReplicaState {
        replica: report.replica,
        model: report.model.clone(),
        version: report.version.clone(),
        lane: report.lane,
        state: ReplicaPhase::Starting,
        reason: None,
        memory_bytes: None,
        load_ms: None,
        runtime: None,
    };
    shown.state = match &report.state {
        protocol::ReplicaState::Starting => ReplicaPhase::Starting,
        protocol::ReplicaState::Loading => ReplicaPhase::Loading,
        protocol::ReplicaState::Warming { .. } => ReplicaPhase::Warming,
        protocol::ReplicaState::Draining => ReplicaPhase::Draining,
        protocol::ReplicaState::Failed { reason, .. } => {
            shown.reason = Some(reason.clone());
            ReplicaPhase::Failed
        }
        protocol::ReplicaState::Ready(ready) => {
            shown.memory_bytes = Some(ready.memory_bytes);
            shown.load_ms = Some(ready.load_us as f64 / 1e3);
            shown.runtime = ready.runtime.as_ref().map(ToString::to_string);
            ReplicaPhase::Ready
        }
    };
    shown
}
