use super::{
    order::{Backfill, Fifo, Gittins, Ltgf, Srtf},
    *,
};

const MINUTE: Duration = Duration::from_secs(60);

fn takes(minutes: u32, ask: Ask) -> Ask {
    Ask { takes: Some(MINUTE * minutes), ..ask }
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut scene = Scene::new(3);
    let gang = scene.waits(ask(4, 4), 0);
    assert_eq!(scene.starts(), []);
    assert_eq!(scene.why(gang).0, Why::TooFew { needs: 4, exist: 3 });
    scene.job(gang).ask = ask(3, 3);
    assert_eq!(scene.starts(), [(gang, 3)]);
}

#[test]
fn a_job_waits_for_slices_with_its_memory() {
    let mut scene = Scene::new(2);
    scene.slices[1].memory_mib = 40_000;
    let large = scene.waits(Ask { memory_mib: 20_000, ..ask(1, 1) }, 0);
    let small = scene.waits(ask(1, 1), 1);
    assert_eq!(scene.starts(), [(large, 1), (small, 1)]);
    scene.slices[1].held = Held::Inference;
    assert_eq!(scene.why(large).0, Why::TooFewIdle { needs: 1, idle: 0 });
    assert_eq!(scene.starts(), [(small, 1)], "it does not need what the first waits for");
}

#[test]
fn first_come_first_served_lets_nobody_pass() {
    let mut scene = Scene::ordered(Fifo, 3);
    scene.runs(takes(180, ask(2, 2)), &[0, 1], 0);
    let first = scene.waits(ask(3, 3), 10);
    let small = scene.waits(takes(1, ask(1, 1)), 20);
    assert_eq!(scene.starts(), []);
    assert_eq!(scene.why(small).0, Why::Behind { ahead: 1, first });
}

#[test]
fn a_short_job_backfills_and_a_long_one_does_not() {
    let mut scene = Scene::ordered(Backfill, 3);
    scene.runs(takes(130, ask(2, 2)), &[0, 1], 0);
    let first = scene.waits(takes(60, ask(3, 3)), 10);
    let long = scene.waits(takes(131, ask(1, 1)), 20);
    let short = scene.waits(takes(100, ask(1, 1)), 30);
    // The first has run for two hours and takes ten minutes more: by its owner's word, 130.
    let free_at = scene.now + MINUTE * 130;
    assert_eq!(scene.why(first), (Why::TooFewIdle { needs: 3, idle: 1 }, Some(free_at)));
    assert_eq!(scene.starts(), [(short, 1)]);
    assert_eq!(scene.why(long).0, Why::Behind { ahead: 1, first });
}

#[test]
fn a_long_job_backfills_what_the_first_does_not_need() {
    let mut scene = Scene::ordered(Backfill, 4);
    scene.runs(takes(130, ask(2, 2)), &[0, 1], 0);
    scene.waits(takes(60, ask(3, 3)), 10);
    let long = scene.waits(takes(600, ask(1, 1)), 20);
    let longer = scene.waits(takes(600, ask(1, 1)), 30);
    assert_eq!(scene.starts(), [(long, 1)]);
    assert!(matches!(scene.why(longer).0, Why::Behind { .. }));
}

#[test]
fn a_new_job_stops_one_that_has_had_much() {
    let mut scene = Scene::new(1);
    let old = scene.runs(ask(1, 1), &[0], 0);
    scene.job(old).attained = 5000.0;
    let new = scene.waits(ask(1, 1), 7100);
    let [(stopped, by, why)] = scene.stops()[..] else { panic!("one job stops") };
    assert_eq!((stopped, by), (old, scene.now + Duration::from_secs(10)));
    assert_eq!(why, Stop::Yields { to: new });
    assert_eq!(scene.why(new), (Why::Coming { count: 1 }, Some(by)));
}

#[test]
fn a_job_is_left_alone_for_its_lease() {
    let mut scene = Scene::new(1);
    let old = scene.runs(ask(1, 1), &[0], 7150);
    scene.job(old).attained = 5000.0;
    let new = scene.waits(ask(1, 1), 7160);
    assert_eq!(scene.stops(), []);
    let free_at = at(7150) + MINUTE + scene.rules.notice;
    assert_eq!(scene.why(new), (Why::TooFewIdle { needs: 1, idle: 0 }, Some(free_at)));
}

#[test]
fn jobs_of_one_queue_do_not_stop_each_other() {
    let mut scene = Scene::new(1);
    let old = scene.runs(ask(1, 1), &[0], 0);
    scene.job(old).attained = 3000.0;
    scene.waits(ask(1, 1), 7100);
    assert_eq!(scene.stops(), []);
}

#[test]
fn no_job_stops_for_a_gang_that_cannot_start() {
    let mut scene = Scene::new(3);
    let old = scene.runs(ask(1, 1), &[0], 0);
    scene.job(old).attained = 5000.0;
    scene.runs(ask(1, 1), &[1], 7190);
    scene.waits(ask(3, 3), 7000);
    assert_eq!(scene.stops(), []);
}

