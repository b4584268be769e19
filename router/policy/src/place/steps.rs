//! In which order to get from what is to what shall be.
//!
//! The way is walked in advance, stage by stage: what is started in one is ready in the next, what is
//! stopped is gone. In every stage all starts are made for which there is room and that leave enough
//! to those they share a slice with, and all stops without which enough is still ready. If neither is
//! possible, what would be missed least makes way.

use std::collections::BTreeMap;

use mig::Position;

use super::{Action, Leaving, Placed, Snapshot, State, Step, Target};

/// A replica on the way.
#[derive(Clone, Debug)]
struct Walker {
    position: Position,
    model: Option<usize>,
    replica: Option<u64>,
    capacity_rps: f64,
    /// What it serves once its slice is as it shall be.
    settled_rps: f64,
    busy: f64,
    ready: bool,
    processes: u32,
    /// Of an earlier edition.
    outdated: bool,
    stays: bool,
    gone: bool,
}

/// The fleet while it changes.
struct Walk<'a> {
    snapshot: &'a Snapshot,
    leaving: BTreeMap<u64, &'a Leaving>,
    walkers: Vec<Vec<Walker>>,
    /// Slices that are there, by GPU.
    slices: Vec<Vec<Position>>,
    pending: Vec<&'a Placed>,
    /// What of each model must stay ready, in requests per second and in replicas: its demand and its
    /// least, or what the target has if that is less.
    wanted: Vec<(f64, u32)>,
    steps: Vec<Step>,
    stage: u32,
}

pub(super) fn steps(snapshot: &Snapshot, target: &Target) -> Vec<Step> {
    let mut walk = Walk::new(snapshot, target);
    let most = walk.pending.len() + walk.all().count() + 1;
    for stage in 0..most as u32 {
        walk.stage = stage;
        let started = walk.start(false);
        let stopped = walk.stop();
        if walk.is_done() {
            break;
        }
        let waiting = walk.all().any(|one| one.gone || (one.stays && !one.ready));
        if !(started || stopped || waiting || walk.make_way() || walk.start(true)) {
            break;
        }
        walk.settle();
    }
    walk.steps
}

impl<'a> Walk<'a> {
    fn new(snapshot: &'a Snapshot, target: &'a Target) -> Self {
        let placed: BTreeMap<u64, &Placed> =
            target.placed.iter().filter_map(|one| Some((one.replica?, one))).collect();
        let leaving: BTreeMap<u64, &Leaving> =
            target.leaving.iter().map(|one| (one.replica, one)).collect();
        let mut walkers = vec![Vec::new(); snapshot.gpus.len()];
        for (gpu, on) in snapshot.gpus.iter().enumerate() {
            for slice in &on.slices {
                for one in &slice.replicas {
                    let stays = placed.get(&one.id);
                    let leaves_rps = leaving.get(&one.id).map_or(0.0, |known| known.serves_rps);
                    walkers[gpu].push(Walker {
                        position: slice.position,
                        model: one.model,
                        replica: Some(one.id),
                        capacity_rps: stays.map_or(leaves_rps, |known| known.serves_rps),
                        settled_rps: stays.map_or(0.0, |known| known.capacity_rps),
                        busy: one.busy,
                        ready: one.state == State::Ready,
                        processes: one.processes,
                        outdated: !one.current,
                        stays: stays.is_some(),
                        gone: one.state == State::Draining,
                    });
                }
            }
        }
        let slices = snapshot
            .gpus
            .iter()
            .map(|gpu| gpu.slices.iter().map(|slice| slice.position).collect())
            .collect();
        let pending = target.placed.iter().filter(|one| one.replica.is_none()).collect();
        let mut wanted = target.held(snapshot.models.len());
        for ((wanted_rps, count), model) in wanted.iter_mut().zip(&snapshot.models) {
            *wanted_rps = model.demand_rps.min(*wanted_rps);
            *count = model.replicas_min.min(*count);
        }
        let steps = Vec::new();
        Self { snapshot, leaving, walkers, slices, pending, wanted, steps, stage: 0 }
    }

    fn all(&self) -> impl Iterator<Item = &Walker> {
        self.walkers.iter().flatten()
    }

    fn is_done(&self) -> bool {
        self.pending.is_empty() && self.all().all(|one| one.stays || one.gone)
    }

