//! Reading a GPU and its lanes, and what came of asking.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use protocol::{ExecutorId, Order, ReplicaState, WHOLE};
use tokio::time::Instant;

use super::{
    backoff::Retry, gpu::Keeper, lane::Lane, neighbours::AtWork, process::Identity, rank::Rank,
    report,
};
use crate::{
    gpu::{GpuError, Mode, Reshaped, Sample, Slice, Survey, Xid},
    reconcile::{GpuWorld, LanePhase, LaneSeen, Loaded, Phase, Place, RankSeen},
};

/// The errors of a GPU that are remembered.
const XIDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) survey: Option<Survey>,
    pub(super) sample: Sample,
    pub(super) xids: VecDeque<Xid>,
    /// Why it could not be read.
    pub(super) problem: Option<GpuError>,
}

pub(super) enum Outcome {
    Looked(Result<Looked, GpuError>),
    Reshaped(Reshaped),
    /// The call panicked, or the GPU was closed before it.
    Nothing,
}

pub(super) struct Looked {
    survey: Survey,
    sample: Sample,
    xids: Vec<Xid>,
    /// How much slower each slice runs for its neighbours, where they must be told.
    felt: Vec<(String, f64)>,
}

impl Keeper {
    pub(super) fn look(&mut self) {
        let (gpu, open) = (Arc::clone(&self.around.gpu), Arc::clone(&self.settings.open));
        let at_work = self.at_work();
        let mut works = self.neighbours.works(at_work, Instant::now());
        works.extend(self.ranks.values().filter_map(Rank::work));
        self.call = Some(tokio::task::spawn_blocking(move || {
            let mut gpu = gpu.lock();
            let mut read = || {
                let gpu = match &mut *gpu {
                    Some(gpu) => gpu,
                    closed @ None => closed.insert(open()?),
                };
                // A GPU may be silent on errors and on how it fares, and all right nevertheless.
                let xids = gpu.xids(Duration::ZERO).unwrap_or_default();
                let felt = gpu.feel(&works).unwrap_or_default();
                let survey = gpu.survey()?;
                Ok(Looked { survey, sample: gpu.sample().unwrap_or_default(), xids, felt })
            };
            Outcome::Looked(read())
        }));
    }

    /// What came of the call under way; never, if none is.
    pub(super) async fn called(&mut self) -> Outcome {
        let Some(call) = &mut self.call else { return std::future::pending().await };
        let outcome = call.await.unwrap_or(Outcome::Nothing);
        self.call = None;
        outcome
    }

    pub(super) fn take(&mut self, outcome: Outcome) {
        let now = Instant::now();
        let found = match outcome {
            Outcome::Looked(Ok(Looked { survey, sample, xids, felt })) => {
                self.pace(&felt);
                for xid in &xids {
                    let (gpu, instance) = (self.index, xid.gpu_instance);
                    tracing::warn!(gpu, xid = xid.code, instance, "GPU reported an Xid error");
                }
                self.seen.xids.extend(xids);
                self.seen.xids.drain(..self.seen.xids.len().saturating_sub(XIDS));
                self.seen.sample = sample;
                Ok(survey)
            }
            Outcome::Looked(Err(error)) => Err(error),
            Outcome::Reshaped(Reshaped { outcome, found }) => {
                match outcome {
                    Ok(()) => (self.uncut, self.reshape) = (None, None),
                    Err(error) => self.not_cut(error.to_string(), now),
                }
                found
            }
            Outcome::Nothing => return,
        };
        match found {
            Ok(survey) => (self.seen.survey, self.seen.problem) = (Some(survey), None),
            Err(error) => {
                if self.seen.problem.as_ref() != Some(&error) {
                    tracing::warn!(gpu = self.index, %error, "failed to read GPU");
                }
                self.seen.problem = Some(error);
            }
        }
    }

    /// How busy each slice has been since its executors started.
    fn at_work(&self) -> Vec<AtWork> {
        let mut slices: BTreeMap<String, AtWork> = BTreeMap::new();
        for lane in self.lanes.values() {
            let Some(state) = lane.status().state else { continue };
            let Some(uuid) = state.device else { continue };
            let new = || AtWork { uuid: uuid.clone(), memory_mib: 0, busy_us: 0 };
            let slice = slices.entry(uuid.clone()).or_insert_with(new);
            slice.busy_us += state.busy_us;
            slice.memory_mib += state.replicas.iter().map(|one| one.memory_mib).sum::<u64>();
        }
        slices.into_values().collect()
    }

