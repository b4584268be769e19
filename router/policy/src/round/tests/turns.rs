//! What single rounds decide.

use super::*;
use crate::{fleet::Absent, job::State};

#[test]
fn a_new_model_is_placed_cut_for_loaded_and_admitted() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    assert_eq!(bench.serving("m"), 1);
    let link = bench.world.links.values().next().unwrap();
    assert_eq!(*link, Link::InRotation { busy: false });
    let absent = &bench.last.unwrap().advice["m"].absent;
    assert!(matches!(absent, Absent::Loading(_)), "{absent:?}");
}

#[test]
fn a_plan_is_made_only_when_something_changed() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    assert!(!bench.round(20).planned, "nothing changed");
    bench.change_model(0, |model| model.replicas_min = 2);
    bench.world.rested = false;
    let tired = bench.round(20);
    assert!(!tired.planned && tired.plan_due);
    bench.world.rested = true;
    assert!(bench.round(20).planned);
}

#[test]
fn a_job_starts_on_a_slice_cut_for_it_and_beside_a_replica() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    bench.world.jobs.push(job(7, 1, 1, bench.now_ms));
    bench.settle();
    assert_eq!(bench.life(7).state, State::Running);
    assert_eq!(bench.serving("m"), 1);
}

#[test]
fn needed_slice_is_reclaimed_in_the_round_that_sees_it() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    bench.world.jobs.push(job(7, 1, 1, bench.now_ms));
    bench.settle();
    bench.world.drained.insert("w0".to_owned());
    let round = bench.round(20);
    assert!(round.reclaims());
    assert!(round.progress.holds["w0"].iter().any(|line| line.starts_with("job 7 on gpu0")));
    assert_eq!(bench.life(7).state, State::Noticed);
    let told = &bench.told["w0"].gpus[0].slices;
    let stops: Vec<_> = told.iter().filter_map(|one| one.rank.as_ref()?.stop_notice_ms).collect();
    assert_eq!(stops, [2_000]);
    bench.round(20);
    assert_eq!(bench.life(7).state, State::Preempted);
    bench.settle();
    assert!(bench.last.unwrap().progress.holds["w0"].is_empty());
}

#[test]
fn nothing_is_told_of_jobs_that_could_not_be_committed() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    bench.world.jobs.push(job(7, 1, 1, bench.now_ms));
    bench.commits = false;
    bench.change_model(0, |model| model.replicas_min = 2);
    bench.settle();
    let ranks = bench.told.values().flat_map(|told| &told.gpus).flat_map(|gpu| &gpu.slices);
    assert_eq!(ranks.filter(|slice| slice.rank.is_some()).count(), 0);
    assert_eq!(bench.serving("m"), 2, "placement goes on");
    bench.commits = true;
    bench.settle();
    assert_eq!(bench.life(7).state, State::Running);
}

#[test]
fn another_revision_is_admitted_once_the_earlier_one_leaves() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    let digests = |bench: &Bench| -> Vec<u64> {
        bench.memory.place.asked()["w0"].iter().map(|one| one.digest).collect()
    };
    assert_eq!(digests(&bench), [1]);
    bench.change_model(0, |model| {
        model.editions.values_mut().for_each(|one| *one = edition(2));
    });
    let mut both = false;
    for _ in 0..20 {
        bench.round(100);
        both |= digests(&bench).len() == 2;
        let asked = &bench.memory.place.asked()["w0"];
        let earlier = asked.iter().any(|one| one.digest == 1 && !one.leaving);
        let later = asked.iter().any(|one| one.digest == 2 && one.serves);
        assert!(!earlier || !later, "one revision at a time");
    }
    assert!(both, "the successor is loaded before the other goes");
    assert_eq!(digests(&bench), [2]);
}

#[test]
fn a_revision_with_a_smaller_batch_keeps_its_replicas() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    bench.change_model(0, |model| {
        let smaller = Edition { digest: 2, without_max_batch: 1, without_content: 2, max_batch: 2 };
        model.editions.values_mut().for_each(|one| *one = smaller);
    });
    bench.settle();
    assert_eq!(bench.memory.place.asked()["w0"][0].digest, 1);
}

#[test]
fn a_replica_with_batches_is_drained_before_it_goes() {
    let mut bench = Bench::new(2, &["m"]);
    bench.settle();
    let id = bench.world.links.keys().next().unwrap().clone();
    bench.world.drained.insert(id.worker.clone());
    for _ in 0..20 {
        if bench.round(100).drain.contains(&id) {
            break;
        }
    }
    let link = bench.world.links.get_mut(&id).expect("it is still there");
    *link = Link::Draining { busy: true };
    bench.round(100);
    assert!(bench.memory.place.asked()[&id.worker].iter().any(|one| one.id == id.replica));
    bench.world.links.insert(id.clone(), Link::Draining { busy: false });
    bench.round(100);
    assert!(bench.memory.place.asked()[&id.worker].is_empty());
}

