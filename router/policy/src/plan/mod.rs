//! The fewest GPUs that keep every objective, and who sits where on them.
//!
//! Values in, values out: the models with their demand and their measurements, the fleet, and a
//! budget of work; a [`Plan`] with a proven lower bound comes back.

mod assign;
pub mod baselines;
mod bind;
mod capacity;
mod cover;
mod cycle;
mod fill;
mod flow;
mod hardware;
mod headroom;
mod incremental;
mod interference;
mod master;
mod outcome;
mod pack;
mod problem;
mod relax;
mod room;
mod rounding;
mod search;
mod simplex;

use mig::Kind;

pub use self::interference::misses;
pub use capacity::{Choice, quickest_ms};
pub(crate) use capacity::{measured_on, ways};
pub use headroom::solve_roomily;
pub use incremental::{Replan, moves, repair, replan};
pub use outcome::{Plan, PlanError, Replica, Slice};
pub use problem::{Gpus, Measured, Model, Problem, Row, Rules};
pub use room::Site;

use self::{
    cover::Turns,
    fill::Terms,
    outcome::Bounds,
    problem::Ground,
    relax::{Buying, Demand, Hint, Want},
    search::Way,
};

/// With more models than this, less is tried for each.
const MANY: usize = 100;
/// With many models, slices are shared only if that may save this part of the GPUs.
const WORTH_SHARING: f64 = 1.01;
/// The part of a shared slot's time that may be of use, which is known only once it is packed.
const GUESSES: [f64; 3] = [1.0, 0.9, 0.8];
/// More GPUs of a kind than anyone would add.
pub const AMPLE: u32 = 100_000;

pub fn solve(problem: &Problem) -> Result<Plan, PlanError> {
    solve_from(problem, &[])
}

/// The best plan found within the rules, on such GPUs that as much as can be of what runs stays.
///
/// Neighbours are expected to slow each other as the models' loads say.
pub fn solve_from(problem: &Problem, current: &[Slice]) -> Result<Plan, PlanError> {
    interference::solve(problem, current)
}

/// As [`solve_from`], as if no slice felt another.
fn solve_blind(problem: &Problem, current: &[Slice]) -> Result<Plan, PlanError> {
    let ground = Ground::new(problem)?;
    let all: Vec<usize> = (0..problem.models.len()).collect();
    let wants: Vec<Want> = problem.models.iter().map(Want::all).collect();
    let turns_at_best = ground.table.turns_at_best(&problem.models, &problem.rules);
    let demand = Demand {
        models: &problem.models,
        table: &ground.table,
        slots: ground.hardware.slots.len(),
        only: &all,
        buying: Buying::Fractions,
        wants: &wants,
    };
    let limits = ground.hardware.limits();
    let mut work = problem.rules.work;
    let mut relax = |buying: Buying<'_>| {
        let demand = Demand { buying, ..demand };
        let relaxed = search::prices(&demand, &ground.hardware, &limits, Hint::default());
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
    let fractional = relax(Buying::Fractions)?.bound;
    let whole = relax(Buying::Whole)?;
    let whole_terms = terms(Buying::Whole);
    let whole_bound = whole.bound.max(fractional);
    let whole_way = Way { terms: &whole_terms, relaxed: &whole, bound: whole_bound };
    let rules = if problem.rules.share_slices {
        relax(Buying::Turns(&turns_at_best))?.bound.max(fractional)
    } else {
        whole_bound
    };
    let bounds = Bounds { rules, fractional };
    let enough = if problem.models.len() > MANY { rules * WORTH_SHARING + 1.0 } else { rules };
    if whole_bound <= enough {
        let found = search::search(&[whole_way], work).ok_or_else(|| ground.too_small())?;
        return Ok(bind::bind(&whole_terms, &found, current, bounds));
    }
    let guesses: Vec<Vec<Turns>> = GUESSES
        .iter()
        .map(|part| ground.table.turns(&problem.models, &problem.rules, *part))
        .collect();
    let mut shared = Vec::new();
    for turns in &guesses {
        shared.push((terms(Buying::Turns(turns)), relax(Buying::Turns(turns))?));
    }
    let mut ways = vec![whole_way];
    ways.extend(shared.iter().map(|(terms, relaxed)| Way { terms, relaxed, bound: rules }));
    let found = search::search(&ways, work).ok_or_else(|| ground.too_small())?;
    Ok(bind::bind(&shared[0].0, &found, current, bounds))
}

/// How many more GPUs of each kind of the fleet would do, each kind by itself; nothing if even
/// [`AMPLE`] would not.
pub fn shortfall(problem: &Problem) -> Vec<(&'static Kind, Option<u32>)> {
    let mut more: Vec<(&'static Kind, Option<u32>)> = Vec::new();
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
        let needed = solve(&larger).ok().map(|plan| {
            let mut used: Vec<usize> = plan
                .slices
                .iter()
                .filter(|slice| slice.kind == gpus.kind.name)
                .map(|slice| slice.gpu)
                .collect();
            used.dedup();
            let used = u32::try_from(used.len()).unwrap_or(u32::MAX);
            used.saturating_add(problem.rules.spare_gpus).saturating_sub(have)
        });
        more.push((gpus.kind, needed));
    }
    more
}
