//! A fake library in a folder of its own, and what it must agree on with the worker.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use fakenvml::{Mig, STATE_FILE, State};
use mig::{Geometry, kind};
use worker::gpu::{
    Survey,
    nvml::{Library, NvmlGpu},
};

pub(crate) struct Fake {
    folder: PathBuf,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let removed = fs::remove_dir_all(&self.folder);
        assert!(removed.is_ok(), "{}: {removed:?}", self.folder.display());
    }
}

impl Fake {
    /// A copy of the library, since the loader would give one file to every test of a process.
    pub(crate) fn new(state: &State) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nvml-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(built(), folder.join("libnvidia-ml.so.1")).unwrap();
        let fake = Self { folder };
        fake.write(state);
        fake
    }

    /// One GPU, cut, with these slices.
    pub(crate) fn cut(kind: &str, positions: &[&str]) -> Self {
        let fake = Self::new(&State::new(&[(kind, Mig::On)]));
        fake.gpu().reshape_to(&geometry(kind, positions));
        fake
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("libnvidia-ml.so.1")
    }

    pub(crate) fn library(&self) -> Library {
        Library::open(Some(&self.path())).unwrap()
    }

    pub(crate) fn gpu(&self) -> NvmlGpu {
        self.library().gpu(0).unwrap()
    }

    pub(crate) fn state(&self) -> State {
        State::read(&self.folder.join(STATE_FILE)).unwrap()
    }

    pub(crate) fn write(&self, state: &State) {
        state.write(&self.folder.join(STATE_FILE)).unwrap();
    }

    pub(crate) fn change(&self, how: impl FnOnce(&mut State)) {
        State::change(&self.folder.join(STATE_FILE), how).unwrap();
    }

    pub(crate) fn occupy(&self, position: &str, pid: u32) {
        self.change(|state| {
            let device = &mut state.devices[0];
            let at = |index: &usize| {
                device.position(&device.instances[*index]).as_deref() == Some(position)
            };
            let index = (0..device.instances.len()).find(at).unwrap();
            device.instances[index].compute[0].pids.push(pid);
        });
    }
}

/// The library cargo built because this package's tests depend on it.
fn built() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().unwrap().join("libfakenvml.so");
    assert!(path.exists(), "no {}: run cargo build -p fakenvml", path.display());
    path
}

pub(crate) trait ReshapeTo {
    fn reshape_to(&mut self, wanted: &Geometry);
}

impl ReshapeTo for NvmlGpu {
    fn reshape_to(&mut self, wanted: &Geometry) {
        let reshaped = worker::gpu::Gpu::reshape(self, wanted);
        assert_eq!(reshaped.outcome, Ok(()), "to {wanted}");
        assert_eq!(reshaped.found.unwrap().geometry().as_ref(), Some(wanted));
    }
}

pub(crate) fn geometry(name: &str, positions: &[&str]) -> Geometry {
    let kind = kind(name).unwrap();
    let positions = positions.iter().map(|text| kind.position(text).unwrap()).collect();
    Geometry::new(kind, positions).unwrap()
}

/// A slice, as both sides can tell it: position, GPU instance, and of each compute instance its id,
/// UUID and processes.
pub(crate) type Told = (Option<String>, Option<u32>, Vec<(Option<u32>, String, Option<Vec<u32>>)>);

/// The slices of the first GPU by the library's own state.
pub(crate) fn truth(state: &State) -> Vec<Told> {
    let device = &state.devices[0];
    let told = |instance: &fakenvml::Instance| {
        let compute = instance.compute.iter();
        let compute = compute.map(|one| (Some(one.id), one.uuid.clone(), Some(one.pids.clone())));
        (device.position(instance), Some(instance.id), compute.collect())
    };
    let mut slices: Vec<Told> = device.instances.iter().map(told).collect();
    slices.sort();
    slices
}

pub(crate) fn reported(survey: &Survey) -> Vec<Told> {
    let told = |slice: &worker::gpu::Slice| {
        let compute = slice.compute.iter().map(|one| {
            let pids = one.processes.as_ref();
            let pids = pids.map(|all| all.iter().map(|process| process.pid).collect());
            (one.id, one.uuid.clone(), pids)
        });
        (slice.position.map(|at| at.to_string()), slice.gpu_instance, compute.collect())
    };
    let mut slices: Vec<Told> = survey.slices.iter().map(told).collect();
    slices.sort();
    slices
}
