use super::*;

fn admitted(scene: &Scene, ask: &Ask, dependable: u32) -> Result<Admitted, Refused> {
    let (slices, tenants, jobs) = (&scene.slices, &scene.tenants, &scene.jobs);
    admit(ask, &Offer { now: scene.now, slices, tenants, jobs, dependable })
}

fn due(minutes: u64, takes_minutes: u64, least: u32) -> Ask {
    let takes = Some(Duration::from_secs(takes_minutes * 60));
    Ask { takes, deadline: Some(at(7200 + minutes * 60)), ..ask(least, least) }
}

#[test]
fn what_could_never_run_is_refused_with_the_numbers() {
    let mut scene = Scene::new(4);
    scene.tenants[1].quota = 2;
    let refused = |ask: &Ask| admitted(&scene, ask, 4).unwrap_err();
    assert_eq!(refused(&ask(0, 1)), Refused::BadCount { least: 0, most: 1 });
    assert_eq!(refused(&ask(3, 2)), Refused::BadCount { least: 3, most: 2 });
    assert_eq!(refused(&ask(5, 8)), Refused::TooMany { asked: 5, exist: 4 });
    let fat = Ask { memory_mib: 9_501, ..ask(1, 1) };
    assert_eq!(refused(&fat), Refused::Memory { asked_mib: 9_501, largest_mib: 9_500 });
    assert_eq!(
        admitted(&scene, &Ask { memory_mib: 9_500, ..fat }, 4),
        Ok(Admitted { start_by: None })
    );
    let large = Ask { compute: 2, ..ask(1, 1) };
    assert_eq!(refused(&large), Refused::TooMany { asked: 1, exist: 0 });
    let other = Ask { tenant: 1, ..ask(3, 3) };
    assert_eq!(refused(&other), Refused::Quota { asked: 3, quota: 2 });
}

#[test]
fn unkeepable_or_unknowable_deadline_is_rejected() {
    let scene = Scene::new(4);
    let unknown = Ask { takes: None, ..due(60, 1, 1) };
    assert_eq!(admitted(&scene, &unknown, 4), Err(Refused::UnknownLength));
    let (takes, left) = (Duration::from_secs(3660), Duration::from_secs(3600));
    assert_eq!(admitted(&scene, &due(60, 61, 1), 4), Err(Refused::TooShort { takes, left }));
    let start_by = Some(scene.now + Duration::from_secs(600));
    assert_eq!(admitted(&scene, &due(60, 50, 1), 4), Ok(Admitted { start_by }));
}

#[test]
fn an_elastic_job_may_count_on_its_most_slices() {
    let scene = Scene::new(4);
    let elastic = Ask { most: 4, ..due(60, 90, 1) };
    assert!(admitted(&scene, &elastic, 4).is_ok());
    assert!(admitted(&scene, &Ask { most: 1, ..elastic }, 4).is_err());
}

#[test]
fn a_deadline_is_refused_beside_those_promised_before() {
    let mut scene = Scene::new(4);
    scene.waits(due(60, 50, 2), 7100);
    assert!(admitted(&scene, &due(60, 50, 2), 4).is_ok());
    let refused = admitted(&scene, &due(60, 50, 2), 3).unwrap_err();
    assert_eq!(refused, Refused::Promised { promised_s: 12_000, dependable_s: 10_800 });
    assert!(admitted(&scene, &due(120, 50, 2), 3).is_ok(), "a later one fits behind it");
}
