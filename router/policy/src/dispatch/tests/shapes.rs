//! Requests of several shapes: each has a latency of its own, and what nobody measured says nothing.

use super::*;

/// Elements and microseconds of a detector at 32, 320 and 960 pixels.
const SHAPES: [(u64, u64); 3] = [(3_072, 3_500), (307_200, 80_000), (2_764_800, 600_000)];

fn slow_objective() -> Settings {
    Settings { objective: ms(2_000), ..settings(8) }
}

impl Rig {
    fn of_shapes(measured: &[(u32, Duration)]) -> Self {
        let mut rig = Self::new(slow_objective(), Slo);
        for (key, (elements, _)) in SHAPES.iter().enumerate() {
            rig.machine.describe_key(key as u32, *elements);
        }
        rig.add(0, measured);
        rig
    }

    /// One of `key` alone, which takes `took`; and what was expected of it.
    fn alone(&mut self, key: u32, took: Duration) -> Option<Duration> {
        let until = Until::both(self.now + ms(2_000));
        let expected = self.machine.expected(0, key, 1);
        let id = self.arrive(|arrival| (arrival.key, arrival.until) = (key, until));
        let id = id.unwrap_or_else(|why| panic!("key {key}: {why:?}"));
        let batch = self.end_last(took, Ended::Done);
        assert_eq!(batch.requests, [id]);
        self.wait_until(self.now + ms(5));
        expected
    }
}

#[test]
fn predictions_by_shape_are_within_a_fifth_of_the_median() {
    let mut rig = Rig::of_shapes(&[]);
    let mut expected = vec![Vec::new(); SHAPES.len()];
    for round in 0..100_u64 {
        for (key, (_, micros)) in SHAPES.iter().enumerate() {
            // A tenth more or less, and each third as expected.
            let took = micros * (9 + (round + key as u64) % 3) / 10;
            expected[key].push(rig.alone(key as u32, Duration::from_micros(took)));
        }
    }
    for (key, (_, micros)) in SHAPES.iter().enumerate() {
        assert_eq!(expected[key][0], None, "shape {key}: nothing was measured");
        for (round, found) in expected[key].iter().enumerate().skip(1) {
            let found = found.map_or(0.0, |found| found.as_secs_f64() * 1e6);
            let off = found / *micros as f64 - 1.0;
            assert!(off.abs() <= 0.2, "shape {key}, request {round}: {found} us, off by {off:.2}");
        }
    }
}

#[test]
fn shapes_are_no_interference() {
    let mut rig = Rig::of_shapes(&[(1, Duration::from_micros(3_500))]);
    for _ in 0..20 {
        for (key, (_, micros)) in SHAPES.iter().enumerate() {
            rig.alone(key as u32, Duration::from_micros(*micros));
            let slowdown = rig.machine.limits().next().map(|limit| limit.slowdown).unwrap();
            assert!(slowdown < 1.05, "key {key}: {slowdown}");
        }
    }
}

#[test]
fn first_of_a_shape_is_tried_however_long_the_guess() {
    let mut rig = Rig::of_shapes(&[(1, ms(20))]);
    rig.alone(0, ms(20));
    // By its elements it would take 18 s.
    assert_eq!(rig.alone(2, ms(25)), None);
    let expected = rig.alone(2, ms(25)).unwrap();
    assert!(ms(20) <= expected && expected <= ms(30), "{expected:?}");
}

#[test]
fn replica_measured_by_shape_knows_each_from_the_start() {
    let mut rig = Rig::of_shapes(&[]);
    for (key, (_, micros)) in SHAPES.iter().enumerate() {
        rig.machine.teach(0, key as u32, &[(1, Duration::from_micros(*micros))]);
    }
    for (key, (_, micros)) in SHAPES.iter().enumerate() {
        let expected = rig.alone(key as u32, Duration::from_micros(*micros)).unwrap();
        let off = expected.as_secs_f64() * 1e6 / *micros as f64 - 1.0;
        assert!(off.abs() < 0.01, "shape {key}: {expected:?}");
    }
}

#[test]
fn nothing_is_concluded_from_a_replica_nobody_measured() {
    let mut rig = Rig::new(settings(8), Slo);
    rig.add(0, &[]);
    assert_eq!(rig.machine.expected(0, 0, 1), None);
    let id = rig.one();
    let batch = rig.sent.last().expect("it is tried").clone();
    assert_eq!(batch.requests, [id]);
    rig.wait_until(rig.now + ms(40));
    assert!(rig.retried.is_empty() && rig.refused.is_empty(), "{:?}", rig.refused);
    rig.finish(&batch, Ended::Done);
    assert_eq!(rig.machine.expected(0, 0, 1), Some(ms(40)));
    let limit = rig.machine.limits().next().unwrap();
    assert_eq!(limit.slowdown, 1.0);
}
