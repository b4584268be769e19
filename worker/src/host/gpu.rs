//! The task that keeps one GPU as it shall be.
//!
//! It waits for a change, reads what is, asks [`reconcile`] what to do, does it and tells. Calls to
//! the GPU block, a reshape for seconds, so they run elsewhere, one at a time; meanwhile the slices
//! that are not concerned are attended to as ever.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use mig::{Geometry, MigError};
use protocol::{Desired, DesiredGpu, DesiredReplica, ModelSpec, Order, ReplicaState, Seat, WHOLE};
use tokio::{
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{
    GpuSettings, Told,
    backoff::Retry,
    lane::{Adopted, Lane, Shared, Surroundings},
    process::{Identity, Launch},
    report,
};
use crate::{
    gpu::{GpuError, Mode, Reshaped, Sample, Slice, Survey, Xid},
    reconcile::{self, LanePhase, LaneSeen, Loaded, Next, Phase, Place, Step, Wanted, Wish, World},
};

/// How often a GPU is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);

/// The errors of a GPU that are remembered.
const XIDS: usize = 16;

/// What was last seen of the GPU itself.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) survey: Option<Survey>,
    pub(super) sample: Sample,
    pub(super) xids: VecDeque<Xid>,
    /// Why it could not be read.
    pub(super) problem: Option<GpuError>,
}

/// What came of a call to the GPU.
enum Outcome {
    Looked(Result<(Survey, Sample, Vec<Xid>), GpuError>),
    Reshaped(Reshaped),
    /// The call panicked, or the GPU was closed before it.
    Nothing,
}

/// A wish of the router's, understood.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) generation: u64,
    pub(super) wish: Wish,
    pub(super) replicas: BTreeMap<u32, DesiredReplica>,
}

/// One GPU, its lanes, and what is wanted of both.
pub(super) struct Keeper {
    pub(super) index: u32,
    pub(super) settings: GpuSettings,
    pub(super) seen: Seen,
    pub(super) lanes: BTreeMap<Place, Lane>,
    /// Nothing is done before the first wish: executors may be at work that a router knows of.
    pub(super) task: Option<Task>,
    pub(super) next: Next,
    /// Why it is not cut as wanted.
    pub(super) uncut: Option<String>,
    around: Surroundings,
    call: Option<JoinHandle<Outcome>>,
    reshape: Option<Retry>,
    loads: BTreeMap<u32, Retry>,
    telling: Arc<watch::Sender<Vec<Option<Told>>>>,
}

impl Keeper {
    pub(super) fn new(
        index: u32,
        settings: GpuSettings,
        launch: Arc<Launch>,
        telling: Arc<watch::Sender<Vec<Option<Told>>>>,
    ) -> Self {
        Self {
            index,
            settings,
            seen: Seen::default(),
            lanes: BTreeMap::new(),
            task: None,
            next: Next::default(),
            uncut: None,
            around: Surroundings { launch, gpu: Shared::default(), news: Arc::new(Notify::new()) },
            call: None,
            reshape: None,
            loads: BTreeMap::new(),
            telling,
        }
    }

