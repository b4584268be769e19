use super::*;

fn at(seconds: u64) -> Moment {
    Moment::default() + Duration::from_secs(seconds)
}

const LOAD: Duration = Duration::from_secs(5);

/// Observes one second after another at these rates, from `from` on.
fn run(demand: &mut Demand, from: u64, rates: impl IntoIterator<Item = u64>) -> u64 {
    let mut second = from;
    for arrived in rates {
        second += 1;
        demand.observe(Seen { arrived, ..Seen::default() }, at(second));
    }
    second
}

fn steady(rate: u64, seconds: usize) -> (Demand, u64) {
    let mut demand = Demand::new(Rule::default());
    let now = run(&mut demand, 0, std::iter::repeat_n(rate, seconds));
    (demand, now)
}

#[test]
fn a_steady_rate_is_forecast_with_a_tenth_of_room() {
    let (mut demand, now) = steady(1_000, 300);
    let forecast = demand.forecast(1_100.0, LOAD, at(now));
    assert!((forecast.rate_rps - 1_100.0).abs() < 20.0, "{forecast:?}");
    assert!((forecast.floor_rps - 1_100.0).abs() < 20.0, "{forecast:?}");
}

#[test]
fn another_rule_forgets_nothing_of_what_was_asked_for() {
    let (mut demand, now) = steady(1_000, 300);
    demand.adopt(Rule { slo: Duration::from_millis(40), ..Rule::default() });
    let forecast = demand.forecast(1_100.0, LOAD, at(now));
    assert!((forecast.rate_rps - 1_100.0).abs() < 20.0, "{forecast:?}");
}

#[test]
fn small_rates_have_more_room_since_chance_is_larger() {
    let (mut demand, now) = steady(4, 300);
    let forecast = demand.forecast(10.0, LOAD, at(now));
    assert!((forecast.rate_rps - 10.0).abs() < 0.5, "{forecast:?}");
}

#[test]
fn a_rise_is_seen_before_it_is_over() {
    let (mut demand, now) = steady(1_000, 120);
    let now = run(&mut demand, now, (1..=6).map(|second| 1_000 + second * 100));
    let forecast = demand.forecast(1_100.0, LOAD, at(now));
    assert_eq!(forecast.why, Why::Rising);
    assert!(forecast.rate_rps > 1_800.0, "{forecast:?}");
}

#[test]
fn panic_outlasts_its_burst_by_a_minute() {
    let rule = Rule { patience: Duration::from_secs(1), ..Rule::default() };
    let mut demand = Demand::new(rule);
    let now = run(&mut demand, 0, std::iter::repeat_n(100, 120));
    demand.forecast(110.0, LOAD, at(now));
    let now = run(&mut demand, now, [400; 6]);
    assert!(demand.forecast(110.0, LOAD, at(now)).rate_rps > 400.0);
    let now = run(&mut demand, now, [100; 40]);
    let during = demand.forecast(440.0, LOAD, at(now));
    assert_eq!(during.why, Why::Panic);
    let now = run(&mut demand, now, [100; 80]);
    let after = demand.forecast(440.0, LOAD, at(now));
    assert!(after.rate_rps < 200.0, "{after:?}");
}

#[test]
fn what_was_watched_for_a_moment_only_keeps_all_it_has() {
    let (mut demand, now) = steady(100, 10);
    let early = demand.forecast(760.0, LOAD, at(now));
    assert_eq!((early.rate_rps, early.why), (760.0, Why::New));
    let now = run(&mut demand, now, [100; 120]);
    let later = demand.forecast(760.0, LOAD, at(now));
    assert!(later.why != Why::New && later.rate_rps < 200.0, "{later:?}");
}

#[test]
fn what_was_needed_is_kept_for_the_patience_and_no_longer() {
    let rule = Rule { history: Duration::from_secs(60), ..Rule::default() };
    let mut demand = Demand::new(rule);
    let mut now = run(&mut demand, 0, std::iter::repeat_n(1_000, 120));
    demand.forecast(1_100.0, LOAD, at(now));
    for _ in 0..4 {
        now = run(&mut demand, now, [100; 60]);
        let kept = demand.forecast(1_100.0, LOAD, at(now));
        assert!(kept.rate_rps > 1_000.0, "{kept:?} at {now}");
    }
    for _ in 0..4 {
        now = run(&mut demand, now, [100; 60]);
        demand.forecast(1_100.0, LOAD, at(now));
    }
    let dropped = demand.forecast(1_100.0, LOAD, at(now));
    assert!(dropped.rate_rps < 150.0, "{dropped:?}");
}

#[test]
fn a_queue_beyond_what_the_objective_explains_adds_to_the_rate() {
    let (mut demand, now) = steady(1_000, 120);
    let explained = Seen { arrived: 1_000, waiting: 100, late: 0 };
    demand.observe(explained, at(now + 1));
    assert_ne!(demand.forecast(1_100.0, LOAD, at(now + 1)).why, Why::Queue);
    let long = Seen { arrived: 1_000, waiting: 1_300, late: 0 };
    demand.observe(long, at(now + 2));
    let forecast = demand.forecast(1_100.0, LOAD, at(now + 2));
    assert_eq!(forecast.why, Why::Queue);
    assert!(forecast.rate_rps > 1_250.0, "{forecast:?}");
}

#[test]
fn late_requests_ask_for_more_than_the_rate() {
    let (mut demand, now) = steady(1_000, 120);
    for second in 1..=3 {
        demand.observe(Seen { arrived: 1_000, late: 400, waiting: 0 }, at(now + second));
    }
    let forecast = demand.forecast(1_100.0, LOAD, at(now + 3));
    assert_eq!(forecast.why, Why::Late);
    assert!(forecast.rate_rps > 1_250.0, "{forecast:?}");
}

