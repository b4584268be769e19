use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn checkpointed(scene: &mut Scene, job: JobId, seconds_ago: u64) {
    let when = scene.now - SECOND * u32::try_from(seconds_ago).unwrap();
    scene.job(job).checkpoint = Some(when);
}

fn stopped(scene: &Scene) -> Vec<JobId> {
    scene.stops().into_iter().map(|(job, _, _)| job).collect()
}

#[test]
fn an_elastic_job_shrinks_before_any_job_stops() {
    let mut scene = Scene::new(4);
    let elastic = scene.runs(ask(1, 3), &[0, 1, 2], 0);
    scene.runs(ask(1, 1), &[3], 0);
    scene.wants(2, scene.now);
    assert_eq!(scene.shrinks(), [(elastic, 2)]);
    assert_eq!(scene.stops(), []);
}

#[test]
fn the_job_that_checkpointed_last_goes_first() {
    let mut scene = Scene::new(2);
    let stale = scene.runs(ask(1, 1), &[0], 0);
    let fresh = scene.runs(ask(1, 1), &[1], 0);
    checkpointed(&mut scene, stale, 500);
    checkpointed(&mut scene, fresh, 20);
    scene.wants(1, scene.now);
    assert_eq!(stopped(&scene), [fresh]);
}

#[test]
fn two_small_jobs_go_before_one_that_would_lose_more() {
    let mut scene = Scene::new(4);
    let large = scene.runs(ask(2, 2), &[0, 1], 0);
    let small = [scene.runs(ask(1, 1), &[2], 0), scene.runs(ask(1, 1), &[3], 0)];
    checkpointed(&mut scene, large, 300);
    small.into_iter().for_each(|job| checkpointed(&mut scene, job, 100));
    scene.wants(2, scene.now);
    assert_eq!(stopped(&scene), small);
    checkpointed(&mut scene, large, 10);
    assert_eq!(stopped(&scene), [large]);
}

#[test]
fn no_job_is_stopped_that_could_have_been_spared() {
    for wanted in 1..=9 {
        let mut scene = Scene::new(9);
        let mut sizes = std::collections::HashMap::new();
        for (slices, age) in [(vec![0, 1, 2], 5), (vec![3, 4], 400), (vec![5], 60), (vec![6, 7], 9)]
        {
            let least = u32::try_from(slices.len()).unwrap();
            let job = scene.runs(ask(least, least), &slices, 0);
            checkpointed(&mut scene, job, age);
            sizes.insert(job, slices.len());
        }
        scene.wants(wanted, scene.now);
        let stopped = stopped(&scene);
        let freed: usize = 1 + stopped.iter().map(|job| sizes[job]).sum::<usize>();
        assert!(freed >= wanted as usize, "{wanted}: {stopped:?}");
        for job in &stopped {
            assert!(freed - sizes[job] < wanted as usize, "{wanted}: {job} of {stopped:?}");
        }
    }
}

#[test]
fn job_without_checkpoints_is_stopped_last() {
    let mut scene = Scene::new(2);
    let silent = scene.runs(ask(1, 1), &[0], 0);
    let honest = scene.runs(ask(1, 1), &[1], 0);
    checkpointed(&mut scene, honest, 3000);
    scene.wants(1, scene.now);
    assert_eq!(stopped(&scene), [honest], "an hour at most counts for the silent one");
    checkpointed(&mut scene, honest, 3700);
    assert_eq!(stopped(&scene), [silent]);
}

#[test]
fn a_job_that_checkpoints_within_the_notice_loses_little() {
    let mut scene = Scene::new(2);
    let quick = scene.runs(ask(1, 1), &[0], 0);
    let slow = scene.runs(ask(1, 1), &[1], 0);
    checkpointed(&mut scene, slow, 100);
    checkpointed(&mut scene, quick, 3000);
    scene.job(quick).checkpoint_takes = Some(SECOND * 4);
    scene.wants(1, scene.now + SECOND * 10);
    assert_eq!(stopped(&scene), [quick]);
    scene.wanted[0].by = scene.now + SECOND * 3;
    assert_eq!(stopped(&scene), [slow], "three seconds are too short to checkpoint in");
}

#[test]
fn reclaim_begins_one_notice_period_before_the_need() {
    let mut scene = Scene::new(1);
    scene.runs(ask(1, 1), &[0], 0);
    scene.wants(1, scene.now + SECOND * 12);
    assert_eq!(scene.stops(), []);
    scene.now = scene.now + SECOND;
    let [(_, by, why)] = scene.stops()[..] else { panic!("one job stops") };
    assert_eq!(by, scene.now + SECOND * 10);
    assert_eq!(why, Stop::Inference { emergency: false });
}

#[test]
fn a_burst_faster_than_the_notice_shortens_it() {
    let mut scene = Scene::new(1);
    scene.runs(ask(1, 1), &[0], 0);
    scene.wants(1, scene.now + SECOND * 2);
    let [(_, by, why)] = scene.stops()[..] else { panic!("one job stops") };
    assert_eq!(by, scene.now + SECOND * 2);
    assert_eq!(why, Stop::Inference { emergency: true });
    scene.wanted[0].by = at(0);
    assert_eq!(scene.stops()[0].1, scene.now, "what should have been free is free at once");
}

#[test]
fn slices_that_are_idle_or_on_their_way_back_are_counted_first() {
    let mut scene = Scene::new(4);
    scene.runs(ask(1, 1), &[0], 0);
    scene.runs(ask(1, 1), &[1], 0);
    scene.slices[2].held = Held::Leaving { by: scene.now + SECOND };
    scene.wants(2, scene.now);
    assert_eq!(scene.stops(), []);
    scene.wanted[0].count = 3;
    assert_eq!(scene.stops().len(), 1);
}

#[test]
fn forecast_headroom_is_rebuilt_by_sluice_not_by_aryl() {
    let mut scene = Scene::new(2);
    scene.runs(ask(1, 1), &[0], 0);
    scene.runs(ask(1, 1), &[1], 0);
    scene.keep = Keep { forecast: 1, reserve: 0, by: scene.now + SECOND * 10 };
    assert_eq!(scene.stops().len(), 1);
    scene.rules.loaning = Loaning::Aryl;
    assert_eq!(scene.stops(), []);
}

#[test]
fn aryl_stops_the_widest_job_whatever_it_loses() {
    let mut scene = Scene::new(3);
    let wide = scene.runs(ask(2, 2), &[0, 1], 0);
    let narrow = scene.runs(ask(1, 1), &[2], 0);
    checkpointed(&mut scene, narrow, 1);
    checkpointed(&mut scene, wide, 3000);
    scene.wants(1, scene.now);
    assert_eq!(stopped(&scene), [narrow]);
    scene.rules.loaning = Loaning::Aryl;
    assert_eq!(stopped(&scene), [wide]);
}

#[test]
fn what_is_taken_back_for_inference_is_not_lent_again() {
    let mut scene = Scene::new(2);
    scene.runs(ask(2, 2), &[0, 1], 0);
    let small = scene.waits(ask(1, 1), 10);
    let large = scene.waits(ask(2, 2), 20);
    scene.wants(1, scene.now + SECOND * 10);
    assert_eq!(scene.stops().len(), 1);
    let (why, may_start) = scene.why(small);
    assert_eq!(why, Why::Coming { count: 1 }, "the other slice is free for a job");
    assert_eq!(may_start, Some(scene.now + SECOND * 10));
    assert!(matches!(scene.why(large).0, Why::TooFewIdle { needs: 2, idle: 0 }));
}