#[test]
fn a_model_that_nobody_asks_is_scaled_to_zero_and_says_so() {
    let mut bench = Bench::new(1, &["m"]);
    bench.change_model(0, |model| model.replicas_min = 0);
    bench.world.rules.idle = Duration::from_secs(20);
    bench.settle();
    bench.settle();
    assert_eq!(bench.serving("m"), 0);
    assert_eq!(bench.last.unwrap().advice["m"].absent, Absent::Asleep);
}

#[test]
fn replicas_found_running_are_taken_over() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    bench.memory = Memory::new(bench.world.now, BTreeMap::new());
    let round = bench.round(100);
    assert!(round.events.is_empty(), "{:?}", round.events);
    assert_eq!(bench.serving("m"), 1);
}

#[test]
fn a_moved_pin_is_told_once_its_model_has_left() {
    let mut bench = Bench::new(2, &["m"]);
    bench.settle();
    let from = bench.memory.place.asked().values().flatten().next().unwrap().slice.clone();
    let other = if from.worker == "w0" { "w1" } else { "w0" };
    let at = SliceId { worker: other.to_owned(), ..from.clone() };
    let pin =
        PinOrder { model: "m".to_owned(), at: at.clone(), from: Some(from), by: String::new() };
    bench.world.pins = vec![pin.clone()];
    let moved = (0..30).any(|_| bench.round(100).moved_pins == [pin.clone()]);
    assert!(moved);
    let asked = bench.memory.place.asked();
    assert!(asked[other].iter().any(|one| one.slice == at));
    assert_eq!(bench.last.unwrap().progress.pins, [PinProgress::Held]);
}

#[test]
fn new_model_that_slows_down_gets_no_second_replica() {
    let mut bench = Bench::new(1, &["m"]);
    for _ in 0..10 {
        bench.round(20);
    }
    assert_eq!(bench.serving("m"), 1);
    bench.change_model(0, |model| {
        let rows = model.measured.iter_mut().flat_map(|one| &mut one.rows);
        rows.for_each(|row| row.throughput_rps /= 2.0);
    });
    for _ in 0..10 {
        bench.round(20);
        assert_eq!(bench.world.links.len(), 1);
    }
    assert_eq!(bench.serving("m"), 1);
}

/// Two replicas that serve, the first of which is to go.
fn leaving() -> (Bench, ReplicaId, ReplicaId) {
    let mut bench = Bench::new(2, &["m"]);
    bench.change_model(0, |model| model.replicas_min = 2);
    bench.settle();
    bench.world.rested = false;
    let ids: Vec<ReplicaId> = bench.world.links.keys().cloned().collect();
    let [first, second] = ids.try_into().expect("two replicas");
    let asked = bench.memory.place.asked.values_mut().flatten();
    asked.filter(|one| one.id() == first).for_each(|one| one.leaving = true);
    (bench, first, second)
}

#[test]
fn replica_stays_while_the_one_that_remains_drains() {
    let (mut bench, first, second) = leaving();
    bench.world.links.insert(second.clone(), Link::Draining { busy: true });
    assert_eq!(bench.round(20).drain, []);
    bench.world.links.insert(second, Link::InRotation { busy: true });
    assert_eq!(bench.round(20).drain, [first]);
}

#[test]
fn leaving_replica_without_batches_is_drained_before_it_goes() {
    let (mut bench, first, _) = leaving();
    let is_asked =
        |bench: &Bench| bench.memory.place.asked().values().flatten().any(|one| one.id() == first);
    bench.world.links.insert(first.clone(), Link::Connected);
    assert!(bench.round(20).drain.contains(&first));
    assert!(is_asked(&bench), "a report may have admitted it meanwhile");
    bench.round(20);
    assert!(!is_asked(&bench));
}

#[test]
fn model_serves_on_while_its_slice_is_cut_away() {
    let mut bench = Bench::new(1, &["moves", "stays"]);
    for index in 0..2 {
        bench.change_model(index, |model| {
            model.measured[0].rows.retain(|row| row.profile == "7g.80gb");
            model.replicas_max = 1;
        });
    }
    let pin = |bench: &mut Bench, positions: &[&str]| {
        let list = positions.iter().map(|text| (*text).to_owned()).collect();
        bench.world.workers[0].gpus[0].pinned = Some(list);
    };
    pin(&mut bench, &["3g.40gb@0", "3g.40gb@4"]);
    bench.round(20);
    bench.world.rested = false;
    bench.round(20);
    // The next plan is the first since the replicas were started.
    pin(&mut bench, &["2g.20gb@0", "1g.10gb@2", "3g.40gb@4"]);
    for turn in 0..60 {
        bench.world.rested = turn >= 20;
        bench.ask("moves", 5, 0);
        bench.ask("stays", 5, 0);
        bench.round(100);
        let mut asked = bench.memory.place.asked().values().flatten();
        let serves = asked.any(|one| {
            let link = bench.world.links.get(&one.id());
            one.model == "moves" && matches!(link, Some(Link::InRotation { .. }))
        });
        assert!(serves, "turn {turn}");
    }
    assert!(bench.world.workers[0].gpus[0].slices.iter().all(|one| one.position != "3g.40gb@0"));
}

