//! Claims that hold in every round, over seeds.

use super::*;
use crate::job::State;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What jobs were given, by job, in GPU-seconds.
type Given = BTreeMap<u64, f64>;

fn check(bench: &Bench, seed: u64) {
    let mut owners: BTreeMap<SliceId, u64> = BTreeMap::new();
    for job in &bench.world.jobs {
        let mine: BTreeSet<&SliceId> = job.life.slices().collect();
        for slice in mine {
            let before = owners.insert(slice.clone(), job.id);
            assert_eq!(before, None, "seed {seed}: {slice} of job {} too", job.id);
        }
        let held = u32::try_from(job.life.seats.len()).unwrap();
        let whole = held == 0 || (job.ask.least..=job.ask.most).contains(&held);
        assert!(whole, "seed {seed}: job {} has {held} slices", job.id);
    }
    let mut ranks: BTreeMap<u64, usize> = BTreeMap::new();
    for (worker, told) in &bench.told {
        for gpu in &told.gpus {
            let id = GpuId { worker: worker.clone(), gpu: gpu.gpu };
            for slice in &gpu.slices {
                let at = id.slice(slice.position.clone());
                let owner = owners.get(&at);
                assert!(
                    slice.replicas.is_empty() || owner.is_none(),
                    "seed {seed}: {at} serves and is lent to {owner:?}"
                );
                if let Some(rank) = &slice.rank {
                    assert_eq!(owner, Some(&rank.job), "seed {seed}: sent but not committed");
                    *ranks.entry(rank.job).or_default() += 1;
                }
            }
        }
    }
    for job in &bench.world.jobs {
        let told = ranks.get(&job.id).copied().unwrap_or(0);
        assert_eq!(told, job.life.seats.len(), "seed {seed}: a gang is sent whole");
    }
}

fn disturb(bench: &mut Bench, dice: &mut Dice, next: &mut u64) {
    bench.commits = dice.below(6) > 0;
    bench.world.rested = dice.below(3) > 0;
    match dice.below(8) {
        0 => {
            let least = 1 + u32::try_from(dice.below(3)).unwrap();
            let most = least + u32::try_from(dice.below(3)).unwrap();
            bench.world.jobs.push(job(*next, least, most, bench.now_ms));
            *next += 1;
        }
        1 => {
            let name = format!("w{}", dice.below(3));
            if !bench.world.drained.remove(&name) {
                bench.world.drained.insert(name);
            }
        }
        2 => {
            let least = 1 + u32::try_from(dice.below(3)).unwrap();
            let model = usize::try_from(dice.below(2)).unwrap();
            bench.change_model(model, |one| one.replicas_min = least);
        }
        3 => {
            // A client cancels: the round that read the job loses.
            if let Some(job) = bench.world.jobs.first_mut()
                && job.life.state.waits()
            {
                job.life.enter(State::Cancelled, "by request", bench.now_ms);
                bench.world.jobs.remove(0);
            }
        }
        _ => {
            let late = dice.below(30);
            bench.ask("a", 30 + 40 * dice.below(10), late);
            bench.ask("b", 30, 0);
        }
    }
}

#[test]
fn no_slice_has_two_owners_and_gangs_are_whole_over_seeds() {
    let mut ran = 0;
    for seed in 0..4 {
        let mut bench = Bench::new(3, &["a", "b"]);
        let (mut dice, mut next) = (Dice(seed), 1);
        let mut given = Given::new();
        for _ in 0..60 {
            disturb(&mut bench, &mut dice, &mut next);
            let ms = 200 + dice.below(2_000);
            let before: Vec<(u64, Life)> =
                bench.world.jobs.iter().map(|job| (job.id, job.life.clone())).collect();
            let settled_ms = bench.memory.loans.settled.micros() / 1000;
            let elapsed_s = bench.now_ms.saturating_sub(settled_ms) as f64 / 1e3;
            bench.round(ms);
            check(&bench, seed);
            if bench.commits {
                for (id, life) in before.iter().filter(|(_, life)| !life.seats.is_empty()) {
                    *given.entry(*id).or_default() += elapsed_s * life.gpus;
                }
            }
        }
        for job in &bench.world.jobs {
            let given = given.get(&job.id).copied().unwrap_or(0.0);
            let attained = job.life.attained_gpu_s;
            assert!((given - attained).abs() < 1e-6, "seed {seed}: {given} given, {attained}");
            ran += u32::from(job.life.run > 0);
        }
    }
    assert!(ran > 2, "{ran} jobs ran");
}