    /// Adopts what is there, then keeps the GPU as desired until told to stop.
    pub(super) async fn keep(
        mut self,
        mut desired: watch::Receiver<Arc<Desired>>,
        mut stopping: watch::Receiver<bool>,
        adopted: Vec<Adopted>,
    ) {
        self.look();
        let looked = self.called().await;
        self.take(looked);
        self.adopt(adopted).await;
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
                _ = stopping.wait_for(|stopping| *stopping) => break,
            }
            self.act();
            self.tell();
        }
        let mut ending = JoinSet::new();
        for lane in std::mem::take(&mut self.lanes).into_values() {
            ending.spawn(lane.end());
        }
        ending.join_all().await;
    }

    /// Begins to read the GPU, opening it first if need be.
    fn look(&mut self) {
        let (gpu, open) = (Arc::clone(&self.around.gpu), Arc::clone(&self.settings.open));
        self.call = Some(tokio::task::spawn_blocking(move || {
            let mut gpu = gpu.lock();
            let mut read = || {
                let gpu = match &mut *gpu {
                    Some(gpu) => gpu,
                    closed @ None => closed.insert(open()?),
                };
                // A GPU may be silent on errors and on how it fares, and all right nevertheless.
                let xids = gpu.xids(Duration::ZERO).unwrap_or_default();
                let survey = gpu.survey()?;
                Ok((survey, gpu.sample().unwrap_or_default(), xids))
            };
            Outcome::Looked(read())
        }));
    }

    /// What came of the call under way; never, if none is.
    async fn called(&mut self) -> Outcome {
        let Some(call) = &mut self.call else { return std::future::pending().await };
        let outcome = call.await.unwrap_or(Outcome::Nothing);
        self.call = None;
        outcome
    }

    fn take(&mut self, outcome: Outcome) {
        let now = Instant::now();
        let found = match outcome {
            Outcome::Looked(Ok((survey, sample, xids))) => {
                for xid in &xids {
                    let (gpu, code) = (self.index, xid.code);
                    tracing::warn!(gpu, code, instance = ?xid.gpu_instance, "GPU told of an error");
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
                    tracing::warn!(gpu = self.index, %error, "GPU cannot be read");
                }
                self.seen.problem = Some(error);
            }
        }
    }

    fn not_cut(&mut self, why: String, now: Instant) {
        if self.uncut.as_ref() != Some(&why) {
            tracing::warn!(gpu = self.index, why, "GPU not cut as wanted; it will be tried again");
        }
        self.uncut = Some(why);
        self.reshape.get_or_insert_with(|| Retry::new(now));
    }

    async fn adopt(&mut self, adopted: Vec<Adopted>) {
        for one in adopted {
            let Seat { position, lane, .. } = one.state.seat.clone();
            let identity = self.identity(&(position.clone(), lane));
            match identity {
                Some(identity) if identity.device == one.state.device => {
                    let adopted = Lane::adopt(identity, self.around.clone(), one);
                    self.lanes.insert((position, lane), adopted);
                }
                Some(_) | None => {
                    let (gpu, pid) = (self.index, one.process.id());
                    tracing::warn!(
                        gpu,
                        position,
                        pid,
                        "executor of a slice that is no more; ended"
                    );
                    one.process.kill().await;
                }
            }
        }
    }

    fn understand(&mut self, desired: &Desired) {
        let mine = desired.gpus.iter().find(|gpu| gpu.gpu == self.index);
        let (mut wish, mut replicas) = (Wish::default(), BTreeMap::new());
        if let Some(DesiredGpu { positions, slices, .. }) = mine {
            wish.cut = positions.as_ref().map(|all| all.iter().cloned().collect());
            for slice in slices {
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
        self.loads.retain(|id, _| replicas.contains_key(id));
        self.task = Some(Task { generation: desired.generation, wish, replicas });
    }

    /// Asks what to do, and does it.
    fn act(&mut self) {
        let now = Instant::now();
        self.lanes.retain(|_, lane| !lane.is_over());
        let world = self.world(now);
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
        tracing::info!(gpu = self.index, %geometry, "GPU is being cut");
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

    /// When to look again if nothing happens: what failed is tried again.
    fn wakes_at(&self) -> Instant {
        let never = Instant::now() + Duration::from_secs(3_600);
        self.loads.values().chain(&self.reshape).map(Retry::at).min().unwrap_or(never)
    }

    fn world(&mut self, now: Instant) -> World {
        let mut world = World::default();
        for (place, lane) in &self.lanes {
            world.lanes.insert(place.clone(), seen(lane, &mut self.loads, now));
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

    fn identity(&self, place: &Place) -> Option<Identity> {
        let survey = self.seen.survey.as_ref()?;
        let (wanted, lane) = place;
        let at = |slice: &&Slice| position(survey, slice).as_ref() == Some(wanted);
        let slice = survey.slices.iter().find(at)?;
        Some(Identity {
            seat: Seat { gpu: self.index, position: wanted.clone(), lane: *lane },
            slice: report::label(self.index, slice),
            device: Some(slice.usable()?.uuid.clone()),
        })
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

/// Whether the worker may cut it at all.
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
    LaneSeen { phase, replicas: loaded.collect() }
}