#[test]
fn model_has_not_failed_by_a_plan_of_an_earlier_fleet() {
    let mut bench = Bench::new(1, &["m"]);
    bench.world.drained.insert("w0".to_owned());
    bench.round(20);
    bench.world.drained.clear();
    bench.world.rested = false;
    let round = bench.round(20);
    assert!(round.plan_due);
    let absent = &round.advice["m"].absent;
    assert!(matches!(absent, Absent::Loading(_)), "{absent:?}");
}

#[test]
fn unmeasured_model_grows_while_late_and_shrinks_when_idle() {
    let mut bench = Bench::new(2, &["m"]);
    bench.change_model(0, |model| {
        model.measured.clear();
        model.replicas_max = 3;
    });
    bench.settle();
    assert_eq!(bench.serving("m"), 1, "as few as may be");
    for _ in 0..10 {
        bench.ask("m", 1_000, 0);
        bench.round(1_000);
    }
    assert_eq!(bench.serving("m"), 1, "no rate says that it needs more");
    let work = |bench: &mut Bench, busy_us: u64| {
        for worker in &mut bench.world.workers {
            for slice in worker.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices) {
                slice.processes = 1;
                slice.busy_us += if slice.replicas.is_empty() { 0 } else { busy_us };
            }
        }
    };
    for _ in 0..40 {
        bench.ask("m", 1_000, 100);
        work(&mut bench, 950_000);
        bench.round(1_000);
    }
    assert_eq!(bench.serving("m"), 3, "at most as many as may be");
    for _ in 0..40 {
        bench.ask("m", 10, 0);
        work(&mut bench, 20_000);
        bench.round(1_000);
    }
    assert_eq!(bench.serving("m"), 1);
}

#[test]
fn an_unloaded_model_frees_its_slices_until_it_is_loaded() {
    let mut bench = Bench::new(1, &["m", "n"]);
    bench.settle();
    assert_eq!((bench.serving("m"), bench.serving("n")), (1, 1));
    bench.world.unloaded.insert("m".to_owned());
    bench.world.traffic.get_mut("m").unwrap().waiting = 1;
    bench.settle();
    assert_eq!(bench.serving("m"), 1, "what waits is served first");
    bench.world.traffic.get_mut("m").unwrap().waiting = 0;
    bench.settle();
    assert_eq!((bench.serving("m"), bench.serving("n")), (0, 1));
    // As much as it was ever asked for brings nothing back.
    for _ in 0..30 {
        bench.ask("m", 50, 50);
        bench.round(1_000);
    }
    assert_eq!((bench.serving("m"), bench.serving("n")), (0, 1));
    bench.world.unloaded.clear();
    bench.settle();
    assert!(bench.serving("m") >= 1);
}

#[test]
fn pin_of_an_unloaded_model_waits_and_says_why() {
    let mut bench = Bench::new(1, &["m"]);
    bench.settle();
    let at = bench.memory.place.asked().values().flatten().next().unwrap().slice.clone();
    let (model, by) = ("m".to_owned(), "ada".to_owned());
    bench.world.pins = vec![PinOrder { model, at, from: None, by }];
    bench.settle();
    assert_eq!(bench.last.as_ref().unwrap().progress.pins, [PinProgress::Held]);
    bench.world.unloaded.insert("m".to_owned());
    bench.settle();
    assert_eq!(bench.serving("m"), 0);
    let why = Some("its model is unloaded".to_owned());
    assert_eq!(bench.last.unwrap().progress.pins, [PinProgress::Waiting { why }]);
}

#[test]
fn replica_of_unknown_content_stays_until_content_changes() {
    let mut bench = Bench::new(1, &["m"]);
    let content =
        |digest| Edition { digest, without_max_batch: digest, without_content: 1, max_batch: 4 };
    let set = |bench: &mut Bench, edition: Edition| {
        bench.change_model(0, |model| {
            model.editions.values_mut().for_each(|one| *one = edition);
        });
    };
    let ids = |bench: &Bench| bench.world.links.keys().cloned().collect::<Vec<_>>();
    bench.settle();
    let before = ids(&bench);
    // A router that looks at files takes over from one that did not.
    bench.memory = Memory::new(bench.world.now, BTreeMap::new());
    set(&mut bench, content(7));
    bench.settle();
    assert_eq!(ids(&bench), before);
    set(&mut bench, content(8));
    bench.settle();
    assert_ne!(ids(&bench), before);
    assert_eq!(bench.serving("m"), 1);
}
