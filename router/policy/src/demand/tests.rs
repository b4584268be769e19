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
fn a_burst_to_twice_what_is_provided_is_a_panic_that_outlasts_it_by_a_minute() {
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
fn nothing_asked_for_long_enough_is_nothing_and_the_first_request_wakes_it() {
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
