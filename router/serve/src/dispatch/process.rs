//! An executor's process, in which replicas of several models take turns.
//!
//! A process runs one batch at a time. Each dispatcher says what it sends there and what comes back;
//! the process tells the others to step aside meanwhile, and then whose turn it is. A model's lock
//! may be held while the members are looked at, never the other way round: members are told one
//! after the other, with no lock held. Two batches may so meet in a process; they run in order, and
//! the next turn is passed on when both are back.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use policy::{dispatch::longest_turn, moment::Moment};

use super::Dispatcher;

#[derive(Debug, Default)]
pub struct Process {
    shared: AtomicBool,
    members: Mutex<Vec<Member>>,
}

#[derive(Clone, Debug)]
struct Member {
    dispatcher: Weak<Dispatcher>,
    replica: u32,
    objective: Duration,
    /// Batches of it that have not come back.
    out: u32,
}

/// Something the others in a process must hear of, once the model's lock is free.
#[derive(Debug)]
pub(super) enum Passing {
    Sent { process: Arc<Process>, replica: u32, ends: Moment },
    Back { process: Arc<Process> },
}

impl Passing {
    /// Tells the others. No model's lock may be held.
    pub(super) fn on(self) {
        match self {
            Self::Sent { process, replica, ends } => {
                for (dispatcher, other) in process.others(replica) {
                    dispatcher.step_aside(other, &process, ends);
                }
            }
            Self::Back { process } => process.next_turn(),
        }
    }
}

impl Process {
    /// Whether several replicas take turns here.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Takes a replica in. No model's lock may be held.
    pub(super) fn join(&self, dispatcher: &Arc<Dispatcher>, replica: u32, objective: Duration) {
        let dispatcher = Arc::downgrade(dispatcher);
        self.members.lock().push(Member { dispatcher, replica, objective, out: 0 });
        self.divide();
    }

    /// Lets a replica go, with the batches it had. No model's lock may be held.
    pub(super) fn leave(&self, replica: u32) {
        self.members.lock().retain(|member| member.replica != replica);
        self.divide();
        self.next_turn();
    }

    /// A model's objective is another. No model's lock may be held.
    pub(super) fn change(&self, replica: u32, objective: Duration) {
        self.with(replica, |member| member.objective = objective);
        self.divide();
    }

    pub(super) fn sent(&self, replica: u32) {
        self.with(replica, |member| member.out += 1);
    }

    pub(super) fn back(&self, replica: u32) {
        self.with(replica, |member| member.out = member.out.saturating_sub(1));
    }

    /// Whether a batch of another than `replica` is in it.
    pub(super) fn is_taken_from(&self, replica: u32) -> bool {
        self.members.lock().iter().any(|member| member.replica != replica && member.out > 0)
    }

    fn is_taken(&self) -> bool {
        self.members.lock().iter().any(|member| member.out > 0)
    }

    fn with(&self, replica: u32, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.members.lock().iter_mut().find(|one| one.replica == replica) {
            change(member);
        }
    }

    /// Tells every member how long its turns may be.
    fn divide(&self) {
        let objectives: Vec<Duration> =
            self.members.lock().iter().map(|member| member.objective).collect();
        let longest = longest_turn(&objectives);
        self.shared.store(longest.is_some(), Ordering::Release);
        for (dispatcher, replica) in self.all() {
            dispatcher.take_turns(replica, longest);
        }
    }

    /// Lets the members go on, the most urgent first, until one has sent a batch.
    fn next_turn(&self) {
        if !self.is_shared() || self.is_taken() {
            return;
        }
        let mut waiting: Vec<_> = self
            .all()
            .into_iter()
            .map(|(dispatcher, replica)| (dispatcher.leeway(replica), dispatcher, replica))
            .collect();
        waiting.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (_, dispatcher, replica) in waiting {
            if self.is_taken() {
                break;
            }
            dispatcher.step_up(replica);
        }
    }

    fn others(&self, replica: u32) -> Vec<(Arc<Dispatcher>, u32)> {
        let mut all = self.all();
        all.retain(|(_, other)| *other != replica);
        all
    }

    fn all(&self) -> Vec<(Arc<Dispatcher>, u32)> {
        let members = self.members.lock();
        let alive = |member: &Member| Some((member.dispatcher.upgrade()?, member.replica));
        members.iter().filter_map(alive).collect()
    }
}

impl Dispatcher {
    fn take_turns(&self, replica: u32, longest: Option<Duration>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.machine.take_turns(replica, longest);
        state.tick(now);
        self.carry_out(&mut state, now);
        Self::let_go(state);
    }

    /// Has `replica` wait for a batch of another, if that is not back already.
    fn step_aside(&self, replica: u32, process: &Process, until: Moment) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if process.is_taken_from(replica) {
            state.machine.step_aside(replica, until);
            self.carry_out(&mut state, now);
        }
        Self::let_go(state);
    }

    fn step_up(&self, replica: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.step_up(replica, now);
        self.carry_out(&mut state, now);
        Self::let_go(state);
    }

    fn leeway(&self, replica: u32) -> f64 {
        self.state.lock().machine.leeway(replica, self.clock.now())
    }
}
