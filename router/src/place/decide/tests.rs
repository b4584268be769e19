use super::*;

fn model(least: u32) -> ModelSeen {
    ModelSeen { memory_mib: 10, least }
}

fn slice(gpu: usize) -> SliceSeen {
    SliceSeen { gpu, memory_mib: 25, exists: true, stays: true, leaving: false, lent: false }
}

fn replica(model: usize, slice: usize) -> ReplicaSeen {
    ReplicaSeen { model: Some(model), slice, memory_mib: 10, current: true, serves: true }
}

fn old(model: usize, slice: usize) -> ReplicaSeen {
    ReplicaSeen { current: false, ..replica(model, slice) }
}

fn loading(model: usize, slice: usize) -> ReplicaSeen {
    ReplicaSeen { serves: false, ..replica(model, slice) }
}

#[test]
fn what_is_missing_is_spread_and_what_is_there_stays() {
    let models = vec![model(2), model(1)];
    let slices = vec![slice(0), slice(1)];
    let empty = Snapshot { models, slices, replicas: vec![] };
    let decision = decide(&empty);
    assert_eq!(decision.add, [(0, 0), (0, 1), (1, 0)]);
    let replicas = decision.add.iter().map(|(model, slice)| replica(*model, *slice)).collect();
    let settled = decide(&Snapshot { replicas, ..empty });
    let keep = vec![0, 1, 2];
    assert_eq!(settled, Decision { admit: keep.clone(), keep, ..Decision::default() });
}

#[test]
fn of_too_many_those_that_serve_are_kept_and_then_the_oldest() {
    let replicas = vec![loading(0, 0), replica(0, 1), replica(0, 0)];
    let slices = vec![slice(0), slice(1)];
    let decision = decide(&Snapshot { models: vec![model(1)], slices, replicas });
    assert_eq!((decision.keep, decision.admit), (vec![1], vec![1]));
}

#[test]
fn an_old_replica_goes_only_when_enough_new_ones_serve() {
    let decide = |replicas: Vec<ReplicaSeen>| {
        decide(&Snapshot { models: vec![model(1)], slices: vec![slice(0)], replicas })
    };
    let first = decide(vec![old(0, 0)]);
    assert_eq!((first.keep, first.add), (vec![0], vec![(0, 0)]));
    let meanwhile = decide(vec![old(0, 0), loading(0, 0)]);
    assert_eq!((meanwhile.keep, meanwhile.add, meanwhile.admit), (vec![0, 1], vec![], vec![0]));
    let last = decide(vec![old(0, 0), replica(0, 0)]);
    assert_eq!((last.keep, last.admit), (vec![1], vec![1]));
}

#[test]
fn an_old_replica_goes_first_where_there_is_no_room_for_both() {
    let slices = vec![SliceSeen { memory_mib: 15, ..slice(0) }];
    let decision = decide(&Snapshot { models: vec![model(1)], slices, replicas: vec![old(0, 0)] });
    assert_eq!((decision.keep, decision.add), (vec![], vec![(0, 0)]));
}

#[test]
fn a_replica_moves_off_a_slice_that_shall_vanish_before_it_is_cut_away() {
    let vanishing = SliceSeen { stays: false, ..slice(0) };
    let coming = SliceSeen { exists: false, ..slice(0) };
    let slices = vec![vanishing, coming, slice(1)];
    let models = vec![model(1)];
    let before = decide(&Snapshot {
        models: models.clone(),
        slices: slices.clone(),
        replicas: vec![replica(0, 0)],
    });
    assert_eq!((before.keep, before.add, before.admit), (vec![0], vec![(0, 2)], vec![0]));
    let after = decide(&Snapshot { models, slices, replicas: vec![replica(0, 0), replica(0, 2)] });
    assert_eq!(after.keep, [1]);
}