#[test]
fn a_second_decision_asks_nobody_else_while_slices_are_coming() {
    let mut scene = Scene::new(2);
    let old = [scene.runs(ask(1, 1), &[0], 0), scene.runs(ask(1, 1), &[1], 0)];
    old.into_iter().for_each(|job| scene.job(job).attained = 5000.0);
    let new = scene.waits(ask(1, 1), 7100);
    let [(stopped, by, _)] = scene.stops()[..] else { panic!("one job stops") };
    scene.job(stopped).phase = Phase::Leaving;
    for slice in &mut scene.slices {
        if slice.held == Held::Lent(stopped) {
            slice.held = Held::Leaving { by };
        }
    }
    scene.now = scene.now + Duration::from_secs(1);
    assert_eq!(scene.stops(), []);
    assert_eq!(scene.why(new), (Why::Coming { count: 1 }, Some(by)));
    assert_eq!(scene.why(stopped).0, Why::Stopping);
}

#[test]
fn starving_job_goes_first_and_its_past_is_forgiven() {
    let mut scene = Scene::new(1);
    scene.now = at(8 * 3600);
    let poor = scene.waits(ask(1, 1), 3600);
    scene.job(poor).attained = 50_000.0;
    let new = scene.waits(ask(1, 1), 8 * 3600);
    let acts = scene.decide().acts;
    let Some(Act::Start { job, why, .. }) = acts.first() else { panic!("one job starts") };
    assert_eq!((*job, *why), (poor, Start::Promoted { waited: Duration::from_secs(7 * 3600) }));
    assert!(matches!(scene.why(new).0, Why::TooFewIdle { .. }));
}

#[test]
fn a_tenant_holds_no_more_than_its_quota() {
    let mut scene = Scene::new(5);
    scene.tenants[0].quota = 3;
    scene.runs(ask(2, 2), &[0, 1], 0);
    let over = scene.waits(ask(2, 2), 10);
    let within = scene.waits(ask(1, 2), 20);
    assert_eq!(scene.starts(), [(within, 1)], "nor by growing");
    assert_eq!(scene.why(over).0, Why::Quota { needs: 2, held: 2, quota: 3 });
}

#[test]
fn the_tenant_that_had_least_of_what_it_deserves_goes_first() {
    let mut scene = Scene::new(1);
    scene.rules.fair_tenants = true;
    scene.tenants[0].account = Account { received: 900.0, deserved: 1000.0 };
    scene.tenants[1].account = Account { received: 100.0, deserved: 1000.0 };
    scene.waits(ask(1, 1), 0);
    let poorer = scene.waits(Ask { tenant: 1, ..ask(1, 1) }, 10);
    assert_eq!(scene.starts(), [(poorer, 1)]);
}

#[test]
fn tenant_above_its_share_yields_to_one_below() {
    let mut scene = Scene::new(4);
    scene.rules.fair_tenants = true;
    let rich: Vec<JobId> = (0..4).map(|slice| scene.runs(ask(1, 1), &[slice], 0)).collect();
    for second in 0..3 {
        scene.waits(Ask { tenant: 1, ..ask(1, 1) }, 7000 + second);
    }
    let stopped: Vec<JobId> = scene.stops().into_iter().map(|(job, _, _)| job).collect();
    assert_eq!(stopped, [rich[3], rich[2]], "two of four slices are its share");
}

#[test]
fn running_job_yields_only_to_a_clearly_shorter_one() {
    let mut scene = Scene::ordered(Srtf, 1);
    scene.runs(takes(60, ask(1, 1)), &[0], 0);
    let similar = scene.waits(takes(40, ask(1, 1)), 10);
    assert_eq!(scene.stops(), []);
    scene.job(similar).ask = takes(5, ask(1, 1));
    assert_eq!(scene.stops().len(), 1);
}

#[test]
fn gittins_puts_the_job_first_that_is_likely_to_end_soon() {
    let mut scene = Scene::ordered(Gittins, 1);
    (0..20).for_each(|_| scene.history.add(6000.0));
    scene.history.add(1e6);
    let young = scene.waits(ask(1, 1), 0);
    let ripe = scene.waits(ask(1, 1), 10);
    scene.job(ripe).attained = 5500.0;
    assert_eq!(scene.starts(), [(ripe, 1)]);
    scene.job(ripe).attained = 9000.0;
    assert_eq!(scene.starts(), [(young, 1)], "what should have ended is not expected to soon");
}

#[test]
fn ltgf_starts_the_job_with_the_least_time_in_a_tenant() {
    let mut scene = Scene::ordered(Ltgf, 1);
    let served = scene.waits(ask(1, 1), 0);
    scene.job(served).ran = MINUTE * 60;
    let waited = scene.waits(ask(1, 1), 100);
    assert_eq!(scene.starts(), [(waited, 1)]);
}

#[test]
fn every_order_is_found_by_its_name_and_named_once() {
    let names: Vec<&str> = order::all().iter().map(|order| order.name()).collect();
    for name in &names {
        assert_eq!(order::named(name).unwrap().name(), *name);
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
    }
    assert!(order::named("lifo").is_none());
}
