//! The control round: read the world, decide, commit what must be durable, tell the workers.
//!
//! [`policy::round`] decides, here as in the simulator; this is the shell around it. A round decides on
//! a thread of its own, since a plan may take a while. A store that doesn't answer holds up the jobs
//! alone: until it does, workers are told of replicas, and of jobs as they were committed last.

mod commit;
mod learning;
mod tell;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use policy::round::{Event, Memory, PinOrder, Round, TICK, TrainingJob, World, decide, desired};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout},
};

use self::{
    commit::Commits,
    learning::LearnedWriter,
    tell::{Details, Sent},
};
use crate::{
    control::Control,
    orders::Pin,
    records::KeepError,
    world::{Revisions, has_gpus, read, training_job},
};

/// The least time between two rounds, so that many changes at once are one.
const REST: Duration = Duration::from_millis(5);
/// Planning takes at most about this part of the time.
const LEISURE: u32 = 10;
/// The planner rests no longer, however long a plan took on a busy machine.
const LONGEST_REST: Duration = Duration::from_secs(10);

struct Rounds {
    term: u64,
    memory: Arc<Memory>,
    revisions: Revisions,
    sent: Sent,
    commits: Commits,
    /// The planner rests until then.
    rests_until: Instant,
    moved: Option<JoinHandle<Result<(), KeepError>>>,
}

/// Runs rounds until the router ends.
pub async fn run(control: Weak<Control>) {
    let mut writer: Option<LearnedWriter> = None;
    let mut rounds: Option<Rounds> = None;
    while let Some(control) = control.upgrade() {
        let mut news = control.leadership().news();
        if control.pause().is_wanted() {
            if let (Some(writer), Some(rounds)) = (&mut writer, &rounds) {
                writer.flush(&control, &rounds.memory).await;
            }
            control.pause().paused();
            control.turned();
            let mut pause = control.pause().changed();
            drop(control);
            let _ = timeout(TICK, pause.wait_for(|wanted| !wanted)).await;
            continue;
        }
        let Some(term) = control.leadership().acts() else {
            rounds = None;
            control.turned();
            drop(control);
            // Whether there is news or not, the next pass looks.
            let _ = timeout(TICK, news.changed()).await;
            continue;
        };
        let writer = writer.get_or_insert_with(|| LearnedWriter::new(control.clock().now()));
        let mut current = match rounds.take().filter(|rounds| rounds.term == term) {
            Some(rounds) => rounds,
            None => Rounds::new(&control, term, writer.recall(&control).await),
        };
        let jobs = Arc::clone(control.jobs());
        let (mut reported, mut linked) = (control.fleet().changed(), control.plane().changed());
        let changed = jobs.changed();
        let round = current.round(&control).await;
        writer.write(&control, &current.memory).await;
        let wait = current.wait(&round);
        rounds = Some(current);
        control.turned();
        control.pause().ran();
        let mut pause = control.pause().changed();
        drop(control);
        let news = async {
            tokio::select! {
                _ = reported.changed() => {}
                _ = linked.changed() => {}
                () = changed => {}
                _ = news.changed() => {}
                _ = pause.wait_for(|wanted| *wanted) => {}
            }
        };
        // Whether something changed or time passed, the next round looks.
        let _ = timeout(wait, news).await;
        sleep(REST).await;
    }
}

impl Rounds {
    fn new(control: &Control, term: u64, memory: Memory) -> Self {
        control.jobs().redate(control.clock().now_ms());
        Self {
            term,
            memory: Arc::new(memory),
            revisions: Revisions::default(),
            sent: Sent::default(),
            commits: Commits::new(),
            rests_until: Instant::now(),
            moved: None,
        }
    }

    /// How long may pass until the next round, if nothing happens.
    fn wait(&self, round: &Round) -> Duration {
        if !round.drain.is_empty() {
            // Most have no batches, and go in the next round.
            Duration::ZERO
        } else if round.plan_due {
            TICK.min(self.rests_until.saturating_duration_since(Instant::now()))
        } else {
            TICK
        }
    }

