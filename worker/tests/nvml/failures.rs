//! Whatever call fails, what is reported is what there is, and nothing used is lost.

use fakenvml::{Fault, State};
use worker::gpu::{Gpu, GpuError};

use crate::fake::{Fake, ReshapeTo, geometry, reported, truth};

const BEFORE: [&str; 2] = ["3g.40gb@0", "3g.40gb@4"];
const WANTED: [&str; 2] = ["3g.40gb@0", "2g.20gb@4"];
const BUSY: &str = "3g.40gb@0";

/// Unknown, not found, invalid argument. Every other code that says nothing of what exists is to a
/// reader like the first.
const CODES: [u32; 3] = [999, 6, 2];

fn busy_lives(before: &State, after: &State) -> bool {
    let find = |state: &State| {
        let device = &state.devices[0];
        let at = |one: &&fakenvml::Instance| device.position(one).as_deref() == Some(BUSY);
        device.instances.iter().find(at).cloned()
    };
    find(before).is_some() && find(before) == find(after)
}

/// Reshapes to `wanted` with the call after `pass` others failing; whether there was such a call.
fn strike(fake: &Fake, before: &State, fault: Fault, wanted: &[&str]) -> bool {
    fake.write(before);
    let mut gpu = fake.gpu();
    let what = format!("{fault:?}");
    fake.change(|state| state.faults = vec![fault]);
    let reshaped = gpu.reshape(&geometry("A100-80GB", wanted));
    let state = fake.state();
    let found = reshaped.found.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(reported(&found), truth(&state), "{what}");
    assert_eq!(state.attacks, 0, "{what}: tried to destroy a used slice");
    assert!(busy_lives(before, &state), "{what}: the used slice was touched");
    if wanted.contains(&BUSY) {
        fake.change(|state| state.faults.clear());
        gpu.reshape_to(&geometry("A100-80GB", wanted));
        assert!(busy_lives(before, &fake.state()), "{what}: lost on the second try");
    } else {
        assert!(reshaped.outcome.is_err(), "{what}");
        assert_eq!(truth(&state), truth(before), "{what}");
    }
    state.faults[0].times == 0
}

fn occupied() -> (Fake, State) {
    let fake = Fake::cut("A100-80GB", &BEFORE);
    fake.occupy(BUSY, 4242);
    let state = fake.state();
    (fake, state)
}

#[test]
fn a_failure_at_any_call_leaves_a_report_equal_to_the_truth() {
    let (fake, before) = occupied();
    for code in CODES {
        let mut pass = 0;
        while strike(&fake, &before, Fault::nth(pass, code), &WANTED) {
            pass += 1;
        }
        assert!(pass > 100, "only {pass} calls were made to fail");
    }
}

#[test]
fn call_that_works_but_reports_failure_leaves_a_true_report() {
    let (fake, before) = occupied();
    let mut pass = 0;
    while strike(&fake, &before, Fault { works: true, ..Fault::nth(pass, 999) }, &WANTED) {
        pass += 1;
    }
    assert!(pass > 100, "only {pass} calls were made to fail");
}

#[test]
fn no_failure_at_any_call_lets_a_used_slice_be_destroyed() {
    let (fake, before) = occupied();
    for code in CODES {
        let mut pass = 0;
        while strike(&fake, &before, Fault::nth(pass, code), &["7g.80gb@0"]) {
            pass += 1;
        }
        assert!(pass > 50, "only {pass} calls were made to fail");
    }
}

#[test]
fn driver_that_denies_once_destroys_no_used_slice() {
    let (fake, before) = occupied();
    for code in [3, 4] {
        for pass in 0.. {
            fake.write(&before);
            let mut gpu = fake.gpu();
            fake.change(|state| state.faults = vec![Fault::nth(pass, code)]);
            let reshaped = gpu.reshape(&geometry("A100-80GB", &["7g.80gb@0"]));
            let state = fake.state();
            assert!(reshaped.outcome.is_err(), "code {code} at call {pass}");
            assert_eq!(truth(&state), truth(&before), "code {code} at call {pass}");
            assert_eq!(state.attacks, 0);
            if state.faults[0].times > 0 {
                break;
            }
        }
    }
}

#[test]
fn slice_swapped_for_a_used_one_is_not_touched() {
    let fake = Fake::cut("A100-80GB", &["3g.40gb@0"]);
    let mut vacant = fake.state();
    fake.gpu().reshape_to(&geometry("A100-80GB", &[]));
    fake.gpu().reshape_to(&geometry("A100-80GB", &["2g.20gb@0"]));
    fake.occupy("2g.20gb@0", 4242);
    let used = fake.state();
    let id = |state: &State| state.devices[0].instances[0].id;
    assert_eq!(id(&vacant), id(&used), "ids are used again, or this shows nothing");
    vacant.made = used.made;
    fake.write(&vacant);
    fake.gpu().reshape_to(&geometry("A100-80GB", &["1g.10gb@6"]));
    let unswapped = truth(&fake.state());
    for pass in 0.. {
        fake.write(&vacant);
        let mut gpu = fake.gpu();
        let becomes = Some(used.devices[0].clone());
        fake.change(|state| state.faults = vec![Fault { becomes, ..Fault::nth(pass, 0) }]);
        let reshaped = gpu.reshape(&geometry("A100-80GB", &["1g.10gb@6"]));
        let state = fake.state();
        assert_eq!(state.attacks, 0, "at call {pass}");
        let found = reported(&reshaped.found.unwrap());
        let one_moment = found == truth(&state) || found == unswapped;
        assert!(one_moment, "at call {pass}: {found:?} is a mix of before and after");
        if state.faults[0].times > 0 {
            break;
        }
        let kept =
            state.devices[0].instances.iter().any(|one| one == &used.devices[0].instances[0]);
        assert!(kept, "at call {pass}");
    }
}

#[test]
fn a_gpu_that_cannot_be_read_at_all_is_reported_as_that() {
    let (fake, before) = occupied();
    let mut gpu = fake.gpu();
    fake.change(|state| state.faults = vec![Fault::every("nvmlDeviceGetMigMode", 15)]);
    let reshaped = gpu.reshape(&geometry("A100-80GB", &WANTED));
    let lost = GpuError::Lost { call: "nvmlDeviceGetMigMode" };
    assert_eq!(reshaped.outcome, Err(lost.clone()));
    assert_eq!(reshaped.found.unwrap_err(), lost);
    assert_eq!(truth(&fake.state()), truth(&before));
}
