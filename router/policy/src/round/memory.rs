//! What a round passes on to the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{
    KeptDemand, KeptSpeeds, World,
    asked::{AskedProcess, AskedReplica},
    demands::Demands,
    neighbours::Neighbours,
    planning::{Aimed, Plan},
    speeds::Speeds,
    throttle::Throttles,
};
use crate::{
    demand::Day,
    fleet::{GpuId, SliceId},
    interference::Corrected,
    loan::{Account, History},
    moment::Moment,
    place::{Leaving, State},
};

#[derive(Clone, Debug)]
pub struct Memory {
    /// Of placement.
    pub place: PlaceMemory,
    /// Of loans; what could not be committed is not remembered.
    pub loans: LoanMemory,
}

#[derive(Clone, Debug)]
pub struct PlaceMemory {
    /// By worker, what was asked of it.
    pub(super) asked: BTreeMap<String, Vec<AskedProcess>>,
    pub(super) numbered: u64,
    /// How GPUs shall be cut, where the router decided it.
    pub(super) cuts: BTreeMap<GpuId, Vec<String>>,
    pub(super) demands: Demands,
    pub(super) speeds: Speeds,
    pub(super) neighbours: Neighbours,
    /// When each replica that is not ready yet was asked for.
    pub(super) awaited: BTreeMap<u64, Moment>,
    pub(super) target: Vec<Aimed>,
    pub(super) leaving: Vec<Leaving>,
    pub(super) moved_at: Moment,
    pub(super) looked_at: Moment,
    pub(super) plan: Option<Arc<Plan>>,
    pub(super) unplaced: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub struct LoanMemory {
    /// Nothing was heard of any rank before.
    pub(super) began: Moment,
    pub(super) settled: Moment,
    pub(super) heard: BTreeMap<SliceId, Moment>,
    /// Slices that were called back and that inference has not taken yet, and until when they are
    /// not lent again.
    pub(super) called_back: BTreeMap<SliceId, Moment>,
    pub(super) history: History,
    pub(super) throttles: Throttles,
    pub(super) accounts: BTreeMap<String, Account>,
}

impl Memory {
    /// Nothing, at `now`, but what tenants have had and deserved.
    pub fn new(now: Moment, accounts: BTreeMap<String, Account>) -> Self {
        Self {
            place: PlaceMemory {
                asked: BTreeMap::new(),
                numbered: 0,
                cuts: BTreeMap::new(),
                demands: Demands::default(),
                speeds: Speeds::default(),
                neighbours: Neighbours::new(now),
                awaited: BTreeMap::new(),
                target: Vec::new(),
                leaving: Vec::new(),
                moved_at: now,
                looked_at: now,
                plan: None,
                unplaced: BTreeSet::new(),
            },
            loans: LoanMemory {
                began: now,
                settled: now,
                heard: BTreeMap::new(),
                called_back: BTreeMap::new(),
                history: History::default(),
                throttles: Throttles::default(),
                accounts,
            },
        }
    }
}

impl LoanMemory {
    pub fn accounts(&self) -> &BTreeMap<String, Account> {
        &self.accounts
    }
}

impl PlaceMemory {
    /// By worker, every process that was asked for.
    pub fn asked(&self) -> &BTreeMap<String, Vec<AskedProcess>> {
        &self.asked
    }

    pub fn lessons(&self) -> u64 {
        self.speeds.count()
    }

    pub fn kept_demand(&self, model: &str, day: Day) -> KeptDemand {
        self.demands.kept(model, day)
    }

    pub fn kept_speeds(&self, model: &str) -> Vec<KeptSpeeds> {
        self.speeds.kept(model)
    }

    /// How slowdowns differ from what is predicted, by the models' indexes.
    pub fn corrections(&self, now: Moment) -> Vec<Corrected> {
        self.neighbours.corrections(now)
    }

    /// Takes up what was kept of a model's demand so long ago.
    pub fn recall_demand(&mut self, model: &str, kept: KeptDemand, away: Duration, day: Day) {
        self.demands.recall(model, kept, (away, day));
    }

    pub fn recall_speeds(&mut self, model: &str, kept: &[KeptSpeeds]) {
        self.speeds.recall(model, kept);
    }

    /// Takes up what was kept of slowdowns so long ago.
    pub fn recall_corrections(&mut self, kept: &[Corrected], away: Duration, now: Moment) {
        self.neighbours.recall(kept, away, now);
    }

    /// Begins with what a worker says it has, and forgets those that are gone.
    pub(super) fn meet(&mut self, world: &World) {
        let known = |name: &str| world.workers.iter().any(|worker| worker.name == name);
        self.asked.retain(|name, _| known(name));
        self.cuts.retain(|gpu, _| known(&gpu.worker));
        for worker in &world.workers {
            self.speeds.learn(worker);
            if !self.asked.contains_key(&worker.name) {
                let found = super::asked::found(worker, &mut self.numbered);
                self.asked.insert(worker.name.clone(), found);
            }
        }
    }

    /// Learns how long it takes from asking for a replica until it is ready.
    pub(super) fn time_loads(&mut self, world: &World, replicas: &BTreeMap<u64, AskedReplica>) {
        self.awaited.retain(|id, _| replicas.contains_key(id));
        for (id, AskedReplica { replica, .. }) in replicas {
            match replica.state {
                State::Starting => {
                    self.awaited.entry(*id).or_insert(world.now);
                }
                State::Ready => {
                    if let (Some(since), Some(model)) = (self.awaited.remove(id), replica.model) {
                        self.demands.loaded(&world.models[model].name, world.now.since(since));
                    }
                }
                State::Draining | State::Failed => {}
            }
        }
    }
}
