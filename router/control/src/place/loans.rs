//! What placing and lending tell each other.

use std::collections::BTreeSet;

use config::Config;
use policy::{
    fleet::SliceId,
    loan::has_room,
    place::{Decision, Snapshot, Target, room},
};

use super::{Placer, world::World};
use crate::{
    control::Control,
    jobs::{Record, profile_compute},
    ledger::{Needs, Wanted},
    lend::memory_mib,
};

/// Compute slices that a GPU has at the most.
const SEVENTHS: u32 = 7;
/// Cut for a job that names no profile and is content with any memory.
const SMALLEST: u8 = 1;

impl Placer {
    /// The slices that have replicas, or shall, or shall vanish.
    pub(super) fn served(&self, world: &World) -> BTreeSet<SliceId> {
        let mut served = world.vanishing();
        for (worker, assignment) in &self.assignments {
            served.extend(assignment.replicas.iter().map(|one| SliceId {
                worker: worker.clone(),
                gpu: one.gpu,
                position: one.position.clone(),
            }));
        }
        served
    }

    /// Cuts slices for jobs that wait for want of them.
    pub(super) fn cut_for_jobs(
        &mut self,
        control: &Control,
        config: &Config,
        (world, snapshot): (&mut World, &Snapshot),
        target: &Target,
    ) {
        if config.loans.as_ref().is_none_or(|loans| loans.allow.is_empty()) {
            return;
        }
        let waiting = control.jobs().unfinished();
        let mut taken = BTreeSet::new();
        let mut after = snapshot.clone();
        for record in waiting.iter().filter(|record| record.life.state.waits()) {
            let free = self.free(world, record, &mut taken);
            if free >= record.spec.slices_min {
                continue;
            }
            // What was found for a job is not cut for one as well.
            for (site, gpu) in world.sites.iter().zip(&mut after.gpus) {
                for spot in site.slices.iter().filter(|spot| taken.contains(&site.seat(spot))) {
                    let there = gpu.slices.iter_mut().filter(|one| one.position == spot.position);
                    there.for_each(|slice| slice.loaned = true);
                }
            }
            for _ in free..record.spec.slices_min {
                let Some(found) = profiles(&after, record)
                    .into_iter()
                    .find_map(|profile| room(&after, target, &profile))
                else {
                    break;
                };
                let site = &mut world.sites[found.gpu];
                let positions = site.cut(&found.destroy, &[found.create]);
                let (worker, gpu) = &site.key;
                tracing::info!(worker, gpu, ?positions, job = record.id, "GPU is cut for a job");
                self.cuts.insert(site.key.clone(), positions);
                // Whoever comes next finds it taken.
                let slices = &mut after.gpus[found.gpu].slices;
                slices.retain(|slice| !found.destroy.contains(&slice.position));
                slices.push(policy::place::Slice {
                    position: found.create,
                    loaned: true,
                    doomed: false,
                    replicas: Vec::new(),
                });
            }
        }
    }

    /// How many slices there are for a job that nobody has, or has been found for before.
    fn free(&self, world: &World, record: &Record, taken: &mut BTreeSet<SliceId>) -> u32 {
        let served = self.served(world);
        let asks = record.spec.profile.as_deref().and_then(profile_compute).unwrap_or(SMALLEST);
        let mut free = 0;
        for site in world.sites.iter().filter(|site| site.open) {
            for spot in site.slices.iter().filter(|spot| !spot.lent && !spot.doomed) {
                let profile = spot.position.profile();
                let has_room = has_room(memory_mib(profile), record.spec.memory_mib);
                let fits = profile.compute_slices >= asks && has_room;
                let seat = site.seat(spot);
                let enough = free >= record.spec.slices_min;
                if fits && !enough && !served.contains(&seat) && taken.insert(seat) {
                    free += 1;
                }
            }
        }
        free
    }
}

/// The profile a job asks for, or those with memory for it, smallest first.
fn profiles(snapshot: &Snapshot, record: &Record) -> Vec<String> {
    if let Some(profile) = &record.spec.profile {
        return vec![profile.clone()];
    }
    let mut found: Vec<(u8, String)> = Vec::new();
    for gpu in snapshot.gpus.iter().filter(|gpu| gpu.cuttable) {
        for profile in gpu.kind.profiles.iter().filter(|profile| !profile.media) {
            let fits = has_room(memory_mib(profile), record.spec.memory_mib);
            if fits && !found.iter().any(|(_, name)| *name == profile.name) {
                found.push((profile.memory_slices, profile.name.clone()));
            }
        }
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
}

/// What inference needs of the slices that are lent.
pub(super) fn needs(
    decision: &Decision,
    back: &[(usize, mig::Position)],
    (world, snapshot): (&World, &Snapshot),
    losing: impl Fn(usize) -> bool,
) -> Needs {
    // Requests are lost already, so that the usual notice is too long.
    let urgent = decision.refusals.iter().filter_map(|refusal| refusal.model).any(losing);
    let seat = |(gpu, position): &(usize, mig::Position)| {
        let site = &world.sites[*gpu];
        site.slices.iter().find(|spot| spot.position == *position).map(|spot| site.seat(spot))
    };
    let mut wanted: Vec<Wanted> = back
        .iter()
        .filter_map(seat)
        .map(|seat| Wanted { seats: vec![seat], count: 1, urgent })
        .collect();
    for site in &world.sites {
        let vanishing = site.slices.iter().filter(|spot| spot.lent && (spot.doomed || !site.open));
        wanted.extend(vanishing.map(|spot| Wanted {
            seats: vec![site.seat(spot)],
            count: 1,
            urgent: false,
        }));
    }
    let reserve = snapshot.rules.spare_gpus * SEVENTHS;
    Needs { wanted, reserve, ..Needs::default() }
}
