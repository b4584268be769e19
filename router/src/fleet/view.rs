//! The fleet as an operator sees it. Executors' tokens are not among it.

use policy::fleet::SliceName;
use protocol::{GpuReport, RankReport, RankState, ReplicaReport, SliceReport, WHOLE};

use super::{Fleet, Member, SILENT};
use crate::{
    ledger::Slices,
    state::{
        GpuState, LaneState, Memory, Presence, RankView, ReplicaPhase, ReplicaState, SliceState,
        WorkerState,
    },
};

impl Fleet {
    /// Every worker and what it last reported; `owners` has the slices that are lent.
    pub fn workers(&self, owners: &Slices) -> Vec<WorkerState> {
        let known = self.known.lock();
        let worker = |(name, member): (&String, &Member)| {
            let report = member.report.as_ref();
            let gpus = report.iter().flat_map(|report| &report.gpus);
            WorkerState {
                name: name.clone(),
                state: presence(member),
                silent_s: member.silent().as_secs_f64(),
                leaving: report.is_some_and(|report| report.leaving),
                drain: None,
                generation: report.map(|report| report.generation),
                desired_generation: member
                    .desired
                    .borrow()
                    .as_ref()
                    .map(|desired| desired.generation),
                gpus: gpus.map(|report| gpu(name, report, owners)).collect(),
            }
        };
        known.workers.iter().map(worker).collect()
    }
}

fn presence(member: &Member) -> Presence {
    match member.conversation {
        Some(_) if member.silent() < SILENT => Presence::Connected,
        Some(_) => Presence::Silent,
        None => Presence::Away,
    }
}

/// `label` as it is known among several workers.
pub(crate) fn labelled(worker: &str, label: &str) -> String {
    SliceName::of(worker, label).0
}

fn gpu(worker: &str, report: &GpuReport, owners: &Slices) -> GpuState {
    let kind = report.kind.as_deref().and_then(|kind| mig::kind(kind).ok());
    let memory_slices = kind.map_or(1, |kind| kind.memory_slices);
    GpuState {
        gpu: labelled(worker, &format!("gpu{}", report.index)),
        source: report.source.clone(),
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
                job: owners.job(worker, report.index, &one.position),
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
            ReplicaPhase::Ready
        }
    };
    shown
}
