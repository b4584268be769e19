//! What must hold whatever the order.

use std::collections::{HashMap, HashSet};

use policy::loan::{Act, Decisions, Held, Job, JobId, LoanWorld, Phase, Slice};

/// What is decided may only give what is free, to those who wait or run, and whole.
pub(super) fn of_decisions(world: &LoanWorld<'_>, decisions: &Decisions) -> Result<(), String> {
    let jobs: HashMap<JobId, &Job> = world.jobs.iter().map(|job| (job.id, job)).collect();
    let mut given = HashSet::new();
    let mut give = |job: JobId, slices: &[usize]| {
        for slice in slices {
            if world.slices[*slice].held != Held::Free || !given.insert(*slice) {
                return Err(format!("slice {slice} is given to {job} and is not free"));
            }
            if !jobs[&job].ask.suits(&world.slices[*slice]) {
                return Err(format!("slice {slice} does not suit {job}"));
            }
        }
        Ok(())
    };
    let mut told = HashSet::new();
    for act in &decisions.acts {
        match act {
            Act::Start { job, slices, .. } => {
                give(*job, slices)?;
                let ask = &jobs[job].ask;
                let range = ask.least as usize..=ask.most as usize;
                if !range.contains(&slices.len()) || jobs[job].waited(world.now).is_none() {
                    return Err(format!("{job} starts on {} slices", slices.len()));
                }
            }
            Act::Grow { job, slices } => give(*job, slices)?,
            Act::Shrink { job, slices, .. } => {
                let mine = |slice: &usize| world.slices[*slice].held == Held::Lent(*job);
                if !slices.iter().all(mine) || !told.insert(*job) {
                    return Err(format!("{job} is to give back what it has not, or twice"));
                }
            }
            Act::Stop { job, .. } => {
                if !told.insert(*job) {
                    return Err(format!("{job} is stopped twice"));
                }
            }
            Act::Renew { .. } => {}
        }
    }
    told_of_all(world, decisions)
}

/// Every job either runs, starts, or is told why not.
fn told_of_all(world: &LoanWorld<'_>, decisions: &Decisions) -> Result<(), String> {
    let waits: HashSet<JobId> = decisions.waits.iter().map(|wait| wait.job).collect();
    let starts: HashSet<JobId> = decisions
        .acts
        .iter()
        .filter_map(|act| match act {
            Act::Start { job, .. } => Some(*job),
            Act::Renew { .. } | Act::Grow { .. } | Act::Shrink { .. } | Act::Stop { .. } => None,
        })
        .collect();
    for job in world.jobs {
        let runs = matches!(job.phase, Phase::Running { .. });
        let told = [runs, waits.contains(&job.id), starts.contains(&job.id)];
        if told.into_iter().filter(|told| *told).count() != 1 {
            return Err(format!("{} gets {told:?} (runs, waits, starts)", job.id));
        }
    }
    Ok(())
}

/// Running jobs hold all they need, others hold nothing, and the dead hold nothing.
pub(super) fn of_state(slices: &[Slice], jobs: &[Job]) -> Result<(), String> {
    let mut held: HashMap<JobId, usize> = HashMap::new();
    for slice in slices {
        if let Held::Lent(id) = slice.held {
            *held.entry(id).or_default() += 1;
        }
    }
    for job in jobs {
        let holds = held.remove(&job.id).unwrap_or(0);
        let range = match job.phase {
            Phase::Running { .. } => job.ask.least as usize..=job.ask.most as usize,
            Phase::Waiting { .. } | Phase::Leaving => 0..=0,
        };
        if !range.contains(&holds) {
            return Err(format!("{} holds {holds} slices, not {range:?}", job.id));
        }
    }
    match held.into_iter().next() {
        Some((job, slices)) => Err(format!("{job} has ended and holds {slices} slices")),
        None => Ok(()),
    }
}
