use simgpu::random::Random;

use super::*;

const INFERENCE: Draw = Draw { power: 0.75, bandwidth: 1.0, pcie: 0.01 };
const TRAINING: Draw = Draw { power: 1.15, bandwidth: 1.0, pcie: 0.03 };

fn runner(model: u32, load: Draw) -> Runner {
    Runner { model, compute: 1.0 / 7.0, busy: 1.0, load }
}

fn predicted(own: Runner, others: &[Runner]) -> f64 {
    Scene { own, others }.predicted(&Gains::default())
}

fn at(seconds: u64) -> Moment {
    Moment::default() + Duration::from_secs(seconds)
}

fn times(slowdown: f64) -> Times {
    let alone = Duration::from_millis(10);
    Times { took: alone.mul_f64(slowdown), alone }
}

#[test]
fn alone_nothing_is_slower() {
    assert_eq!(predicted(runner(0, TRAINING), &[]), 1.0);
    let whole = Runner { compute: 1.0, ..runner(0, TRAINING) };
    assert_eq!(predicted(whole, &[]), 1.0);
    let idle = Runner { busy: 0.0, ..runner(1, TRAINING) };
    assert_eq!(predicted(runner(0, INFERENCE), &[idle; 6]), 1.0);
}

#[test]
fn each_neighbour_makes_it_worse_and_power_over_the_limit_much_worse() {
    let own = runner(0, INFERENCE);
    let beside = |load: Draw, count: usize| predicted(own, &vec![runner(1, load); count]);
    let calm: Vec<f64> = (0..=6).map(|count| beside(INFERENCE, count)).collect();
    assert!(calm.is_sorted(), "{calm:?}");
    assert!(calm[6] < 1.03, "{calm:?}");
    assert!(beside(TRAINING, 6) > calm[6] + 0.03, "{}", beside(TRAINING, 6));
    let hungry = Draw { pcie: 0.3, ..INFERENCE };
    assert!(beside(hungry, 6) > 1.5, "{}", beside(hungry, 6));
}

#[test]
fn what_is_seen_corrects_the_set_it_was_seen_in_and_then_others() {
    let mut learned = Interference::new(Gains::default());
    let own = runner(0, INFERENCE);
    let seen = [runner(1, TRAINING); 3];
    let scene = Scene { own, others: &seen };
    for second in 0..60 {
        learned.observe(&scene, times(1.4), at(second));
    }
    let now = at(60);
    assert!((learned.slowdown(&scene, now) - 1.4).abs() < 0.01);
    let unseen = Scene { own, others: &[runner(2, INFERENCE)] };
    let before = unseen.predicted(&Gains::default());
    assert!(learned.slowdown(&unseen, now) > before + 0.1);
    let stranger = Scene { own: runner(9, INFERENCE), others: &seen };
    assert_eq!(learned.slowdown(&stranger, now), stranger.predicted(&Gains::default()));
}

#[test]
fn one_mad_measurement_is_clamped_and_old_ones_are_forgotten() {
    let mut learned = Interference::new(Gains::default());
    let others = [runner(1, INFERENCE)];
    let scene = Scene { own: runner(0, INFERENCE), others: &others };
    learned.observe(&scene, times(1e6), at(0));
    assert!(learned.slowdown(&scene, at(0)) < 3.1);
    let later = at(3 * 3_600);
    assert!(learned.slowdown(&scene, later) < 1.05, "{}", learned.slowdown(&scene, later));
    assert!(learned.slowdown(&scene, later) >= 1.0);
}

#[test]
fn the_number_of_sets_remembered_is_bounded() {
    let mut learned = Interference::new(Gains::default());
    for model in 0..2 * REMEMBERED as u32 {
        let others = [runner(model, INFERENCE)];
        let scene = Scene { own: runner(0, INFERENCE), others: &others };
        learned.observe(&scene, times(1.1), at(u64::from(model)));
    }
    assert_eq!(learned.sets.len(), REMEMBERED);
    let last = Key {
        place: Scene { own: runner(0, INFERENCE), others: &[] }.place(),
        others: vec![Place { model: 2 * REMEMBERED as u32 - 1, compute: 143 }],
    };
    assert!(learned.sets.contains_key(&last));
}

