//! Which replicas there shall be and where, and how to get there without losing what is served.
//!
//! One function from a snapshot of the fleet to a [`Decision`]: what shall be in the end, the steps
//! there in stages, what can be done at once, and a reason for everything, done or not done. It
//! remembers nothing: asked again after a step, it goes on from what is then, and the last target is
//! part of what it is asked with. Asking about another snapshot is a what-if.
//!
//! Nothing moves without need. A model that is short gets new replicas where there is room; one with
//! more than enough gives some up; the fleet is planned anew only if there is no room, or to save a
//! whole GPU. A new replica is ready before the one it stands for goes; where there is no room for
//! both, the one goes first whose absence is felt least, and the decision says so. A slice in use is
//! never cut. A replica that an operator has pinned stays where he wants it, and what is in its way
//! moves.

mod existing;
mod homes;
mod lent_slices;
mod pinned;
mod reasons;
mod sharing;
mod shortage;
mod situation;
mod steps;
mod target;

use mig::{Kind, Position};

pub use self::{
    lent_slices::{Room, room, wanted_back},
    pinned::{Pin, obstacle},
};

use self::situation::Situation;
use crate::plan;

/// The fleet as it is, and what is asked of it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The models, with the demand to be provided for. `replicas_min` may be 0; nothing measured
    /// means that nothing is known yet, and any slice with memory for it will do.
    pub models: Vec<plan::Model>,
    pub gpus: Vec<Gpu>,
    pub rules: plan::Rules,
    /// Replicas that shall be where an operator says; of two that cannot both be, the first.
    pub pins: Vec<Pin>,
    /// Whether to look for a plan with fewer GPUs, which takes longest.
    pub consolidate: bool,
    /// What the last decision aimed at, by the same models and GPUs; nothing before the first, and
    /// after either list has changed.
    pub last: Target,
}

#[derive(Clone, Debug)]
pub struct Gpu {
    pub kind: &'static Kind,
    /// Whether it works and stays; what is on one that does not is moved.
    pub healthy: bool,
    pub cuttable: bool,
    /// The slices it has. A GPU that is not divided has one, of all of it.
    pub slices: Vec<Slice>,
}

#[derive(Clone, Debug)]
pub struct Slice {
    pub position: Position,
    pub loaned: bool,
    /// Whether it shall vanish; what is on it is moved.
    pub doomed: bool,
    pub replicas: Vec<Replica>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replica {
    pub id: u64,
    /// Its model, by index; none if that is served no more.
    pub model: Option<usize>,
    /// Whether it is of its model as that is configured now; another is replaced.
    pub current: bool,
    /// Its processes on the slice. At least 1.
    pub processes: u32,
    pub state: State,
    /// The part of the time it works.
    pub busy: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Starting,
    Ready,
    Draining,
    Failed,
}

/// What shall be, and how to get there.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub target: Target,
    /// Those of stage 0 at once, those of the next when these are done.
    pub steps: Vec<Step>,
    pub refusals: Vec<Refusal>,
}

/// Something that is not done, or not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub model: Option<usize>,
    pub why: String,
}

impl Decision {
    pub fn now(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.stage == 0)
    }
}

/// Who shall be there in the end, and who shall not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    pub placed: Vec<Placed>,
    pub leaving: Vec<Leaving>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Leaving {
    pub replica: u64,
    /// Requests per second it can serve until then.
    pub serves_rps: f64,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    pub gpu: usize,
    pub position: Position,
    pub model: usize,
    /// Which of those that exist; none if it is to be started.
    pub replica: Option<u64>,
    pub batch: u32,
    pub processes: u32,
    /// Requests per second it can serve once its slice is as it shall be.
    pub capacity_rps: f64,
    /// Requests per second it can serve until then.
    pub serves_rps: f64,
    pub pinned: bool,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Steps of one stage may be done together, once all earlier ones are done.
    pub stage: u32,
    pub action: Action,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Destroys slices that nobody is on, and makes others in their place.
    Cut {
        gpu: usize,
        destroy: Vec<Position>,
        create: Vec<Position>,
    },
    Start {
        gpu: usize,
        position: Position,
        model: usize,
        batch: u32,
        processes: u32,
        capacity_rps: f64,
    },
    Stop {
        replica: u64,
    },
}

impl Action {
    /// The GPU that it puts something on or cuts; none for one that only takes away.
    pub fn gpu(&self) -> Option<usize> {
        match self {
            Self::Cut { gpu, .. } | Self::Start { gpu, .. } => Some(*gpu),
            Self::Stop { .. } => None,
        }
    }
}

/// Rows per second that the replicas of each model can serve by what is known now, before any is
/// added or stopped.
pub fn held_rps(snapshot: &Snapshot) -> Vec<f64> {
    let held = Situation::new(snapshot).begun().held(snapshot.models.len());
    held.into_iter().map(|(rps, _)| rps).collect()
}

pub fn place(snapshot: &Snapshot) -> Decision {
    let (target, refusals) = target::target(snapshot);
    let steps = steps::steps(snapshot, &target);
    Decision { target, steps, refusals }
}

impl Gpu {
    /// Whether the whole of it may be planned for.
    fn is_free(&self) -> bool {
        let ours = |slice: &Slice| !slice.loaned && !slice.doomed;
        self.healthy && self.cuttable && self.slices.iter().all(ours)
    }
}
