//! What a plan is made from.

use mig::Kind;

use super::{
    PlanError,
    capacity::{Table, ways},
    hardware::Hardware,
};
use crate::{
    fleet::Home,
    interference::{Draw, Gains},
};

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The slice's profile, such as `3g.40gb`.
    pub profile: String,
    pub batch: u32,
    /// Processes sharing the slice. At least 1.
    pub processes: u32,
    /// The whole slice's, all processes together.
    pub throughput_rps: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The kind's name; where absent, they serve for every kind that has none of its own.
    pub kind: Option<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    /// Requests per second to be served.
    pub demand_rps: f64,
    pub slo_ms: f64,
    pub measured: Vec<Measured>,
    /// The largest batch allowed; absent, the largest measured.
    pub max_batch: Option<u32>,
    /// What one process needs; absent, what the measurements prove to be enough.
    pub memory_mib: Option<u64>,
    /// The fewest slices it is on. At least 1.
    pub replicas_min: u32,
    pub replicas_max: u32,
    /// What it asks of what slices share.
    pub load: Draw,
    /// What it runs on, where the fleet has that.
    pub home: Home,
    /// How many times as long as measured it takes, where that is known. At least 1.
    pub slowdown: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Gpus {
    pub kind: &'static Kind,
    pub count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The part of the objective a batch may take. 0.45 leaves a tenth after waiting for one batch
    /// and then for one's own.
    pub latency_share: f64,
    pub max_processes: u32,
    /// Whether several models may take turns on one slice.
    pub share_slices: bool,
    pub gains: Gains,
    /// GPUs of each kind that are kept free, for those that may fail.
    pub spare_gpus: u32,
    /// How much to search: some millions are a second.
    pub work: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            latency_share: 0.45,
            max_processes: 5,
            share_slices: true,
            gains: Gains::default(),
            spare_gpus: 0,
            work: 4_000_000,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Problem {
    pub models: Vec<Model>,
    /// The fleet; GPUs are numbered in this order.
    pub fleet: Vec<Gpus>,
    pub rules: Rules,
}

pub(super) struct Ground {
    pub(super) hardware: Hardware,
    pub(super) table: Table,
}

impl Ground {
    pub(super) fn new(problem: &Problem) -> Result<Self, PlanError> {
        let hardware = Hardware::new(&problem.fleet, problem.rules.spare_gpus);
        let table = Table::new(&problem.models, &hardware, &problem.rules);
        for (index, model) in problem.models.iter().enumerate() {
            if table.capacities_of(index).iter().all(|capacity| *capacity == 0.0) {
                let on: Vec<_> =
                    hardware.slots.iter().map(|slot| (slot.kind, slot.profile)).collect();
                let limit_ms = problem.rules.latency_share * model.slo_ms;
                let name = model.name.clone();
                return Err(if ways(model, &on).iter().all(Vec::is_empty) {
                    PlanError::Homeless { model: name }
                } else {
                    PlanError::Impossible { model: name, limit_ms }
                });
            }
        }
        Ok(Self { hardware, table })
    }

    pub(super) fn too_small(&self) -> PlanError {
        PlanError::TooSmall { gpus: self.hardware.limits().iter().sum() }
    }
}