    /// Starts all for which there is room, or with `squeeze` the first for which there would be if it
    /// left enough to others; says whether there were any.
    fn start(&mut self, squeeze: bool) -> bool {
        let mut cuts: BTreeMap<usize, (Vec<Position>, Vec<Position>)> = BTreeMap::new();
        let mut started: Vec<&Placed> = Vec::new();
        let mut ready_rps = self.ready_rps();
        let pending = std::mem::take(&mut self.pending);
        for placed in pending {
            let blocked = self.blockers(placed).next().is_some();
            let forced = squeeze && started.is_empty();
            if blocked || !(self.share(placed, &mut ready_rps) || forced) {
                self.pending.push(placed);
                continue;
            }
            self.settle_slice(placed.gpu, placed.position);
            let slices = &mut self.slices[placed.gpu];
            if !slices.contains(&placed.position) {
                let (destroy, create) = cuts.entry(placed.gpu).or_default();
                let overlaps = |one: &Position| one.overlaps(placed.position);
                destroy.extend(slices.iter().copied().filter(overlaps));
                slices.retain(|one| !overlaps(one));
                slices.push(placed.position);
                create.push(placed.position);
            }
            started.push(placed);
            self.walkers[placed.gpu].push(Walker {
                position: placed.position,
                model: Some(placed.model),
                replica: None,
                capacity_rps: placed.capacity_rps,
                settled_rps: placed.capacity_rps,
                busy: 0.0,
                ready: false,
                processes: placed.processes,
                outdated: false,
                stays: true,
                gone: false,
            });
        }
        for (gpu, (destroy, create)) in cuts {
            let why = "slices that nobody is on make room for those that are wanted".to_owned();
            self.step(Action::Cut { gpu, destroy, create }, why);
        }
        let any = !started.is_empty();
        for placed in started {
            let action = Action::Start {
                gpu: placed.gpu,
                position: placed.position,
                model: placed.model,
                batch: placed.batch,
                processes: placed.processes,
                capacity_rps: placed.capacity_rps,
            };
            self.step(action, placed.why.clone());
        }
        any
    }

    /// Who must be gone before a replica can be started: those that leave, on or across its slice.
    fn blockers(&self, placed: &'a Placed) -> impl Iterator<Item = usize> {
        let in_the_way = move |one: &Walker| {
            if one.position == placed.position {
                !(one.stays || one.outdated && self.holds_both(placed))
            } else {
                one.position.overlaps(placed.position)
            }
        };
        let on_gpu = self.walkers[placed.gpu].iter().enumerate();
        on_gpu.filter(move |(_, one)| in_the_way(one)).map(|(index, _)| index)
    }

    /// Whether a slice has memory for a replica beside all that are on it now.
    fn holds_both(&self, placed: &Placed) -> bool {
        let memory_mib = |model: usize| {
            self.snapshot.models[model].memory_mib.map_or(0.0, |stated| stated as f64)
        };
        let here = self.walkers[placed.gpu].iter().filter(|one| one.position == placed.position);
        let taken_mib: f64 =
            here.filter_map(|one| Some(memory_mib(one.model?) * f64::from(one.processes))).sum();
        let more_mib = memory_mib(placed.model) * f64::from(placed.processes);
        taken_mib + more_mib <= placed.position.profile().memory_gib * 1024.0
    }

    /// Requests per second of each model that can be served at this stage.
    fn ready_rps(&self) -> Vec<f64> {
        let mut ready_rps = vec![0.0; self.snapshot.models.len()];
        for one in self.all().filter(|one| one.ready && !one.gone) {
            if let Some(model) = one.model {
                ready_rps[model] += one.capacity_rps;
            }
        }
        ready_rps
    }

    /// Whether those on the slice can do with less; if so, that is taken from what is ready.
    fn share(&self, placed: &Placed, ready_rps: &mut [f64]) -> bool {
        let on_gpu = self.walkers[placed.gpu].iter();
        let losers = on_gpu.filter(|one| {
            let serves = one.ready && !one.gone && one.settled_rps < one.capacity_rps;
            one.position == placed.position && serves
        });
        let lost: Vec<(usize, f64)> = losers
            .filter_map(|one| Some((one.model?, one.capacity_rps - one.settled_rps)))
            .collect();
        let enough = lost
            .iter()
            .all(|(model, lost_rps)| ready_rps[*model] - lost_rps >= self.enough_rps(*model));
        for (model, lost_rps) in lost.into_iter().filter(|_| enough) {
            ready_rps[model] -= lost_rps;
        }
        enough
    }

    /// From now on, those on the slice serve no more than they shall in the end.
    fn settle_slice(&mut self, gpu: usize, position: Position) {
        for one in self.walkers[gpu].iter_mut().filter(|one| one.position == position) {
            one.capacity_rps = one.settled_rps.min(one.capacity_rps);
        }
    }

