//! Reshaping makes what is wanted and touches nothing else.

use std::collections::BTreeMap;

use fakenvml::{Fault, Mig, State};
use mig::{Geometry, kind};
use worker::gpu::{Gpu, GpuError, User};

use crate::fake::{Fake, ReshapeTo, geometry, reported, truth};

/// The handle of the instance at each position, which is never given to another.
fn handles(state: &State) -> BTreeMap<String, u64> {
    let device = &state.devices[0];
    let at = |one: &fakenvml::Instance| (device.position(one).unwrap(), one.serial);
    device.instances.iter().map(at).collect()
}

#[test]
fn reshape_to_every_maximal_geometry_keeps_unchanged_slices() {
    for name in ["A100-80GB", "H100-80GB"] {
        let layouts = Geometry::maximal(kind(name).unwrap(), |profile| {
            !profile.media && !profile.double_memory()
        });
        assert_eq!(layouts.len(), 19);
        let fake = Fake::new(&State::new(&[(name, Mig::On)]));
        let mut gpu = fake.gpu();
        for wanted in &layouts {
            let before = handles(&fake.state());
            gpu.reshape_to(wanted);
            let state = fake.state();
            assert_eq!(reported(&gpu.survey().unwrap()), truth(&state), "{name} {wanted}");
            for (position, handle) in handles(&state) {
                if let Some(old) = before.get(&position) {
                    assert_eq!(handle, *old, "{name} {wanted}: {position} was made again");
                }
            }
        }
        assert_eq!(fake.state().attacks, 0);
    }
}

#[test]
fn a_reshape_to_what_is_there_changes_nothing() {
    let positions = ["2g.20gb@0", "1g.20gb@2", "3g.40gb@4"];
    let fake = Fake::cut("A100-80GB", &positions);
    let before = fake.state();
    fake.gpu().reshape_to(&geometry("A100-80GB", &positions));
    assert_eq!(fake.state(), before);
}

#[test]
fn used_slice_stops_the_reshape_before_anything_changes() {
    let fake = Fake::cut("A100-80GB", &["3g.40gb@0", "2g.20gb@4", "1g.10gb@6"]);
    fake.occupy("1g.10gb@6", 4242);
    let before = fake.state();
    let mut gpu = fake.gpu();
    let reshaped = gpu.reshape(&geometry("A100-80GB", &["7g.80gb@0"]));
    let by = User::Processes(vec![4242]);
    assert_eq!(reshaped.outcome, Err(GpuError::InUse { slice: "1g.10gb@6".to_owned(), by }));
    assert_eq!(fake.state(), before);
    assert_eq!(reported(&reshaped.found.unwrap()), truth(&before));
}

#[test]
fn a_leased_slice_lives_until_its_lease_ends() {
    let fake = Fake::cut("A100-80GB", &["4g.40gb@0", "3g.40gb@4"]);
    let mut gpu = fake.gpu();
    let uuid = gpu.survey().unwrap().slices[1].usable().unwrap().uuid.clone();
    let lease = gpu.lease(&uuid).unwrap();
    let wanted = geometry("A100-80GB", &["4g.40gb@0", "2g.20gb@4"]);
    let refused = gpu.reshape(&wanted).outcome;
    let slice = "3g.40gb@4".to_owned();
    assert_eq!(refused, Err(GpuError::InUse { slice, by: User::Lease }));
    drop(lease);
    gpu.reshape_to(&wanted);
    let gone = gpu.lease("MIG-none").unwrap_err();
    assert_eq!(gone, GpuError::NoSuchSlice { uuid: "MIG-none".to_owned() });
}

#[test]
fn slices_beside_a_used_one_are_reshaped() {
    let fake = Fake::cut("A100-80GB", &["3g.40gb@0", "3g.40gb@4"]);
    fake.occupy("3g.40gb@0", 4242);
    fake.gpu().reshape_to(&geometry("A100-80GB", &["3g.40gb@0", "2g.20gb@4", "1g.10gb@6"]));
    assert_eq!(fake.state().attacks, 0);
}

