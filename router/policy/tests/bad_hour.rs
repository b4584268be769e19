//! A replica that was slow for a while must be believed when it is fast again.
//!
//! What was learned in the bad time says that no request can be in time, or that only the smallest
//! batches can. If that were acted on for ever, nothing would be sent that could put it right.

use std::{collections::HashMap, time::Duration};

use policy::{
    dispatch::{Arrival, Class, Dispatch, Effect, Ended, Settings, Until},
    moment::Moment,
    rule::Slo,
};

const OBJECTIVE: Duration = Duration::from_millis(50);
const GAP: Duration = Duration::from_micros(2_600);
const BAD_FROM: u64 = 1_000_000;
const BAD_UNTIL: u64 = 3_000_000;
const JUDGED_FROM: u64 = 5_000_000;
const END: u64 = 7_000_000;

fn took(rows: u32, now: Moment, slowed: Duration) -> Duration {
    let usual = Duration::from_millis(10 + u64::from(rows));
    if (BAD_FROM..BAD_UNTIL).contains(&now.micros()) { usual + slowed } else { usual }
}

/// The share answered in time of those that came once the bad time was two seconds past.
fn attainment(slowed: Duration) -> f64 {
    let settings = Settings {
        objective: OBJECTIVE,
        max_batch: 32,
        way: Duration::ZERO,
        lead: Duration::ZERO,
        margin: Duration::from_millis(1),
    };
    let mut machine = Dispatch::new(settings, Box::new(Slo));
    let warm: Vec<_> =
        [1, 8, 32].map(|rows| (rows, took(rows, Moment::default(), slowed))).to_vec();
    machine.add_replica(0, &warm, Moment::default());
    let (mut next_arrival, mut running, mut effects) = (Moment::default(), None, Vec::new());
    let mut came: HashMap<u64, Moment> = HashMap::new();
    let (mut offered, mut in_time, mut id) = (0u32, 0u32, 0);
    while next_arrival.micros() < END {
        let done = running.as_ref().map_or(Moment::NEVER, |(at, _): &(Moment, _)| *at);
        let now = next_arrival.min(done).min(machine.wakes_at());
        if now == done {
            let Some((_, batch)): Option<(_, policy::dispatch::Batch)> = running.take() else {
                break;
            };
            for request in &batch.requests {
                let arrived = came[request];
                in_time +=
                    u32::from(arrived.micros() >= JUDGED_FROM && now.since(arrived) <= OBJECTIVE);
            }
            machine.finished(0, batch.id, Ended::Done, now, &mut effects);
        } else if now == next_arrival {
            id += 1;
            came.insert(id, now);
            offered += u32::from(now.micros() >= JUDGED_FROM);
            let until = Until::both(now + OBJECTIVE);
            let class = Class::Interactive;
            let arrival = Arrival { id, key: 0, until, rows: 1, tenant: 0, class };
            let _ = machine.arrive(arrival, now, &mut effects);
            next_arrival = now + GAP;
        } else {
            machine.tick(now, &mut effects);
        }
        for effect in effects.drain(..) {
            if let Effect::Send(batch) = effect {
                running = Some((now + took(batch.rows, now, slowed), batch));
            }
        }
    }
    f64::from(in_time) / f64::from(offered)
}

#[test]
fn a_bad_time_is_forgotten_within_two_seconds_of_its_end() {
    for slowed_ms in [5, 20, 40, 80, 200] {
        let found = attainment(Duration::from_millis(slowed_ms));
        assert!(found > 0.97, "slowed by {slowed_ms} ms: {found:.3} in time afterwards");
    }
}
