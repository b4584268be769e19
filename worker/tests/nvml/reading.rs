//! What exists is what is reported, and what is not said is absent.

use std::{path::Path, time::Duration};

use fakenvml::{Event, Fault, Mig, STATE_FILE, State};
use mig::Geometry;
use worker::gpu::{Ecc, Gpu, GpuError, Memory, Mode, Sample, Xid, nvml::Library};

use crate::fake::{Fake, reported, truth};

#[test]
fn a_machine_without_the_library_is_an_ordinary_state() {
    let missing = Path::new("no/such/libnvidia-ml.so.1");
    let error = Library::open(Some(missing)).unwrap_err();
    assert!(matches!(error, GpuError::LibraryMissing { .. }), "{error}");
    assert!(error.is_absence());
    assert!(error.to_string().starts_with("no NVML at no/such/libnvidia-ml.so.1: "), "{error}");
}

#[test]
fn a_library_without_its_driver_is_an_ordinary_state() {
    let fake = Fake::new(&State::new(&[]));
    std::fs::remove_file(fake.path().with_file_name(STATE_FILE)).unwrap();
    let error = Library::open(Some(&fake.path())).unwrap_err();
    assert_eq!(error, GpuError::DriverMissing { path: fake.path(), code: 9 });
    assert!(error.is_absence());
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_how_many_are() {
    let fake = Fake::new(&State::new(&[("A100-80GB", Mig::On), ("H100-80GB", Mig::Off)]));
    assert_eq!(fake.library().count(), Ok(2));
    let error = fake.library().gpu(2).unwrap_err();
    assert_eq!(error, GpuError::NoSuchGpu { wanted: 2, count: 2 });
}

#[test]
fn a_gpu_that_is_not_cut_is_one_slice() {
    for (mig, mode, pending) in [
        (Mig::Off, Mode::Off, false),
        (Mig::Pending, Mode::Off, true),
        (Mig::Unsupported, Mode::Unsupported, false),
    ] {
        let mut state = State::new(&[("A100-80GB", mig)]);
        state.devices[0].pids = vec![4242];
        let fake = Fake::new(&state);
        let survey = fake.gpu().survey().unwrap();
        assert_eq!((survey.mode, survey.reset_pending), (mode, pending));
        let [slice] = survey.slices.as_slice() else { panic!("{:?}", survey.slices) };
        assert_eq!((slice.position, slice.gpu_instance), (None, None));
        let compute = slice.usable().unwrap();
        assert_eq!(compute.uuid, state.devices[0].uuid);
        assert_eq!(compute.processes.as_ref().unwrap()[0].pid, 4242);
        assert_eq!(survey.geometry(), None);
    }
}

#[test]
fn every_slice_is_reported_with_ids_memory_and_processes() {
    let fake = Fake::cut("H100-80GB", &["3g.40gb@0", "1g.10gb@4", "1g.20gb@6"]);
    fake.occupy("1g.10gb@4", 77);
    let survey = fake.gpu().survey().unwrap();
    assert_eq!(survey.kind.unwrap().name, "H100-80GB");
    assert_eq!(reported(&survey), truth(&fake.state()));
    assert_eq!(survey.geometry().unwrap().to_string(), "3g.40gb@0,1g.10gb@4,1g.20gb@6");
    let one = survey.slices[1].usable().unwrap();
    let mib = |mib: u64| mib << 20;
    let memory = Memory { total_bytes: mib(9984), used_bytes: mib(512) };
    assert_eq!(one.memory, Some(memory));
    assert_eq!(one.processes.as_ref().unwrap()[0].memory_bytes, Some(mib(512)));
}

#[test]
fn driver_and_table_agree_on_every_position_of_every_gpu() {
    for kind in mig::kinds() {
        let fake = Fake::new(&State::new(&[(kind.name.as_str(), Mig::On)]));
        let survey = fake.gpu().survey().unwrap();
        assert_eq!(survey.kind.unwrap().name, kind.name);
        assert_eq!(survey.disagreements, [], "{}", kind.name);
        assert_eq!(survey.offered, kind.positions(), "{}", kind.name);
    }
}

#[test]
fn the_room_the_driver_sees_is_the_room_the_table_sees() {
    for positions in [&["3g.40gb@4"][..], &["1g.10gb@1", "2g.20gb@4"], &["1g.20gb@6"], &[]] {
        let fake = Fake::cut("A100-80GB", positions);
        let survey = fake.gpu().survey().unwrap();
        let geometry = survey.geometry().unwrap();
        for room in &survey.room {
            let profile = survey.kind.unwrap().profile(&room.profile).unwrap();
            let add = |(geometry, count): (Geometry, u32), position| match geometry.with(position) {
                Ok(larger) => (larger, count + 1),
                Err(_) => (geometry, count),
            };
            let (_, count) = profile.positions().fold((geometry.clone(), 0), add);
            assert_eq!(room.count, count, "{} beside {geometry}", room.profile);
        }
        assert_eq!(survey.room.len(), 7);
    }
}

#[test]
fn without_permission_slices_are_seen_but_not_where_they_are() {
    let fake = Fake::cut("A100-80GB", &["4g.40gb@0", "3g.40gb@4"]);
    fake.change(|state| state.privileged = false);
    let mut gpu = fake.gpu();
    let survey = gpu.survey().unwrap();
    assert!(!survey.privileged);
    let mut seen: Vec<_> = survey.slices.iter().map(|one| one.profile.as_str()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["3g.40gb", "4g.40gb"]);
    assert!(survey.slices.iter().all(|slice| slice.position.is_none()));
    let mut uuids: Vec<_> = survey.slices.iter().map(|one| &one.compute[0].uuid).collect();
    let state = fake.state();
    let mut made: Vec<_> =
        state.devices[0].instances.iter().map(|one| &one.compute[0].uuid).collect();
    uuids.sort();
    made.sort();
    assert_eq!(uuids, made);

    let wanted = Geometry::empty(survey.kind.unwrap());
    let refused = gpu.reshape(&wanted).outcome.unwrap_err();
    assert_eq!(refused, GpuError::NoPermission { call: "nvmlDeviceGetGpuInstances" });
    assert_eq!(fake.state(), state);
}

#[test]
fn what_a_gpu_cannot_measure_is_absent() {
    let mut state = State::new(&[("A100-80GB", Mig::On)]);
    let fake = Fake::new(&state);
    let gpu = fake.gpu();
    let all = Sample {
        power_milliwatts: Some(61_500),
        clock_mhz: Some(1_410),
        temperature_celsius: Some(34),
        ecc: Some(Ecc { corrected: 3, uncorrected: 0 }),
    };
    assert_eq!(gpu.sample(), Ok(all));
    let device = &mut state.devices[0];
    (device.power_mw, device.clock_mhz, device.temperature_c, device.ecc) =
        (None, None, None, None);
    fake.write(&state);
    assert_eq!(gpu.sample(), Ok(Sample::default()));
}

#[test]
fn a_gpu_that_fell_off_the_bus_is_lost_and_not_absent() {
    let fake = Fake::new(&State::new(&[("A100-80GB", Mig::On)]));
    let gpu = fake.gpu();
    fake.change(|state| state.faults = vec![Fault::every("nvmlDeviceGetPowerUsage", 15)]);
    assert_eq!(gpu.sample(), Err(GpuError::Lost { call: "nvmlDeviceGetPowerUsage" }));
}

#[test]
fn xid_errors_are_told_once_with_the_slice_they_struck() {
    let kinds = [("A100-80GB", Mig::On), ("A100-80GB", Mig::On)];
    let fake = Fake::new(&State::new(&kinds));
    let mut gpu = fake.gpu();
    assert_eq!(gpu.xids(Duration::ZERO), Ok(vec![]));
    fake.change(|state| {
        state.events = vec![
            Event { device: 0, xid: 94, gpu_instance: Some(3) },
            Event { device: 1, xid: 31, gpu_instance: None },
            Event { device: 0, xid: 79, gpu_instance: None },
        ];
    });
    let contained = Xid { code: 94, gpu_instance: Some(3) };
    let fallen = Xid { code: 79, gpu_instance: None };
    assert_eq!(gpu.xids(Duration::from_millis(10)), Ok(vec![contained, fallen]));
    assert_eq!(gpu.xids(Duration::ZERO), Ok(vec![]));
}

#[test]
fn a_gpu_without_events_says_so() {
    let mut state = State::new(&[("A100-80GB", Mig::On)]);
    state.faults = vec![Fault::every("nvmlDeviceRegisterEvents", 3)];
    let fake = Fake::new(&state);
    let silent = fake.gpu().xids(Duration::ZERO).unwrap_err();
    assert_eq!(silent, GpuError::NotSupported { call: "nvmlDeviceRegisterEvents" });
}

#[test]
fn processes_that_may_not_be_listed_are_absent() {
    let fake = Fake::cut("A100-80GB", &["7g.80gb@0"]);
    let hidden = Fault::every("nvmlDeviceGetComputeRunningProcesses_v3", 4);
    fake.change(|state| state.faults = vec![hidden]);
    let survey = fake.gpu().survey().unwrap();
    assert_eq!(survey.slices[0].usable().unwrap().processes, None);
}