#[test]
fn a_process_that_comes_after_the_look_is_saved_by_the_driver() {
    let fake = Fake::cut("A100-80GB", &["7g.80gb@0"]);
    let mut gpu = fake.gpu();
    fake.change(|state| state.faults = vec![Fault::every("nvmlComputeInstanceDestroy", 19)]);
    let reshaped = gpu.reshape(&geometry("A100-80GB", &["3g.40gb@0"]));
    let slice = "7g.80gb@0".to_owned();
    assert_eq!(reshaped.outcome, Err(GpuError::InUse { slice, by: User::Unknown }));
    assert_eq!(reported(&reshaped.found.unwrap()), truth(&fake.state()));
}

#[test]
fn instance_without_compute_instance_is_found_and_completed() {
    let fake = Fake::new(&State::new(&[("A100-80GB", Mig::On)]));
    let mut gpu = fake.gpu();
    let wanted = geometry("A100-80GB", &["3g.40gb@4"]);
    let fault = Fault::every("nvmlGpuInstanceCreateComputeInstance", 23);
    fake.change(|state| state.faults = vec![fault]);
    let reshaped = gpu.reshape(&wanted);
    let call = "nvmlGpuInstanceCreateComputeInstance";
    assert_eq!(reshaped.outcome, Err(GpuError::InsufficientResources { call }));
    let found = reshaped.found.unwrap();
    assert_eq!(found.slices[0].usable(), None);
    assert_eq!(reported(&found), truth(&fake.state()));

    fake.change(|state| state.faults.clear());
    let handle = handles(&fake.state());
    gpu.reshape_to(&wanted);
    assert_eq!(handles(&fake.state()), handle);
    assert!(gpu.survey().unwrap().slices[0].usable().is_some());
}

#[test]
fn a_slice_cut_into_pieces_by_someone_else_is_made_whole() {
    let fake = Fake::cut("A100-80GB", &["3g.40gb@0", "3g.40gb@4"]);
    fake.change(|state| {
        let compute = &mut state.devices[0].instances[0].compute;
        compute[0].profile = 0;
        let mut second = compute[0].clone();
        (second.id, second.serial, second.slot) = (1, 999, 5);
        second.uuid.push('b');
        compute.push(second);
    });
    let mut gpu = fake.gpu();
    let survey = gpu.survey().unwrap();
    assert_eq!(reported(&survey), truth(&fake.state()));
    assert_eq!(survey.slices[0].compute.len(), 2);
    assert_eq!(survey.slices[0].usable(), None);
    gpu.reshape_to(&geometry("A100-80GB", &["3g.40gb@0", "3g.40gb@4"]));
    assert!(gpu.survey().unwrap().slices.iter().all(|slice| slice.usable().is_some()));
}

#[test]
fn a_gpu_that_is_not_cut_is_not_reshaped() {
    let kinds = [("A100-80GB", Mig::Off), ("A100-80GB", Mig::Unsupported), ("A30-24GB", Mig::On)];
    let fake = Fake::new(&State::new(&kinds));
    let wanted = geometry("A100-80GB", &["7g.80gb@0"]);
    let refusal = |index| {
        let mut gpu = fake.library().gpu(index).unwrap();
        let error = gpu.reshape(&wanted).outcome.unwrap_err();
        let uuid = fake.state().devices[index as usize].uuid.clone();
        (error, uuid)
    };
    let (error, gpu) = refusal(0);
    assert_eq!(error, GpuError::MigOff { gpu });
    let (error, gpu) = refusal(1);
    assert_eq!(error, GpuError::MigUnsupported { gpu });
    let (error, gpu) = refusal(2);
    assert_eq!(error, GpuError::WrongKind { gpu, found: "A30-24GB", wanted: "A100-80GB" });
}

#[test]
fn permission_lost_half_way_is_an_error_of_its_own() {
    let fake = Fake::cut("A100-80GB", &["7g.80gb@0"]);
    let call = "nvmlDeviceCreateGpuInstanceWithPlacement";
    fake.change(|state| state.faults = vec![Fault::every(call, 4)]);
    let reshaped = fake.gpu().reshape(&geometry("A100-80GB", &["3g.40gb@0"]));
    assert_eq!(reshaped.outcome, Err(GpuError::NoPermission { call }));
    assert_eq!(reported(&reshaped.found.unwrap()), truth(&fake.state()));
}
