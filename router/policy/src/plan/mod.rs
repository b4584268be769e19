//! The fewest GPUs that keep every objective, and who sits where on them.
//!
//! Values in, values out: the models with their demand and their measurements, the fleet, and a
//! budget of work; a [`Plan`] with a proven lower bound comes back.

mod bind;
mod capacity;
mod cover;
mod cycle;
mod fill;
mod hardware;
mod pack;
mod relax;
pub mod rivals;
mod search;
mod simplex;

use std::fmt;

use mig::{Kind, Position};

pub use capacity::Choice;

use self::{
    capacity::Table,
    fill::Terms,
    hardware::Hardware,
    relax::{Buying, Demand, Want},
    search::Way,
};

/// With more models than this, less is tried for each.
const MANY: usize = 100;
/// With many models, slices are shared only if that may save this part of the GPUs.
const WORTH_SHARING: f64 = 1.01;
/// More GPUs of a kind than anyone would add.
const AMPLE: u32 = 100_000;

/// One measurement of a model on a slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The slice's profile, such as `3g.40gb`.
    pub profile: String,
    /// Rows per batch. At least 1.
    pub batch: u32,
    /// Processes sharing the slice. At least 1.
    pub processes: u32,
    /// The whole slice's, all processes together.
    pub throughput_rps: f64,
}

/// Measurements on one kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The kind's name; where absent, they serve for every kind that has none of its own.
    pub kind: Option<String>,
    /// The measurements.
    pub rows: Vec<Row>,
}

/// A model to be placed.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Requests per second to be served.
    pub demand_rps: f64,
    /// The objective.
    pub slo_ms: f64,
    /// What was measured of it.
    pub measured: Vec<Measured>,
    /// The largest batch allowed; absent, the largest measured.
    pub max_batch: Option<u32>,
    /// What one process needs; absent, what the measurements prove to be enough.
    pub memory_mib: Option<u64>,
    /// The fewest slices it is on. At least 1.
    pub replicas_min: u32,
    /// The most slices it is on.
    pub replicas_max: u32,
}

/// Some GPUs of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Gpus {
    /// Which.
    pub kind: &'static Kind,
    /// How many.
    pub count: u32,
}

/// What the planner may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The part of the objective a batch may take. 0.45 leaves a tenth after waiting for one batch
    /// and then for one's own.
    pub latency_share: f64,
    /// The most processes on one slice.
    pub max_processes: u32,
    /// Whether several models may take turns on one slice.
    pub share_slices: bool,
    /// How much to search: some millions are a second.
    pub work: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { latency_share: 0.45, max_processes: 5, share_slices: true, work: 4_000_000 }
    }
}

/// Everything a plan is made from.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The models, by which plans refer to them.
    pub models: Vec<Model>,
    /// The fleet; GPUs are numbered in this order.
    pub fleet: Vec<Gpus>,
    /// What is allowed.
    pub rules: Rules,
}

/// One model on one slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Replica {
    /// Its index in the problem.
    pub model: usize,
    /// Rows per batch.
    pub batch: u32,
    /// Processes of it on the slice.
    pub processes: u32,
    /// Requests per second it can serve.
    pub capacity_rps: f64,
    /// One batch's time.
    pub latency_ms: f64,
    /// The longest a request should take: waiting for what runs, then its own batch.
    pub worst_ms: f64,
    /// Why it is here.
    pub why: String,
}

/// One slice and who is on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The GPU's number in the fleet.
    pub gpu: usize,
    /// The GPU's kind.
    pub kind: &'static str,
    /// Where on the GPU.
    pub position: Position,
    /// Who; several take turns.
    pub replicas: Vec<Replica>,
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// By GPU and start.
    pub slices: Vec<Slice>,
    /// GPUs with at least one slice.
    pub gpus_used: u32,
    /// No plan that keeps the same rules uses fewer.
    pub bound_gpus: f64,
    /// As many GPUs would do if every slice could be divided at will, which none can.
    pub lower_bound_gpus: f64,
}

impl Plan {
    /// Puts `slices` in order and counts their GPUs.
    fn new(mut slices: Vec<Slice>, bound: f64, fractional_bound: f64) -> Self {
        slices.sort_by_key(|slice| (slice.gpu, slice.position.start()));
        let mut gpus: Vec<usize> = slices.iter().map(|slice| slice.gpu).collect();
        gpus.dedup();
        Self {
            slices,
            gpus_used: u32::try_from(gpus.len()).unwrap_or(u32::MAX),
            bound_gpus: bound,
            lower_bound_gpus: fractional_bound,
        }
    }

    /// The whole number of GPUs that is proven to be needed.
    pub fn fewest_gpus(&self) -> u32 {
        search::at_least(self.bound_gpus)
    }

    /// Requests per second that all replicas of `model` serve together.
    pub fn capacity_rps(&self, model: usize) -> f64 {
        self.replicas(model).map(|replica| replica.capacity_rps).sum()
    }