#[test]
fn a_replica_with_nowhere_else_to_go_makes_way_for_the_cut() {
    let vanishing = SliceSeen { stays: false, ..slice(0) };
    let coming = SliceSeen { exists: false, ..slice(0) };
    let slices = vec![vanishing, coming];
    let decision =
        decide(&Snapshot { models: vec![model(1)], slices, replicas: vec![replica(0, 0)] });
    assert_eq!((decision.keep, decision.add), (vec![], vec![(0, 1)]));
}

#[test]
fn replicas_leave_a_worker_that_stops_for_another_or_for_nowhere() {
    let leaving = SliceSeen { stays: false, leaving: true, ..slice(0) };
    let models = vec![model(1)];
    let replicas = vec![replica(0, 0)];
    let alone = Snapshot { models, slices: vec![leaving.clone()], replicas };
    let decision = decide(&alone);
    assert_eq!((decision.keep, decision.unplaced.len()), (vec![], 1));
    let beside = decide(&Snapshot { slices: vec![leaving, slice(1)], ..alone });
    assert_eq!((beside.keep, beside.add), (vec![0], vec![(0, 1)]));
}

#[test]
fn slices_that_are_still_to_be_cut_count_from_the_start() {
    let coming = SliceSeen { exists: false, ..slice(1) };
    let decision = decide(&Snapshot {
        models: vec![model(2)],
        slices: vec![slice(0), coming],
        replicas: vec![],
    });
    assert_eq!(decision.add, [(0, 0), (0, 1)]);
}

#[test]
fn a_model_without_room_is_named_and_others_are_served() {
    let models = vec![ModelSeen { memory_mib: 99, least: 1 }, model(1)];
    let decision = decide(&Snapshot { models, slices: vec![slice(0)], replicas: vec![] });
    assert_eq!(decision.add, [(1, 0)]);
    assert_eq!(decision.unplaced, [(0, NoRoom { needs_mib: 99, most_free_mib: 25 })]);
}

#[test]
fn replicas_of_a_model_that_is_served_no_more_go() {
    let replicas = vec![ReplicaSeen { model: None, ..replica(0, 0) }];
    let decision = decide(&Snapshot { models: vec![], slices: vec![slice(0)], replicas });
    assert_eq!(decision, Decision::default());
}

fn lent(gpu: usize) -> SliceSeen {
    SliceSeen { lent: true, ..slice(gpu) }
}

#[test]
fn a_lent_slice_is_wanted_back_only_when_nothing_else_has_room() {
    let decide = |least, slices| {
        decide(&Snapshot { models: vec![model(least)], slices, replicas: vec![replica(0, 0)] })
    };
    let beside = decide(2, vec![slice(0), lent(1)]);
    assert_eq!((beside.add, beside.wanted_back), (vec![(0, 0)], vec![]));
    let full = decide(4, vec![slice(0), lent(1), lent(2)]);
    let wanted = WantedBack { slices: vec![1, 2], count: 2, urgent: false };
    assert_eq!((full.add, full.wanted_back), (vec![(0, 0)], vec![wanted]));
    assert_eq!(full.unplaced, vec![]);
    let hopeless = decide(9, vec![slice(0), lent(1)]);
    assert_eq!(hopeless.wanted_back[0].count, 1);
    assert_eq!(hopeless.unplaced.len(), 6);
}

#[test]
fn a_lent_slice_is_wanted_urgently_by_a_model_that_nobody_serves() {
    let snapshot = |replicas| {
        let slices = vec![SliceSeen { memory_mib: 10, ..slice(0) }, lent(1)];
        Snapshot { models: vec![model(1), model(1)], slices, replicas }
    };
    let decision = decide(&snapshot(vec![replica(0, 0)]));
    let wanted = WantedBack { slices: vec![1], count: 1, urgent: true };
    assert_eq!(decision.wanted_back, [wanted]);
}

#[test]
fn a_lent_slice_that_shall_vanish_is_wanted_back() {
    let slices = vec![SliceSeen { stays: false, ..lent(0) }];
    let decision = decide(&Snapshot { models: vec![], slices, replicas: vec![] });
    assert_eq!(decision.wanted_back, [WantedBack { slices: vec![0], count: 1, urgent: false }]);
}
