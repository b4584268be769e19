//! What is left of the GPUs in use, spread evenly.
//!
//! A plan is made for so many requests per second, and chance brings more for a moment. Of all plans
//! with as few GPUs the one to have is that which could serve the most: every demand times the same
//! factor, as large as it can be without another GPU.

use super::{MANY, Plan, PlanError, Problem, solve};
use crate::interference::Draw;

/// How often a larger factor is tried.
const TRIES: u32 = 5;
/// More than this much over the demand is of no use against chance.
const MOST: f64 = 1.25;

/// The best plan found within the rules, with as much room as its GPUs leave.
///
/// Where neighbours are felt, what is left is left: who fills it slows the others.
pub fn solve_roomily(problem: &Problem) -> Result<Plan, PlanError> {
    let mut best = solve(problem)?;
    let felt = problem.models.iter().any(|model| model.load != Draw::default());
    if felt || problem.models.len() > MANY {
        return Ok(best);
    }
    let bounds = (best.bound_gpus, best.lower_bound_gpus);
    let possible = f64::from(best.gpus_used) / best.lower_bound_gpus.max(1e-9);
    let (mut least, mut most) = (1.0, possible.min(MOST));
    for _ in 0..TRIES {
        let factor = f64::midpoint(least, most);
        match solve(&scaled(problem, factor)) {
            Ok(plan) if plan.gpus_used <= best.gpus_used => {
                best = plan;
                least = factor;
            }
            Ok(_) | Err(_) => most = factor,
        }
    }
    (best.bound_gpus, best.lower_bound_gpus) = bounds;
    Ok(best)
}

fn scaled(problem: &Problem, factor: f64) -> Problem {
    let mut larger = problem.clone();
    for model in &mut larger.models {
        model.demand_rps *= factor;
    }
    larger.rules.work /= u64::from(TRIES);
    larger
}
