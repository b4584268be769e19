//! Room beside others: for the next edition of a replica, and for models that no slice of their own
//! is left for.

use mig::Position;

use super::{Gpu, Placed, Replica, Slice, Target, situation::Situation};

const MIB_PER_GIB: f64 = 1024.0;

pub(super) struct SharedSlice {
    gpu: usize,
    position: Position,
    pub(super) count: u32,
    pub(super) free_mib: f64,
    /// Whether somebody is across it who must go first.
    blocked: bool,
}

impl Situation<'_> {
    /// Replicas that take the place of those of an earlier edition, on the same slices, for as long as
    /// their model lacks some and there is memory for both.
    pub(super) fn succeed(&self, target: &mut Target) {
        for index in self.short(target) {
            let mine = self.outdated(index);
            for (gpu, slice, old) in mine {
                let slice = self.shared(target, gpu, slice.position);
                let needed_mib = self.memory_mib(index) * f64::from(old.processes);
                let fits = slice.free_mib >= needed_mib;
                if !self.short(target).contains(&index) || !fits {
                    continue;
                }
                target.placed.push(Placed {
                    gpu,
                    position: slice.position,
                    model: index,
                    replica: None,
                    batch: 0,
                    processes: old.processes,
                    capacity_rps: self.alone_rps(index, gpu, slice.position),
                    serves_rps: 0.0,
                    pinned: false,
                    why: "its model or its executor has a new revision".to_owned(),
                });
            }
        }
    }

    /// The slices that stay and have a replica of an earlier edition, and that.
    fn outdated(&self, index: usize) -> Vec<(usize, &Slice, &Replica)> {
        let mut found = Vec::new();
        let home = self.models[index].home;
        let open = |on: &Gpu| on.healthy && home.suits(on.kind);
        for (gpu, on) in self.snapshot.gpus.iter().enumerate().filter(|(_, on)| open(on)) {
            for slice in on.slices.iter().filter(|slice| !slice.doomed && !slice.loaned) {
                let old =
                    slice.replicas.iter().find(|one| one.model == Some(index) && !one.current);
                found.extend(old.map(|one| (gpu, slice, one)));
            }
        }
        found
    }

    /// Puts a model beside others until it has its least replicas or there is no memory for more.
    pub(super) fn crowd(&self, target: &mut Target, index: usize) {
        let least = self.models[index].replicas_min.max(1);
        while target.held(self.models.len())[index].1 < least {
            let Ok(placed) = self.beside(target, index) else { return };
            target.placed.push(placed);
        }
    }

    /// A place for a model on a slice that others have: where they are fewest, and then the first. Or
    /// the most memory that any slice has left.
    pub(super) fn beside(&self, target: &Target, index: usize) -> Result<Placed, f64> {
        let needed_mib = self.memory_mib(index);
        let mut best: Option<SharedSlice> = None;
        let mut most_free_mib = 0.0_f64;
        for slice in self.shareable(target, index) {
            most_free_mib = most_free_mib.max(slice.free_mib);
            let rank = |slice: &SharedSlice| (slice.blocked, slice.count);
            let fewer = best.as_ref().is_none_or(|best| rank(&slice) < rank(best));
            if slice.free_mib >= needed_mib && fewer {
                best = Some(slice);
            }
        }
        let SharedSlice { gpu, position, count, .. } = best.ok_or(most_free_mib)?;
        let capacity_rps = self.alone_rps(index, gpu, position) / f64::from(count + 1);
        Ok(Placed {
            gpu,
            position,
            model: index,
            replica: None,
            batch: 0,
            processes: 1,
            capacity_rps,
            serves_rps: capacity_rps,
            pinned: false,
            why: format!("no free slice is left; it shares this one with {count} others"),
        })
    }

    /// Every slice that may be shared with a model and does not hold it already.
    fn shareable(&self, target: &Target, index: usize) -> Vec<SharedSlice> {
        let mut slices = Vec::new();
        let home = self.models[index].home;
        let open = |on: &Gpu| on.healthy && home.suits(on.kind);
        for (gpu, on) in self.snapshot.gpus.iter().enumerate().filter(|(_, on)| open(on)) {
            let here = || target.placed.iter().filter(move |one| one.gpu == gpu);
            let whole = on.slices.is_empty() && on.cuttable && here().next().is_none();
            let usable = |slice: &&Slice| !slice.loaned && !slice.doomed;
            let there = on.slices.iter().filter(usable).map(|slice| slice.position);
            let planned = here().map(|one| one.position);
            let mut positions: Vec<Position> =
                there.chain(planned).chain(whole.then(|| on.kind.whole())).collect();
            positions.sort_by_key(|position| position.start());
            positions.dedup();
            // What the target makes of the GPU counts, not what it is cut into now.
            let cut_away = |position: &Position| {
                here().any(|one| one.position != *position && one.position.overlaps(*position))
            };
            let holds = |position: &Position| {
                here().any(|one| one.position == *position && one.model == index)
            };
            let open = positions.into_iter().filter(|position| !cut_away(position));
            slices.extend(
                open.filter(|position| !holds(position))
                    .map(|position| self.shared(target, gpu, position)),
            );
        }
        slices
    }

    pub(super) fn shared(&self, target: &Target, gpu: usize, position: Position) -> SharedSlice {
        let here = target.placed.iter().filter(|one| one.gpu == gpu && one.position == position);
        let free_mib = position.profile().memory_gib * MIB_PER_GIB;
        let across = |slice: &Slice| {
            slice.position != position
                && slice.position.overlaps(position)
                && !slice.replicas.is_empty()
        };
        let blocked = self.snapshot.gpus[gpu].slices.iter().any(across);
        let mut slice = SharedSlice { gpu, position, count: 0, free_mib, blocked };
        for one in here {
            slice.count += 1;
            slice.free_mib -= self.memory_mib(one.model) * f64::from(one.processes);
        }
        slice
    }

    /// What one process of a model needs; nothing is known to be too little.
    pub(super) fn memory_mib(&self, index: usize) -> f64 {
        self.models[index].memory_mib.map_or(0.0, |stated| stated as f64)
    }
}