#[test]
fn idle_model_scales_to_zero_until_the_first_request() {
    let (mut demand, now) = steady(50, 120);
    let now = run(&mut demand, now, std::iter::repeat_n(0, 599));
    assert!(demand.forecast(60.0, LOAD, at(now)).rate_rps > 0.0);
    let now = run(&mut demand, now, [0]);
    let idle = demand.forecast(60.0, LOAD, at(now));
    assert_eq!((idle.rate_rps, idle.why), (0.0, Why::Idle));
    let now = run(&mut demand, now, [1]);
    assert!(demand.forecast(0.0, LOAD, at(now)).rate_rps > 0.0);
    let mut fresh = Demand::new(Rule::default());
    assert_eq!(fresh.forecast(0.0, LOAD, at(0)).rate_rps, 0.0);
}

#[test]
fn a_time_of_day_that_was_busy_is_expected_to_be_so_again() {
    let mut demand = Demand::new(Rule::default());
    let day = 86_400;
    // Busy between ten and noon, on two days.
    for second in (10..2 * day).step_by(10) {
        let busy = (36_000..43_200).contains(&(second % day));
        let arrived = if busy { 5_000 } else { 1_000 };
        demand.observe(Seen { arrived, ..Seen::default() }, at(second));
    }
    let before = 2 * day + 36_000 - 1_200;
    let now = run(&mut demand, before - 300, std::iter::repeat_n(100, 300));
    let calm = demand.forecast(110.0, Duration::from_secs(60), at(now));
    assert!(calm.rate_rps < 200.0, "{calm:?}");
    let early = demand.forecast(110.0, Duration::from_secs(1_300), at(now));
    assert_eq!(early.why, Why::Daily);
    assert!(early.rate_rps > 450.0, "{early:?}");
}

#[test]
fn a_steep_rise_is_seen_within_two_seconds_and_crowds_are_none() {
    let (mut demand, now) = steady(300, 60);
    let now = run(&mut demand, now, [420, 660]);
    let rising = demand.forecast(470.0, LOAD, at(now));
    assert_eq!(rising.why, Why::Rising);
    assert!(rising.rate_rps > 1.4 * 660.0, "{rising:?}");
    // Callers who come together every other second.
    let mut crowds = Demand::new(Rule { patience: Duration::ZERO, ..Rule::default() });
    let mut now = run(&mut crowds, 0, [100, 700].repeat(15));
    for arrived in [100, 700].repeat(15) {
        now = run(&mut crowds, now, [arrived]);
        assert_ne!(crowds.forecast(470.0, LOAD, at(now)).why, Why::Rising, "at {now} s");
    }
}

#[test]
fn restart_keeps_the_floor_until_history_expires() {
    let (demand, now) = steady(1_000, 600);
    let day = |now: u64, of_day: u64| Day { now: at(now), of_day: Duration::from_secs(of_day) };
    let habit = demand.habit(day(now, 40_000));
    let floor = |away: u64| {
        let mut anew = Demand::new(Rule::default());
        anew.recall(&habit, Duration::from_secs(away), day(0, 40_000 + away));
        anew.observe(Seen::default(), at(1));
        anew.forecast(0.0, LOAD, at(1)).floor_rps
    };
    for away in [0, 30, 900] {
        assert!((floor(away) - 1_100.0).abs() < 20.0, "{} after {away} s", floor(away));
    }
    assert_eq!(floor(1_800), 0.0);
}

#[test]
fn daily_pattern_survives_a_restart_at_any_time() {
    const PART: u64 = 600;
    // One day in which only the part that begins at 06:00 is busy; it begins at 21:40.
    let began = 78_000;
    let (busy_from, busy_to) = (21_600, 21_600 + PART);
    let mut demand = Demand::new(Rule::default());
    let busy = |second: u64| (busy_from..busy_to).contains(&((began + second) % 86_400));
    let rates = (1..=86_400 + PART).map(|second| if busy(second) { 500 } else { 10 });
    let now = run(&mut demand, 0, rates);
    let day =
        |now: u64, of_day: u64| Day { now: at(now), of_day: Duration::from_secs(of_day % 86_400) };
    let habit = demand.habit(day(now, began + now));
    let most = |usual: &[Option<f64>]| {
        let known =
            usual.iter().enumerate().filter(|(_, rate)| rate.is_some_and(|rate| rate > 100.0));
        known.map(|(part, _)| part as u64 * PART).collect::<Vec<_>>()
    };
    assert_eq!(most(&habit.usual), [busy_from]);
    // It starts again in the afternoon, three minutes into a part, and once more a while later.
    let mut anew = Demand::new(Rule::default());
    anew.recall(&habit, Duration::from_secs(3_600), day(0, 54_180));
    let again = anew.habit(day(7_000, 54_180 + 7_000));
    assert_eq!(most(&again.usual), [busy_from]);
}

#[test]
fn a_habit_that_makes_no_sense_is_not_taken_up() {
    let mut demand = Demand::new(Rule::default());
    let day = Day { now: at(0), of_day: Duration::from_secs(100_000) };
    let odd = [f64::NAN, -1.0, f64::INFINITY];
    let habit = Habit { minutes: odd.to_vec(), usual: odd.map(Some).repeat(100) };
    demand.recall(&habit, Duration::ZERO, day);
    assert_eq!(demand.habit(day), Habit { minutes: Vec::new(), usual: vec![None; 144] });
}
