use mig::kind;

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-sim-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn setup(&self) -> Setup {
        let delays =
            Delays { create: Duration::ZERO, destroy: Duration::ZERO, ..Delays::default() };
        let kind = kind("A100-80GB").unwrap();
        Setup { kind, name: "gpu0".to_owned(), path: self.0.join("gpu0.json"), delays }
    }

    fn open(&self) -> SimulatedGpu {
        SimulatedGpu::open(&self.setup()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn geometry(positions: &[&str]) -> Geometry {
    let kind = kind("A100-80GB").unwrap();
    Geometry::new(kind, positions.iter().map(|text| kind.position(text).unwrap()).collect())
        .unwrap()
}

fn uuids(survey: &Survey) -> Vec<String> {
    survey.slices.iter().map(|slice| slice.usable().unwrap().uuid.clone()).collect()
}

#[test]
fn a_worker_that_starts_again_finds_the_same_gpu() {
    let folder = Folder::new("again");
    let mut gpu = folder.open();
    assert_eq!(gpu.survey().unwrap().geometry(), Some(geometry(&[])));
    gpu.reshape(&geometry(&["4g.40gb@0", "3g.40gb@4"])).outcome.unwrap();
    let before = gpu.survey().unwrap();
    drop(gpu);
    let after = folder.open().survey().unwrap();
    assert_eq!((after.uuid.clone(), uuids(&after)), (before.uuid.clone(), uuids(&before)));
    assert_eq!(after.geometry(), Some(geometry(&["4g.40gb@0", "3g.40gb@4"])));
}

#[test]
fn a_reshape_keeps_what_stays_and_names_what_is_new_anew() {
    let folder = Folder::new("names");
    let mut gpu = folder.open();
    let halves = geometry(&["3g.40gb@0", "3g.40gb@4"]);
    let first = uuids(&gpu.reshape(&halves).found.unwrap());
    gpu.reshape(&geometry(&["3g.40gb@0", "2g.20gb@4"])).outcome.unwrap();
    let again = uuids(&gpu.reshape(&halves).found.unwrap());
    assert_eq!(first[0], again[0]);
    assert_ne!(first[1], again[1]);
}

#[test]
fn a_leased_slice_is_not_destroyed_and_nothing_else_is_either() {
    let folder = Folder::new("lease");
    let mut gpu = folder.open();
    let halves = geometry(&["3g.40gb@0", "3g.40gb@4"]);
    let uuid = uuids(&gpu.reshape(&halves).found.unwrap())[1].clone();
    let lease = gpu.lease(&uuid).unwrap();
    let reshaped = gpu.reshape(&geometry(&["7g.80gb@0"]));
    assert!(matches!(reshaped.outcome, Err(GpuError::InUse { by: User::Lease, .. })));
    assert_eq!(reshaped.found.unwrap().geometry(), Some(halves));
    drop(lease);
    gpu.reshape(&geometry(&["7g.80gb@0"])).outcome.unwrap();
    assert_eq!(gpu.lease(&uuid).unwrap_err(), GpuError::NoSuchSlice { uuid });
}

#[test]
fn busy_slices_slow_neighbors_and_raise_power_and_memory() {
    let folder = Folder::new("feel");
    let mut gpu = folder.open();
    let uuids = uuids(&gpu.reshape(&geometry(&["3g.40gb@0", "3g.40gb@4"])).found.unwrap());
    let idle = gpu.sample().unwrap();
    let work = Work { uuid: uuids[0].clone(), memory_mib: 512, load: Load::TRAINING, duty: 1.0 };
    let felt = gpu.feel(&[work]).unwrap();
    assert_eq!((&felt[0], felt[1].0.as_str()), (&(uuids[0].clone(), 1.0), uuids[1].as_str()));
    assert!(felt[1].1 > 1.0, "{felt:?}");
    assert!(gpu.sample().unwrap().power_milliwatts > idle.power_milliwatts);
    assert_eq!(gpu.survey().unwrap().memory.unwrap().used_bytes, 512 * MIB);
    assert_eq!(gpu.feel(&[]).unwrap()[1].1, 1.0);
    assert_eq!(gpu.sample().unwrap(), idle);
}

#[test]
fn faults_happen_on_request() {
    let folder = Folder::new("faults");
    let mut gpu = folder.open();
    let faults = gpu.faults();
    faults.inject(Fault::Xid(48));
    let minute = Duration::from_secs(60);
    assert_eq!(gpu.xids(minute).unwrap(), [Xid { code: 48, gpu_instance: None }]);
    assert_eq!(gpu.xids(Duration::ZERO).unwrap(), []);
    faults.inject(Fault::FailedCreates(1));
    let reshaped = gpu.reshape(&geometry(&["7g.80gb@0"]));
    assert!(matches!(reshaped.outcome, Err(GpuError::InsufficientResources { .. })));
    assert_eq!(reshaped.found.unwrap().geometry(), Some(geometry(&[])));
    faults.inject(Fault::Lost);
    assert!(matches!(gpu.survey(), Err(GpuError::Lost { .. })));
}

#[test]
fn room_is_counted_as_if_no_other_profile_were_made() {
    let folder = Folder::new("room");
    let mut gpu = folder.open();
    let survey = gpu.reshape(&geometry(&["3g.40gb@0"])).found.unwrap();
    let count = |name: &str| survey.room.iter().find(|room| room.profile == name).unwrap().count;
    assert_eq!(
        [count("1g.10gb"), count("2g.20gb"), count("3g.40gb"), count("7g.80gb")],
        [3, 1, 1, 0]
    );
}

#[test]
fn invalid_state_file_is_rejected_and_a_foreign_one_replaced() {
    let folder = Folder::new("bad");
    let setup = folder.setup();
    for text in ["", "{\"kind\":\"A100-80GB\",\"made\":1,\"slices\":[{\"position\":\"9g\"}]}"] {
        std::fs::write(&setup.path, text).unwrap();
        let refusal = SimulatedGpu::open(&setup).unwrap_err();
        assert!(refusal.to_string().contains("gpu0.json"), "{refusal}");
    }
    std::fs::write(&setup.path, "{\"kind\":\"A30-24GB\"}").unwrap();
    assert_eq!(folder.open().survey().unwrap().geometry(), Some(geometry(&[])));
}
