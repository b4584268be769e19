//! The task that keeps one GPU as it shall be.
//!
//! It waits for a change, reads what is, asks [`reconcile`] what to do, does it and tells. Calls to
//! the GPU block, a reshape for seconds, so they run elsewhere, one at a time; meanwhile the slices
//! that are not concerned are attended to as ever.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mig::{Geometry, MigError};
use protocol::{Desired, DesiredGpu, DesiredRank, DesiredReplica, ModelSpec, Order};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    GpuSettings, Told,
    backoff::Retry,
    lane::{Adopted, Asked, Lane, Surroundings},
    neighbours::Neighbours,
    observe::{Outcome, Seen},
    process::Identity,
    rank::{Found, Rank, RankSeat},
    report,
};
use crate::reconcile::{self, Next, Place, Step, Wanted, Wish};

/// How often a GPU is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// A wish of the router's, understood.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) generation: u64,
    pub(super) wish: Wish,
    pub(super) replicas: BTreeMap<u32, DesiredReplica>,
    /// By position.
    pub(super) ranks: BTreeMap<String, DesiredRank>,
}

pub(super) struct Left {
    pub(super) executors: Vec<Adopted>,
    pub(super) ranks: Vec<Found>,
}

pub(super) struct Keeper {
    pub(super) index: u32,
    pub(super) settings: GpuSettings,
    pub(super) seen: Seen,
    pub(super) lanes: BTreeMap<Place, Lane>,
    pub(super) ranks: BTreeMap<String, Rank>,
    /// Nothing is done before the first wish: executors may be at work that a router knows of.
    pub(super) task: Option<Task>,
    pub(super) next: Next,
    pub(super) uncut: Option<String>,
    pub(super) around: Surroundings,
    pub(super) call: Option<JoinHandle<Outcome>>,
    pub(super) neighbours: Neighbours,
    pub(super) reshape: Option<Retry>,
    pub(super) loads: BTreeMap<u32, Retry>,
    telling: Arc<watch::Sender<Vec<Option<Told>>>>,
}

impl Keeper {
    pub(super) fn new(
        index: u32,
        settings: GpuSettings,
        around: Surroundings,
        telling: Arc<watch::Sender<Vec<Option<Told>>>>,
    ) -> Self {
        Self {
            index,
            settings,
            seen: Seen::default(),
            lanes: BTreeMap::new(),
            ranks: BTreeMap::new(),
            task: None,
            next: Next::default(),
            uncut: None,
            around,
            call: None,
            neighbours: Neighbours::default(),
            reshape: None,
            loads: BTreeMap::new(),
            telling,
        }
    }

    pub(super) async fn keep(
        mut self,
        mut desired: watch::Receiver<Arc<Desired>>,
        mut asked: watch::Receiver<Asked>,
        left: Left,
    ) {
        self.look();
        let looked = self.called().await;
        self.take(looked);
        self.adopt(left.executors).await;
        for found in left.ranks {
            let rank = Rank::adopt(&found, self.around.clone());
            self.ranks.insert(found.position, rank);
        }
        self.tell();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let news = Arc::clone(&self.around.news);
        loop {
            let wakes_at = self.wakes_at();
            tokio::select! {
                changed = desired.changed() => match changed {
                    Ok(()) => {
                        let wish = Arc::clone(&desired.borrow_and_update());
                        self.understand(&wish);
                    }
                    Err(_) => break,
                },
                () = news.notified() => {}
                outcome = self.called() => self.take(outcome),
                _ = ticks.tick() => if self.call.is_none() { self.look() },
                () = sleep_until(wakes_at) => {}
                _ = asked.wait_for(|asked| *asked != Asked::Run) => break,
            }
            self.act();
            self.tell();
        }
        let how = match *asked.borrow() {
            Asked::Leave => Asked::Leave,
            Asked::Run | Asked::Stop => Asked::Stop,
        };
        if how == Asked::Leave && self.call.is_some() {
            // A reshape is not left half done.
            self.called().await;
        }
        let mut ending = JoinSet::new();
        for lane in std::mem::take(&mut self.lanes).into_values() {
            ending.spawn(lane.end(how));
        }
        // Where another worker may follow, it finds the ranks at work.
        if self.around.launch.orphan_wait.is_zero() && how == Asked::Stop {
            for rank in std::mem::take(&mut self.ranks).into_values() {
                ending.spawn(rank.end());
            }
        }
        ending.join_all().await;
    }

    async fn adopt(&mut self, adopted: Vec<Adopted>) {
        for one in adopted {
            let (seat, device) = (one.state.seat.clone(), one.state.device.clone());
            let place = (seat.position.clone(), seat.lane);
            // A GPU that cannot be read now is no proof that its slice is gone.
            let there = self.seen.survey.is_none()
                || self.identity(&place).is_some_and(|identity| identity.device == device);
            if there {
                let identity = Identity { seat, slice: one.state.slice.clone(), device };
                self.lanes.insert(place, Lane::adopt(identity, self.around.clone(), one));
            } else {
                let (gpu, pid) = (self.index, one.process.id());
                tracing::warn!(
                    gpu,
                    slice = one.state.slice,
                    pid,
                    "stopped executor: its slice no longer exists"
                );
                one.process.kill().await;
            }
        }
    }