    fn enough_rps(&self, model: usize) -> f64 {
        self.wanted[model].0 * (1.0 - 1e-9)
    }

    fn stop(&mut self) -> bool {
        let mut ready_rps = self.ready_rps();
        let mut ready = vec![0_u32; self.snapshot.models.len()];
        for model in self.all().filter(|one| one.ready && !one.gone).filter_map(|one| one.model) {
            ready[model] += 1;
        }
        let mut order: Vec<(usize, usize)> = Vec::new();
        for (gpu, walkers) in self.walkers.iter().enumerate() {
            let leaving = |index: &usize| !walkers[*index].stays && !walkers[*index].gone;
            order.extend((0..walkers.len()).filter(leaving).map(|index| (gpu, index)));
        }
        order.sort_by(|a, b| {
            let (a, b) = (&self.walkers[a.0][a.1], &self.walkers[b.0][b.1]);
            a.ready.cmp(&b.ready).then(a.busy.total_cmp(&b.busy)).then(b.replica.cmp(&a.replica))
        });
        let mut any = false;
        for at in order {
            let one = &self.walkers[at.0][at.1];
            let serving = one.model.filter(|_| one.ready);
            if let Some(model) = serving {
                let left_rps = ready_rps[model] - one.capacity_rps + self.inherited_rps(at);
                let needed =
                    left_rps < self.enough_rps(model) || ready[model] <= self.wanted[model].1;
                if needed && !self.is_lost(at.0, model) {
                    continue;
                }
                ready_rps[model] = left_rps;
                ready[model] -= 1;
            }
            self.let_go(at, "");
            any = true;
        }
        any
    }

    /// What a ready successor on the same slice serves more once an outdated replica has left.
    fn inherited_rps(&self, (gpu, index): (usize, usize)) -> f64 {
        let old = &self.walkers[gpu][index];
        let inherits = |one: &&Walker| {
            one.stays && one.ready && one.model == old.model && one.position == old.position
        };
        let heirs = self.walkers[gpu].iter().filter(inherits).filter(|_| old.outdated);
        heirs.map(|one| (one.settled_rps - one.capacity_rps).max(0.0)).sum()
    }

    /// Whether a replica's GPU goes and nothing will take its place, so that waiting is in vain.
    fn is_lost(&self, gpu: usize, model: usize) -> bool {
        let awaited = self.pending.iter().any(|placed| placed.model == model)
            || self.all().any(|one| one.model == Some(model) && one.stays && !one.ready);
        !self.snapshot.gpus[gpu].healthy && !awaited
    }

    fn let_go(&mut self, (gpu, index): (usize, usize), also: &str) {
        let one = &mut self.walkers[gpu][index];
        one.gone = true;
        let Some(replica) = one.replica else { return };
        let why = self.leaving.get(&replica).map_or("", |known| known.why.as_str());
        let why = why.to_owned() + also;
        self.step(Action::Stop { replica }, why);
    }

    /// Lets one go that is in the way of a start, the one that is missed least; there is no room for
    /// both.
    fn make_way(&mut self) -> bool {
        let lost = |one: &Walker| match one.model {
            Some(model) => one.capacity_rps / self.snapshot.models[model].demand_rps.max(1e-9),
            None => 0.0,
        };
        let of = |at: &(usize, usize)| &self.walkers[at.0][at.1];
        let blockers = self
            .pending
            .iter()
            .flat_map(|placed| self.blockers(placed).map(|index| (placed.gpu, index)));
        let least = blockers
            .filter(|at| !of(at).stays)
            .min_by(|a, b| lost(of(a)).total_cmp(&lost(of(b))).then(a.cmp(b)));
        let Some(at) = least else { return false };
        self.let_go(at, "; it goes before its successor is ready, since there is no room for both");
        true
    }

    /// The next stage: what was started is ready, what was stopped is gone.
    fn settle(&mut self) {
        for walkers in &mut self.walkers {
            walkers.retain(|one| !one.gone);
            let leaving: Vec<Position> =
                walkers.iter().filter(|one| !one.stays).map(|one| one.position).collect();
            for one in walkers.iter_mut().filter(|one| one.stays) {
                one.ready = true;
                if !leaving.contains(&one.position) {
                    one.capacity_rps = one.capacity_rps.max(one.settled_rps);
                }
            }
        }
    }

    fn step(&mut self, action: Action, why: String) {
        self.steps.push(Step { stage: self.stage, action, why });
    }
}