    async fn round(&mut self, control: &Control) -> Round {
        let began = Instant::now();
        let world = read(control, &mut self.revisions, self.rests_until <= began);
        let (world, round, next) = self.decide(world).await;
        if round.planned {
            // Slices that are reclaimed must hear of it, and be taken when they come.
            let leisure = if round.reclaims() { 1 } else { LEISURE };
            let rest = (began.elapsed() * leisure).min(LONGEST_REST);
            self.rests_until = Instant::now() + rest;
        }
        control.jobs().explain(round.waits.clone());
        let committed = self.commits.commit(control.jobs(), &round, &next.loans).await;
        let Memory { place, loans } = next;
        // What could not be committed is not remembered either.
        let loans = if committed { loans } else { self.memory.loans.clone() };
        self.memory = Arc::new(Memory { place, loans });
        if control.leadership().acts() == Some(self.term) {
            self.tell(control, &round);
        }
        log(&round);
        let at_s = control.clock().elapsed().as_secs_f64();
        control.planned().record(at_s, world, Arc::clone(&self.memory), &round);
        self.persist_moved(control, &round).await;
        round
    }

    /// Decides beside what is served, since a plan may take a while.
    async fn decide(&self, world: World) -> (World, Round, Memory) {
        let memory = Arc::clone(&self.memory);
        let decided = spawn_blocking(move || {
            let (round, next) = decide(&world, &memory);
            (world, round, next)
        });
        match decided.await {
            Ok(decided) => decided,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }

    /// Tells the data plane and the workers what follows from what was committed.
    fn tell(&mut self, control: &Control, round: &Round) {
        let plane = control.plane();
        round.admit.iter().for_each(|id| plane.admit(id));
        round.drain.iter().for_each(|id| plane.drain(id));
        for (model, advice) in &round.advice {
            plane.advise(model, advice.clone());
        }
        let config = control.config();
        let records = control.jobs().unfinished();
        let has_gpus = has_gpus(&control.fleet().look());
        let jobs: Vec<TrainingJob> =
            records.iter().map(|record| training_job(&config, record, has_gpus)).collect();
        let desired = desired(round, &self.memory, &jobs);
        self.revisions.keep(self.memory.place.asked().values().flatten().map(|one| one.digest));
        let details = Details::new(&config, &records, &self.revisions);
        self.sent.send(control.fleet(), self.term, &desired, &details);
    }

    /// Persists that models have left the slices they were to leave for pins. Waits for no disk.
    async fn persist_moved(&mut self, control: &Control, round: &Round) {
        if let Some(written) = self.moved.take_if(|written| written.is_finished())
            && let Ok(Err(error)) = written.await
        {
            tracing::warn!(%error, "failed to persist a finished move; retrying");
        }
        if round.moved_pins.is_empty() || self.moved.is_some() {
            return;
        }
        let is_moved = |pin: &&Pin| {
            let same =
                |one: &PinOrder| one.model == pin.model && one.at == pin.at && one.from == pin.from;
            round.moved_pins.iter().any(same)
        };
        let orders = Arc::clone(control.orders());
        let left: Vec<Pin> = orders.standing().pins.iter().filter(is_moved).cloned().collect();
        self.moved = Some(spawn_blocking(move || orders.left(&left)));
    }
}

fn log(round: &Round) {
    for event in &round.events {
        match event {
            Event::Cut { gpu, positions, why: reason } => {
                let (worker, gpu) = (&gpu.worker, gpu.gpu);
                tracing::info!(worker, gpu, ?positions, reason, "reshaping GPU");
            }
            Event::Placed { slice, model, processes, why: reason } => {
                let (worker, gpu, position) = (&slice.worker, slice.gpu, &slice.position);
                tracing::info!(worker, gpu, position, model, processes, reason, "replica placed");
            }
            Event::Leaves { replica, model, why: reason } => {
                let (worker, replica) = (&replica.worker, replica.replica);
                tracing::info!(worker, model, replica, reason, "stopping replica");
            }
            Event::Unplaced { model, why: reason } => {
                tracing::warn!(model, reason, "cannot place model");
            }
        }
    }
}
