//! What is told of one GPU.

use std::collections::BTreeMap;

use protocol::{
    GpuReport, LaneReport, RankReport, ReplicaReport, ReplicaState, SliceReport, WHOLE, XidReport,
};

use super::{
    gpu::Keeper,
    lane::Status,
    observe::{can_reshape, position, why_not},
    rank::Rank,
};
use crate::{
    gpu::{Mode, Slice, Survey},
    reconcile::Place,
};

const MIB: u64 = 1 << 20;

pub(super) fn of(keeper: &Keeper) -> GpuReport {
    let seen = &keeper.seen;
    let survey = seen.survey.as_ref();
    let unread = seen.problem.as_ref().map(ToString::to_string);
    let uncuttable = || {
        let pinned = keeper.settings.pinned.is_some();
        survey.filter(|_| pinned).and_then(why_not).map(|why| why.to_string())
    };
    let xids = seen.xids.iter();
    GpuReport {
        index: keeper.index,
        source: keeper.settings.source.clone(),
        kind: survey.and_then(|survey| survey.kind).map(|kind| kind.name.clone()),
        uuid: survey.map(|survey| survey.uuid.clone()),
        mode: survey.map(|survey| mode(survey.mode)),
        can_reshape: survey.is_some_and(can_reshape),
        pinned: keeper.settings.pinned.clone(),
        problem: unread.or_else(|| keeper.uncut.clone()).or_else(uncuttable),
        xids: xids.map(|x| XidReport { code: x.code, gpu_instance: x.gpu_instance }).collect(),
        ecc: seen.sample.ecc.map(|ecc| (ecc.corrected, ecc.uncorrected)),
        memory_bytes: survey
            .and_then(|survey| survey.memory)
            .map(|memory| (memory.total_bytes, memory.used_bytes)),
        power_milliwatts: seen.sample.power_milliwatts,
        clock_mhz: seen.sample.clock_mhz,
        temperature_celsius: seen.sample.temperature_celsius,
        slices: survey.map(|survey| slices(keeper, survey)).unwrap_or_default(),
    }
}

fn mode(mode: Mode) -> protocol::Mode {
    match mode {
        Mode::Unsupported => protocol::Mode::Unsupported,
        Mode::Off => protocol::Mode::Off,
        Mode::On => protocol::Mode::On,
    }
}

pub(super) fn label(gpu: u32, slice: &Slice) -> String {
    match slice.position {
        Some(position) => mig::slice_label(gpu as usize, position),
        None => mig::device_label(gpu, None),
    }
}

pub(super) fn memory_mib(slice: &Slice) -> Option<u64> {
    let told = slice.usable().and_then(|compute| compute.memory);
    let table = |gib: f64| (gib * 1_024.0) as u64;
    told.map(|memory| memory.total_bytes / MIB)
        .or_else(|| slice.position.map(|position| table(position.profile().memory_gib)))
}

fn slices(keeper: &Keeper, survey: &Survey) -> Vec<SliceReport> {
    let lanes: BTreeMap<&Place, Status> =
        keeper.lanes.iter().map(|(place, lane)| (place, lane.status())).collect();
    let told = survey.slices.iter().filter_map(|slice| {
        let position = position(survey, slice)?;
        let mine = lanes.iter().filter(|((at, _), _)| *at == position);
        let whole = survey.kind.map(|kind| kind.whole().profile().name.clone());
        let profile = if position == WHOLE { whole } else { None };
        Some(SliceReport {
            slice: label(keeper.index, slice),
            profile: profile.unwrap_or_else(|| slice.profile.clone()),
            uuid: slice.usable().map(|compute| compute.uuid.clone()),
            memory_bytes: memory_mib(slice).map(|mib| mib * MIB),
            lanes: mine.clone().map(|((_, lane), status)| of_lane(*lane, status)).collect(),
            replicas: replicas(keeper, &position, &mine),
            rank: rank(keeper, &position),
            position,
        })
    });
    told.collect()
}

fn rank(keeper: &Keeper, position: &str) -> Option<RankReport> {
    let there = keeper.ranks.get(position).map(Rank::report);
    there.or_else(|| {
        let spec = &keeper.task.as_ref()?.ranks.get(position)?.spec;
        let (job, run, rank) = (spec.job, spec.run, spec.rank);
        Some(RankReport { job, run, rank, ..RankReport::default() })
    })
}

fn of_lane(lane: u32, status: &Status) -> LaneReport {
    let busy_us = status.state.as_ref().map_or(0, |state| state.busy_us);
    let Status { pid, restarts, aged, .. } = *status;
    LaneReport { lane, pid, restarts, busy_us, aged }
}

/// What the executors have, and what they should have and have not.
fn replicas<'l>(
    keeper: &Keeper,
    position: &str,
    lanes: &(impl Iterator<Item = (&'l &'l Place, &'l Status)> + Clone),
) -> Vec<ReplicaReport> {
    let mut told: BTreeMap<u32, ReplicaReport> = BTreeMap::new();
    let wanted = |id: u32| keeper.task.as_ref().and_then(|task| task.replicas.get(&id));
    for ((_, lane), status) in lanes.clone() {
        for loaded in status.state.iter().flat_map(|state| &state.replicas) {
            let replica = ReplicaReport {
                replica: loaded.replica,
                model: loaded.model.clone(),
                version: loaded.version.clone(),
                digest: loaded.digest,
                lane: *lane,
                serves: wanted(loaded.replica).is_some_and(|wanted| wanted.serves),
                state: loaded.state.clone(),
            };
            told.insert(loaded.replica, replica);
        }
    }
    let wishes = keeper.task.iter().flat_map(|task| &task.wish.replicas);
    for (id, wish) in wishes.filter(|(_, wish)| wish.place.0 == position) {
        let (Some(task), None) = (wanted(*id), told.get(id)) else { continue };
        let Some(spec) = &task.spec else { continue };
        let trouble = lanes
            .clone()
            .find(|(place, _)| **place == &wish.place)
            .and_then(|(_, status)| status.trouble.clone());
        let failed = |reason, crashed| ReplicaState::Failed { reason, crashed };
        let given_up = keeper.lanes.get(&wish.place).and_then(|lane| lane.crashes().why(*id));
        let state = match (keeper.next.refused.get(id).cloned().or(given_up), trouble) {
            (Some(refused), _) => failed(refused, false),
            (None, Some(trouble)) => failed(trouble, true),
            (None, None) => ReplicaState::Starting,
        };
        let replica = ReplicaReport {
            replica: *id,
            model: spec.name.clone(),
            version: spec.version.clone(),
            digest: task.digest,
            lane: task.lane,
            serves: task.serves,
            state,
        };
        told.insert(*id, replica);
    }
    told.into_values().collect()
}
