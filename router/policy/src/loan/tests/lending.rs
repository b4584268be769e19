use super::*;

#[test]
fn what_the_forecast_and_the_reserve_need_is_not_lent() {
    let mut scene = Scene::new(7);
    scene.keep = Keep { forecast: 3, reserve: 2, by: scene.now };
    for _ in 0..7 {
        scene.waits(ask(1, 1), 0);
    }
    assert_eq!(scene.starts().len(), 2);
    scene.rules.loaning = Loaning::Aryl;
    assert_eq!(scene.starts().len(), 5, "aryl keeps the reserve only");
}

#[test]
fn with_loaning_none_nothing_is_lent_and_the_job_is_told() {
    let mut scene = Scene::new(7);
    scene.rules.loaning = Loaning::None;
    let job = scene.waits(ask(1, 1), 0);
    assert_eq!(scene.starts(), []);
    assert_eq!(scene.why(job).0, Why::NotLent);
}

#[test]
fn slices_beside_inference_are_kept_and_others_lent() {
    let mut scene = Scene::new(14);
    scene.slices[0].held = Held::Inference;
    scene.keep.forecast = 6;
    for _ in 0..7 {
        scene.waits(ask(1, 1), 0);
    }
    let mut lent = Vec::new();
    for act in scene.decide().acts {
        if let Act::Start { slices, .. } = act {
            lent.extend(slices);
        }
    }
    assert_eq!(lent, (7..14).collect::<Vec<_>>());
}

#[test]
fn what_nobody_waits_for_goes_to_the_job_that_gains_by_it() {
    let mut scene = Scene::new(5);
    let narrow = scene.runs(ask(1, 1), &[0], 0);
    let wide = scene.runs(ask(1, 3), &[1], 0);
    let grows: Vec<Act> = scene
        .decide()
        .acts
        .into_iter()
        .filter(|act| matches!(act, Act::Grow { job, .. } if *job != narrow))
        .collect();
    assert_eq!(grows, [Act::Grow { job: wide, slices: vec![2, 3] }]);
}

#[test]
fn a_starting_job_gets_all_it_can_use_if_nobody_else_can() {
    let mut scene = Scene::new(5);
    let elastic = scene.waits(ask(2, 4), 0);
    assert_eq!(scene.starts(), [(elastic, 4)]);
    let other = scene.waits(ask(3, 3), 1);
    assert_eq!(scene.starts(), [(elastic, 2), (other, 3)]);
}

#[test]
fn a_loan_is_renewed_when_half_of_it_is_over() {
    let mut scene = Scene::new(1);
    let job = scene.runs(ask(1, 1), &[0], 0);
    assert_eq!(scene.decide().acts, []);
    scene.now = scene.now + Duration::from_secs(30);
    let lease_until = scene.now + Duration::from_secs(60);
    assert_eq!(scene.decide().acts, [Act::Renew { job, lease_until }]);
}