    /// Every replica of `model`.
    pub fn replicas(&self, model: usize) -> impl Iterator<Item = &Replica> {
        let all = self.slices.iter().flat_map(|slice| &slice.replicas);
        all.filter(move |replica| replica.model == model)
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// No slice of the fleet serves the model within its objective.
    Impossible {
        /// The model.
        model: String,
        /// What a batch of it may take.
        limit_ms: f64,
    },
    /// The fleet is too small.
    TooSmall {
        /// GPUs there are.
        gpus: u32,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Impossible { model, limit_ms } => write!(
                f,
                "no slice of the fleet runs a batch of {model:?} within {limit_ms:.1} ms, its share \
                 of the objective"
            ),
            Self::TooSmall { gpus } => write!(f, "the fleet of {gpus} GPUs is too small"),
        }
    }
}

impl std::error::Error for PlanError {}

/// The best plan found within the rules.
pub fn solve(problem: &Problem) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let all: Vec<usize> = (0..problem.models.len()).collect();
    let wants: Vec<Want> = problem.models.iter().map(Want::all).collect();
    let turns_at_best = ground.table.turns_at_best();
    let turns = ground.table.turns(&problem.models, &problem.rules);
    let demand = Demand {
        models: &problem.models,
        table: &ground.table,
        slots: ground.hardware.slots.len(),
        only: &all,
        buying: Buying::Fractions,
        wants: &wants,
    };
    let mut work = problem.rules.work;
    let mut relax = |buying: Buying<'_>| {
        let demand = Demand { buying, ..demand };
        let relaxed = search::prices(&demand, &ground.hardware);
        let relaxed = relaxed.ok_or_else(|| ground.too_small())?;
        work = work.saturating_sub(demand.work(relaxed.rounds));
        Ok(relaxed)
    };
    let terms = |buying| Terms {
        demand: Demand { buying, ..demand },
        hardware: &ground.hardware,
        prices: &[],
        latency_share: problem.rules.latency_share,
    };
    let fractional_bound = relax(Buying::Fractions)?.bound;
    let whole = relax(Buying::Whole)?;
    let whole_terms = terms(Buying::Whole);
    let whole_bound = whole.bound.max(fractional_bound);
    let whole_way = Way { terms: &whole_terms, relaxed: &whole, bound: whole_bound };
    let bound = if problem.rules.share_slices {
        relax(Buying::Turns(&turns_at_best))?.bound.max(fractional_bound)
    } else {
        whole_bound
    };
    let enough = if problem.models.len() > MANY { bound * WORTH_SHARING + 1.0 } else { bound };
    if whole_bound <= enough {
        let found = search::search(&[whole_way], work).ok_or_else(|| ground.too_small())?;
        return Ok(bind::bind(&whole_terms, &found, bound, fractional_bound));
    }
    let likely = relax(Buying::Turns(&turns))?;
    let shared_terms = terms(Buying::Turns(&turns));
    let shared_way = Way { terms: &shared_terms, relaxed: &likely, bound };
    let found = search::search(&[whole_way, shared_way], work).ok_or_else(|| ground.too_small())?;
    Ok(bind::bind(&shared_terms, &found, bound, fractional_bound))
}

/// How many more GPUs of each kind of the fleet would do, each kind by itself.
///
/// A kind of which no number found would do is left out.
pub fn shortfall(problem: &Problem) -> Vec<(&'static Kind, u32)> {
    let mut more: Vec<(&'static Kind, u32)> = Vec::new();
    for (index, gpus) in problem.fleet.iter().enumerate() {
        if more.iter().any(|(kind, _)| kind.name == gpus.kind.name) {
            continue;
        }
        let mut larger = problem.clone();
        larger.fleet[index].count = gpus.count.saturating_add(AMPLE);
        let have: u32 = problem
            .fleet
            .iter()
            .filter(|other| other.kind.name == gpus.kind.name)
            .map(|other| other.count)
            .sum();
        if let Ok(plan) = solve(&larger) {
            let mut used: Vec<usize> = plan
                .slices
                .iter()
                .filter(|slice| slice.kind == gpus.kind.name)
                .map(|slice| slice.gpu)
                .collect();
            used.dedup();
            let used = u32::try_from(used.len()).unwrap_or(u32::MAX);
            more.push((gpus.kind, used.saturating_sub(have)));
        }
    }
    more
}

/// What every planner starts from.
struct Ground {
    hardware: Hardware,
    table: Table,
}

impl Ground {
    fn new(problem: &Problem) -> Result<Self, PlanError> {
        let hardware = Hardware::new(&problem.fleet);
        let table = Table::new(&problem.models, &hardware, &problem.rules);
        for (index, model) in problem.models.iter().enumerate() {
            if table.capacities_of(index).iter().all(|capacity| *capacity == 0.0) {
                let limit_ms = problem.rules.latency_share * model.slo_ms;
                return Err(PlanError::Impossible { model: model.name.clone(), limit_ms });
            }
        }
        Ok(Self { hardware, table })
    }

    fn too_small(&self) -> PlanError {
        PlanError::TooSmall { gpus: self.hardware.limits().iter().sum() }
    }
}