/// A truth the learner does not know: other gains, another form, and what each model really draws.
fn truth(scene: &Scene<'_>, draws: &[f64]) -> f64 {
    let power = |one: &Runner| draws[one.model as usize] * one.compute * one.busy;
    let all: f64 = scene.others.iter().map(power).sum::<f64>() + power(&scene.own);
    let walks: f64 = scene.others.iter().map(|one| one.busy).sum();
    1.0 + 1.3 * (all - 0.7).max(0.0).powf(1.2) + 0.03 * walks.sqrt()
}

/// The median error of a minute of seven slices that change tenants every twenty seconds, with 5 %
/// of noise, in its last ten seconds.
fn last_error(seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let models = 8;
    let draws: Vec<f64> = (0..models).map(|_| 0.6 + random.unit()).collect();
    let mut learned = Interference::new(Gains::default());
    let scenes: Vec<Vec<Runner>> = (0..3)
        .map(|_| (0..7).map(|_| runner(random.below(models) as u32, INFERENCE)).collect())
        .collect();
    let mut last = Vec::new();
    for tick in 0..60 * 20_u64 {
        let now = Moment::from_micros(tick * 50_000);
        let tenants = &scenes[(tick / 400) as usize % scenes.len()];
        for own in 0..tenants.len() {
            let mut others = tenants.clone();
            let own = others.remove(own);
            let scene = Scene { own, others: &others };
            let seen = truth(&scene, &draws);
            let error = (learned.slowdown(&scene, now) / seen - 1.0).abs();
            if tick >= 1_000 {
                last.push(error);
            }
            let noise = 1.0 + 0.05 * (random.unit() + random.unit() + random.unit() - 1.5);
            learned.observe(&scene, times(seen * noise), now);
        }
    }
    let reported = learned.median_error().unwrap();
    assert!(reported < 0.06, "seed {seed}: {reported} with the noise of what was seen");
    last.sort_by(f64::total_cmp);
    last[last.len() / 2]
}

#[test]
fn after_a_minute_the_median_error_is_under_five_percent() {
    for seed in 0..20 {
        let last = last_error(seed);
        assert!(last < 0.05, "seed {seed}: {last}");
    }
}

#[test]
fn without_learning_the_error_would_be_larger() {
    let mut learned = Interference::new(Gains::default());
    let others = [runner(1, INFERENCE); 6];
    let scene = Scene { own: runner(0, INFERENCE), others: &others };
    let seen = truth(&scene, &[1.5, 1.5]);
    let before = (learned.slowdown(&scene, at(0)) / seen - 1.0).abs();
    assert!(before > 0.2, "{before}");
    for second in 0..60 {
        learned.observe(&scene, times(seen), at(second));
    }
    let after = (learned.slowdown(&scene, at(60)) / seen - 1.0).abs();
    assert!(after < 0.01, "{after}");
}

#[test]
fn what_was_learned_is_known_after_a_restart_and_forgotten_as_it_would_have_been() {
    let (own, other) = (runner(0, INFERENCE), runner(1, TRAINING));
    let scene = Scene { own, others: &[other] };
    let mut before = Interference::new(Gains::default());
    for second in 0..200 {
        before.observe(&scene, times(1.8), at(second));
    }
    let kept = before.corrections(at(200));
    assert_eq!(kept.len(), 2, "{kept:?}");
    for away in [0, 900, 9_000] {
        let mut anew = Interference::new(Gains::default());
        anew.recall(&kept, Duration::from_secs(away), at(0));
        let (then, now) = (before.slowdown(&scene, at(200 + away)), anew.slowdown(&scene, at(0)));
        assert!((then - now).abs() < 0.01, "{then} and {now} after {away} s");
    }
    let odd = [Corrected { factor: f64::NAN, ..kept[0].clone() }];
    let mut anew = Interference::new(Gains::default());
    anew.recall(&odd, Duration::ZERO, at(0));
    assert_eq!(anew.corrections(at(0)), []);
}
