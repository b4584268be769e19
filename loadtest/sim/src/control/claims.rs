//! What must hold after every round.

use std::collections::{BTreeMap, BTreeSet};

use policy::{
    fleet::{GpuId, SliceId},
    round::{Assignment, TrainingJob},
};

/// One owner per slice, gangs whole, nothing told that is not committed, service given = attained.
pub(super) fn check(
    jobs: &[TrainingJob],
    told: &BTreeMap<String, Assignment>,
    given: &BTreeMap<u64, f64>,
) -> Result<(), String> {
    let mut owners: BTreeMap<&SliceId, u64> = BTreeMap::new();
    for job in jobs {
        let mine: BTreeSet<&SliceId> = job.life.slices().collect();
        for slice in mine {
            if let Some(other) = owners.insert(slice, job.id) {
                return Err(format!("jobs {other} and {} have {slice}", job.id));
            }
        }
        let (held, ask) = (job.life.seats.len(), &job.ask);
        if held > 0 && !(ask.least as usize..=ask.most as usize).contains(&held) {
            return Err(format!("job {} has {held} slices, not {ask:?}", job.id));
        }
        let (given, attained) =
            (given.get(&job.id).copied().unwrap_or(0.0), job.life.attained_gpu_s);
        if (given - attained).abs() > 1e-6 * (1.0 + given) {
            return Err(format!("job {} was given {given} GPU-s and attained {attained}", job.id));
        }
    }
    let mut ranks: BTreeMap<u64, usize> = BTreeMap::new();
    for (worker, told) in told {
        for gpu in &told.gpus {
            let id = GpuId { worker: worker.clone(), gpu: gpu.gpu };
            for slice in &gpu.slices {
                let at = id.slice(slice.position.clone());
                let owner = owners.get(&at).copied();
                if !slice.replicas.is_empty() && owner.is_some() {
                    return Err(format!("{at} serves and is lent to {owner:?}"));
                }
                if let Some(rank) = &slice.rank {
                    if owner != Some(rank.job) {
                        return Err(format!(
                            "{at} is asked to run job {}, committed {owner:?}",
                            rank.job
                        ));
                    }
                    *ranks.entry(rank.job).or_default() += 1;
                }
            }
        }
    }
    let half =
        |job: &&TrainingJob| ranks.get(&job.id).copied().unwrap_or(0) != job.life.seats.len();
    match jobs.iter().find(half) {
        Some(job) => Err(format!("only part of the gang of job {} is asked for", job.id)),
        None => Ok(()),
    }
}
