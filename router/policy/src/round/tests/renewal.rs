//! Executors of an earlier program are replaced, one by one, where that costs nothing.

use super::*;

/// Two replicas of `m`, whose executors outlived an upgrade of their worker.
fn upgraded(memory_mib: u64) -> (Bench, BTreeSet<u32>) {
    let mut bench = Bench::new(1, &["m"]);
    bench.change_model(0, |model| {
        (model.replicas_min, model.replicas_max, model.memory_mib) = (2, 2, Some(memory_mib));
    });
    bench.settle();
    let mut old = BTreeSet::new();
    for replica in replicas(&mut bench) {
        assert_eq!(replica.process, 0);
        replica.aged = true;
        old.insert(replica.id);
    }
    assert_eq!(old.len(), 2);
    (bench, old)
}

fn replicas(bench: &mut Bench) -> impl Iterator<Item = &mut SeenReplica> {
    let gpus = bench.world.workers.iter_mut().flat_map(|worker| &mut worker.gpus);
    gpus.flat_map(|gpu| &mut gpu.slices).flat_map(|slice| &mut slice.replicas)
}

fn in_rotation(bench: &Bench) -> usize {
    bench.world.links.values().filter(|link| matches!(link, Link::InRotation { .. })).count()
}

#[test]
fn aged_executors_are_replaced_one_by_one() {
    let (mut bench, old) = upgraded(1_000);
    for _ in 0..60 {
        let old_before = replicas(&mut bench).filter(|one| old.contains(&one.id)).count();
        let round = bench.round(1_000);
        let here: Vec<bool> = replicas(&mut bench).map(|one| old.contains(&one.id)).collect();
        let old_after = here.iter().filter(|is_old| **is_old).count();
        assert!(here.len() <= 3, "more than one has a successor: {:?}", round.events);
        assert!(old_before - old_after <= 1, "both went at once: {:?}", round.events);
        assert!(in_rotation(&bench) >= 2, "too few serve: {:?}", bench.world.links);
    }
    let ids: BTreeSet<u32> = replicas(&mut bench).map(|one| one.id).collect();
    assert_eq!(ids.len(), 2);
    assert!(ids.is_disjoint(&old), "{ids:?} were there before");
    let processes: Vec<u32> = replicas(&mut bench).map(|one| one.process).collect();
    assert_eq!(processes, [1, 1], "they were loaded by the processes that are to go");
}

#[test]
fn aged_executor_stays_where_there_is_no_room_for_both() {
    let (mut bench, old) = upgraded(39_000);
    let slices = bench.world.workers[0].gpus[0].slices.len();
    for _ in 0..60 {
        bench.round(1_000);
        let ids: BTreeSet<u32> = replicas(&mut bench).map(|one| one.id).collect();
        assert_eq!(ids, old, "{slices} slices");
    }
}
