//! One simulated GPU keeps MIG's rules, its memory and its secrets.

use std::time::Duration;

use mig::{Geometry, Position, kind};
use simgpu::{Delays, Device, Fault, Load, SimError};

fn position(text: &str) -> Position {
    kind("A100-80GB").expect("it is of an A100-80GB").position(text).expect("it is of an A100-80GB")
}

fn geometry(positions: &[&str]) -> Geometry {
    let positions = positions.iter().map(|text| position(text)).collect();
    Geometry::new(kind("A100-80GB").expect("it is of an A100-80GB"), positions)
        .expect("it is of an A100-80GB")
}

fn device(positions: &[&str]) -> Device {
    Device::new(geometry(positions), Delays::default())
}

#[test]
fn every_maximal_geometry_can_be_reshaped_into_every_other() {
    let delays = Delays::default();
    for name in ["A100-80GB", "A30-24GB"] {
        let kind = kind(name).unwrap();
        let layouts = Geometry::maximal(kind, |profile| !profile.double_memory());
        let mut device = Device::new(Geometry::empty(kind), delays);
        for wanted in layouts.iter().chain(layouts.iter().rev()) {
            let recut = device.recut(wanted);
            assert_eq!((recut.outcome, device.geometry()), (Ok(()), wanted));
            let count = |slices: &[Position]| u32::try_from(slices.len()).unwrap();
            let took =
                delays.destroy * count(&recut.destroyed) + delays.create * count(&recut.created);
            assert_eq!(recut.took, took);
        }
    }
}

#[test]
fn a_geometry_of_another_gpu_is_refused_and_nothing_is_touched() {
    let mut device = device(&["3g.40gb@0"]);
    let other = kind("A30-24GB").unwrap();
    let wanted = Geometry::new(other, vec![other.whole()]).unwrap();
    let recut = device.recut(&wanted);
    assert!(matches!(recut.outcome, Err(SimError::Mig(_))), "{recut:?}");
    assert_eq!(device.geometry(), &geometry(&["3g.40gb@0"]));
}

#[test]
fn held_slice_and_its_memory_survive_a_reshape() {
    let mut device = device(&["3g.40gb@0", "3g.40gb@4"]);
    device.hold(position("3g.40gb@0"), 30_000).unwrap();
    let recut = device.recut(&geometry(&["7g.80gb@0"]));
    assert_eq!(recut.outcome, Err(SimError::InUse { position: position("3g.40gb@0") }));
    assert!(recut.destroyed.is_empty() && recut.created.is_empty());
    device.recut(&geometry(&["3g.40gb@0", "2g.20gb@4"])).outcome.unwrap();
    let refusal = device.hold(position("3g.40gb@0"), 30_000).unwrap_err();
    assert!(matches!(refusal, SimError::OutOfMemory { needed_mib: 30_000, .. }), "{refusal}");
    device.release(position("3g.40gb@0"), 30_000).unwrap();
    device.hold(position("3g.40gb@0"), 40_000).unwrap();
    assert_eq!(
        device.hold(position("1g.10gb@6"), 1),
        Err(SimError::NoSlice { position: position("1g.10gb@6") })
    );
}

#[test]
fn a_failed_creation_leaves_what_it_leaves() {
    let mut device = device(&["7g.80gb@0"]);
    device.inject(Fault::FailedCreates(1));
    let recut = device.recut(&geometry(&["3g.40gb@0", "3g.40gb@4"]));
    assert_eq!(recut.outcome, Err(SimError::CreateFailed { position: position("3g.40gb@0") }));
    assert_eq!(device.geometry(), &geometry(&[]));
    device.recut(&geometry(&["3g.40gb@0", "3g.40gb@4"])).outcome.unwrap();
}

#[test]
fn slow_gpu_stays_slow_until_reset_and_lost_gpu_fails_calls() {
    let mut device = device(&["3g.40gb@0", "3g.40gb@4"]);
    let slowdown = |device: &Device| device.slowdown(position("3g.40gb@0"), Load::INFERENCE);
    device.inject(Fault::Slow(2.0));
    assert_eq!(slowdown(&device), Ok(2.0));
    device.inject(Fault::Slow(1.0));
    assert_eq!(slowdown(&device), Ok(1.0));
    device.inject(Fault::Xid(79));
    assert_eq!((device.take_xids(), device.take_xids()), (vec![79], vec![]));
    device.inject(Fault::Lost);
    assert_eq!(slowdown(&device), Err(SimError::Lost));
    assert_eq!(device.recut(&geometry(&[])).outcome, Err(SimError::Lost));
}

#[test]
fn busy_neighbours_are_felt_and_drawn_from_the_board() {
    let mut device = device(&["3g.40gb@0", "3g.40gb@4"]);
    let idle = device.watts();
    device.set_busy(position("3g.40gb@4"), Some(Load::TRAINING)).unwrap();
    assert!(device.slowdown(position("3g.40gb@0"), Load::INFERENCE).unwrap() > 1.0);
    assert!(device.watts() > idle + 100.0, "{}", device.watts());
    device.set_busy(position("3g.40gb@0"), Some(Load { power: 3.0, ..Load::TRAINING })).unwrap();
    assert_eq!(device.watts(), 400.0);
    assert!(device.clock_mhz() < 1_410.0, "{}", device.clock_mhz());
}

#[test]
fn loading_takes_a_start_and_its_bytes() {
    let delays = Delays::default();
    assert_eq!(delays.load(4096), delays.start + Duration::from_secs(2));
}