    fn understand(&mut self, desired: &Desired) {
        let mine = desired.gpus.iter().find(|gpu| gpu.gpu == self.index);
        let (mut wish, mut replicas) = (Wish::default(), BTreeMap::new());
        let mut ranks = BTreeMap::new();
        if let Some(DesiredGpu { positions, slices, .. }) = mine {
            wish.cut = positions.as_ref().map(|all| all.iter().cloned().collect());
            for slice in slices {
                if let Some(rank) = &slice.rank {
                    wish.ranks.insert(slice.position.clone(), rank.spec.name());
                    ranks.insert(slice.position.clone(), (**rank).clone());
                }
                for replica in &slice.replicas {
                    let spec = replica.spec.as_ref();
                    let wanted = Wanted {
                        place: (slice.position.clone(), replica.lane),
                        digest: replica.digest,
                        memory_mib: spec.map_or(0, |spec| spec.memory_mib),
                    };
                    wish.replicas.insert(replica.replica, wanted);
                    replicas.insert(replica.replica, replica.clone());
                }
            }
        }
        (self.uncut, self.reshape) = (None, None);
        for lane in self.lanes.values() {
            let wished = |id: u32| wish.replicas.get(&id).map(|wanted| wanted.digest);
            lane.crashes().keep(|id, digest| wished(id) == Some(digest));
        }
        self.loads.retain(|id, _| replicas.contains_key(id));
        self.task = Some(Task { generation: desired.generation, wish, replicas, ranks });
    }

    fn act(&mut self) {
        let now = Instant::now();
        self.lanes.retain(|_, lane| !lane.is_over());
        if self.seen.survey.is_none() {
            return;
        }
        let world = self.world(now);
        self.want();
        let Some(task) = &self.task else { return };
        self.next = reconcile::next(&task.wish, &world);
        for step in self.next.steps.clone() {
            match step {
                Step::Unload { place, replica } => {
                    self.order(&place, Order::Unload { replica });
                }
                Step::Stop { place } => {
                    if let Some(lane) = self.lanes.get(&place) {
                        lane.stop();
                    }
                }
                Step::Reshape => self.cut(now),
                Step::StartRank { position } => self.start_rank(position),
                Step::StopRank { position } => {
                    if let Some(rank) = self.ranks.get(&position) {
                        rank.dismiss();
                    }
                }
                Step::ForgetRank { position } => {
                    if let Some(rank) = self.ranks.remove(&position) {
                        rank.forget(&self.around.launch.run_dir);
                    }
                }
                Step::Start { place } => {
                    if let Some(identity) = self.identity(&place) {
                        self.lanes.insert(place, Lane::start(identity, self.around.clone()));
                    }
                }
                Step::Load { place, replica } => {
                    if let Some(retry) = self.loads.get_mut(&replica) {
                        retry.again(now);
                    }
                    if let Some((digest, spec)) = self.specification(replica) {
                        self.order(&place, Order::Load { replica, digest, spec });
                    }
                }
            }
        }
    }

    fn start_rank(&mut self, position: String) {
        let wanted = self.task.as_ref().and_then(|task| task.ranks.get(&position));
        let place = (position.clone(), 0);
        if let (Some(desired), Some(identity)) = (wanted, self.identity(&place)) {
            let seat =
                RankSeat { gpu: self.index, position: position.clone(), device: identity.device };
            self.ranks.insert(position, Rank::start(desired, seat, self.around.clone()));
        }
    }

    fn want(&self) {
        let wanted = self.task.iter().flat_map(|task| &task.ranks);
        for (position, desired) in wanted {
            if let Some(rank) = self.ranks.get(position)
                && rank.name() == desired.spec.name()
            {
                rank.want(desired);
            }
        }
    }

    fn specification(&self, replica: u32) -> Option<(u64, Box<ModelSpec>)> {
        let wanted = self.task.as_ref()?.replicas.get(&replica)?;
        Some((wanted.digest, Box::new(wanted.spec.clone()?)))
    }

    fn order(&self, place: &Place, order: Order) {
        if let Some(lane) = self.lanes.get(place) {
            lane.order(order);
        }
    }

    /// Begins to cut the GPU as wished, unless something else is under way or it is too soon.
    fn cut(&mut self, now: Instant) {
        if self.call.is_some() || self.reshape.is_some_and(|retry| !retry.is_due(now)) {
            return;
        }
        if let Some(retry) = &mut self.reshape {
            retry.again(now);
        }
        let geometry = match self.geometry() {
            Some(Ok(geometry)) => geometry,
            Some(Err(error)) => return self.not_cut(error.to_string(), now),
            None => return,
        };
        tracing::info!(gpu = self.index, %geometry, "reshaping GPU");
        let gpu = Arc::clone(&self.around.gpu);
        self.call = Some(tokio::task::spawn_blocking(move || match &mut *gpu.lock() {
            Some(gpu) => Outcome::Reshaped(gpu.reshape(&geometry)),
            None => Outcome::Nothing,
        }));
    }

    fn geometry(&self) -> Option<Result<Geometry, MigError>> {
        let kind = self.seen.survey.as_ref()?.kind?;
        let cut = self.task.as_ref()?.wish.cut.as_ref()?;
        let positions = cut.iter().map(|text| kind.position(text)).collect::<Result<_, _>>();
        Some(positions.and_then(|positions| Geometry::new(kind, positions)))
    }

    /// When to look again if nothing happens: what failed is tried again. What is due already and
    /// was not tried waits for something else to happen first.
    fn wakes_at(&self) -> Instant {
        let now = Instant::now();
        let retries = self.loads.values().chain(&self.reshape).map(Retry::at);
        retries.filter(|at| *at > now).min().unwrap_or(now + TICK)
    }

    fn tell(&self) {
        let generation = self.task.as_ref().map_or(0, |task| task.generation);
        let told = Told { generation, gpu: report::of(self) };
        let index = self.index as usize;
        self.telling.send_if_modified(|all| match all.get_mut(index) {
            Some(before) if before.as_ref() != Some(&told) => {
                *before = Some(told);
                true
            }
            Some(_) | None => false,
        });
    }
}