    fn pace(&mut self, felt: &[(String, f64)]) {
        for (place, lane) in &self.lanes {
            let Some(state) = lane.status().state else {
                self.neighbours.forget(place);
                continue;
            };
            let factor = felt.iter().find(|(uuid, _)| state.device.as_ref() == Some(uuid));
            if let Some(factor) = factor.and_then(|(_, new)| self.neighbours.news(place, *new)) {
                lane.order(Order::Pace { factor });
            }
        }
    }

    pub(super) fn not_cut(&mut self, error: String, now: Instant) {
        if self.uncut.as_ref() != Some(&error) {
            tracing::warn!(gpu = self.index, error, "GPU reshape failed; retrying");
        }
        self.uncut = Some(error);
        self.reshape.get_or_insert_with(|| Retry::new(now));
    }

    pub(super) fn world(&mut self, now: Instant) -> GpuWorld {
        let mut world = GpuWorld::default();
        for (place, lane) in &self.lanes {
            world.lanes.insert(place.clone(), seen(lane, &mut self.loads, now));
        }
        for (position, rank) in &self.ranks {
            let seen = RankSeen { name: rank.name(), over: rank.is_over() };
            world.ranks.insert(position.clone(), seen);
        }
        if let Some(survey) = &self.seen.survey {
            world.can_reshape = can_reshape(survey);
            for slice in &survey.slices {
                match (position(survey, slice), slice.usable()) {
                    (Some(position), Some(_)) => {
                        world.slices.insert(position, report::memory_mib(slice));
                    }
                    (Some(_) | None, _) => world.has_debris = true,
                }
            }
        }
        world
    }

    pub(super) fn identity(&self, place: &Place) -> Option<Identity> {
        let survey = self.seen.survey.as_ref()?;
        let (wanted, lane) = place;
        let at = |slice: &&Slice| position(survey, slice).as_ref() == Some(wanted);
        let slice = survey.slices.iter().find(at)?;
        Some(Identity {
            seat: ExecutorId { gpu: self.index, position: wanted.clone(), lane: *lane },
            slice: report::label(self.index, slice),
            device: Some(slice.usable()?.uuid.clone()),
        })
    }
}

pub(super) fn can_reshape(survey: &Survey) -> bool {
    why_not(survey).is_none()
}

/// Why the worker may not cut it, if it may not.
pub(super) fn why_not(survey: &Survey) -> Option<GpuError> {
    let gpu = survey.uuid.clone();
    match survey.mode {
        Mode::Unsupported => Some(GpuError::MigUnsupported { gpu }),
        Mode::Off => Some(GpuError::MigOff { gpu }),
        Mode::On if survey.kind.is_none() => {
            Some(GpuError::UnknownKind { gpu, name: survey.name.clone() })
        }
        Mode::On if !survey.privileged => {
            Some(GpuError::NoPermission { call: "nvmlDeviceGetGpuInstances" })
        }
        Mode::On => None,
    }
}

/// What a slice is called in wishes; absent if it is not of the MIG table.
pub(super) fn position(survey: &Survey, slice: &Slice) -> Option<String> {
    match survey.mode {
        Mode::Unsupported | Mode::Off => Some(WHOLE.to_owned()),
        Mode::On => slice.position.map(|position| position.to_string()),
    }
}

/// A lane as it is, and of each replica that failed whether it is time to try it again.
fn seen(lane: &Lane, loads: &mut BTreeMap<u32, Retry>, now: Instant) -> LaneSeen {
    let status = lane.status();
    let phase = match &status.state {
        _ if lane.is_stopping() => LanePhase::Stopping,
        Some(_) => LanePhase::Up,
        None => LanePhase::Starting,
    };
    let loaded = status.state.iter().flat_map(|state| &state.replicas).map(|replica| {
        let id = replica.replica;
        let phase = match replica.state {
            ReplicaState::Starting | ReplicaState::Loading | ReplicaState::Warming { .. } => {
                Phase::Alive
            }
            ReplicaState::Ready(_) => {
                loads.remove(&id);
                Phase::Alive
            }
            ReplicaState::Draining => Phase::Draining,
            ReplicaState::Failed { .. } => {
                let retry = loads.entry(id).or_insert_with(|| Retry::new(now));
                Phase::Failed { due: retry.is_due(now) }
            }
        };
        let (digest, memory_mib) = (replica.digest, replica.memory_mib);
        (id, Loaded { digest, memory_mib, phase })
    });
    let mut replicas: BTreeMap<u32, Loaded> = loaded.collect();
    for (id, digest) in lane.crashes().given_up() {
        let phase = Phase::Failed { due: false };
        replicas.entry(id).or_insert(Loaded { digest, memory_mib: 0, phase });
    }
    LaneSeen { phase, replicas }
}
