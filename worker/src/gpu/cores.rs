//! Cores of this machine as a device: slices of 1, 2, 4 or 8 of them, each a process's by affinity.
//!
//! Cutting them is bookkeeping, kept in a file as a simulated GPU's is: a worker that starts again
//! finds the same slices, and the executors on them. A slice's device names its cores, so that whoever
//! holds the name knows where to run, and one that was made of other cores is another.

use std::{fs, io, path::PathBuf};

use mig::{Geometry, Kind, MigError, Position};
use serde::{Deserialize, Serialize};

use super::{
    Compute, Gpu, GpuError, Lease, Mode, Reshaped, Sample, Slice, Survey, User, Xid, lease::Leases,
};
use crate::cores::device;

/// Which cores, and where it is kept how they are cut.
#[derive(Clone, Debug)]
pub struct CoreSetup {
    /// The processors by the kernel's numbers, neighbors side by side. 1 to 8.
    pub cores: Vec<usize>,
    /// Memory they share.
    pub memory_mib: u64,
    pub path: PathBuf,
}

#[derive(Debug)]
pub struct CoreDevice {
    setup: CoreSetup,
    kind: &'static Kind,
    geometry: Geometry,
    leases: Leases,
}

/// What outlives the process.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    cores: Vec<usize>,
    slices: Vec<String>,
}

impl CoreDevice {
    pub fn open(setup: &CoreSetup) -> Result<Self, GpuError> {
        let count = u8::try_from(setup.cores.len()).unwrap_or(u8::MAX).min(mig::MOST_CORES);
        let kind = mig::cores(count, setup.memory_mib);
        let leases = Leases::default();
        let geometry = Geometry::empty(kind);
        let mut device = Self { setup: setup.clone(), kind, geometry, leases };
        device.geometry = device.read()?;
        Ok(device)
    }

    /// How they were cut when these very cores were; not at all if there is no such file.
    fn read(&self) -> Result<Geometry, GpuError> {
        let path = &self.setup.path;
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(self.failed(&error)),
        };
        // What cannot be read was cut by a program that kept it otherwise; executors on slices that
        // are no more are ended.
        let kept: Kept = serde_json::from_str(&text).unwrap_or_default();
        if kept.cores != self.setup.cores {
            return Ok(Geometry::empty(self.kind));
        }
        let positions = kept.slices.iter().map(|text| self.kind.position(text));
        let positions: Result<Vec<Position>, MigError> = positions.collect();
        let geometry = positions.and_then(|positions| Geometry::new(self.kind, positions));
        Ok(geometry.unwrap_or_else(|_| Geometry::empty(self.kind)))
    }

    /// Beside it first and then in its place, so that it is whole at any moment.
    fn keep(&self, geometry: &Geometry) -> Result<(), GpuError> {
        let slices = geometry.positions().iter().map(ToString::to_string).collect();
        let kept = Kept { cores: self.setup.cores.clone(), slices };
        let text = serde_json::to_vec(&kept).map_err(|error| self.failed(&error))?;
        let beside = self.setup.path.with_extension("new");
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &self.setup.path))
            .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::error::Error) -> GpuError {
        GpuError::Kept { reason: format!("{}: {error}", self.setup.path.display()) }
    }

    fn uuid(&self, position: Position) -> String {
        let range = usize::from(position.start())..usize::from(position.end());
        device(self.setup.cores.get(range).unwrap_or_default())
    }

    fn cut(&mut self, wanted: &Geometry) -> Result<(), GpuError> {
        let (found, asked) = (self.kind.name.as_str(), wanted.kind().name.as_str());
        let gpu = device(&self.setup.cores);
        if found != asked {
            return Err(GpuError::WrongKind { gpu, found, wanted: asked });
        }
        let gone = self.geometry.positions().iter();
        for position in gone.filter(|position| !wanted.positions().contains(position)) {
            if self.leases.has(&self.uuid(*position)) {
                return Err(GpuError::InUse { slice: position.to_string(), by: User::Lease });
            }
        }
        self.keep(wanted)?;
        tracing::info!(device = gpu, geometry = %wanted, "cores divided");
        self.geometry = wanted.clone();
        Ok(())
    }

    fn survey_now(&self) -> Survey {
        let slice = |position: &Position| Slice {
            profile: position.profile().name.clone(),
            position: Some(*position),
            gpu_instance: None,
            compute: vec![Compute {
                uuid: self.uuid(*position),
                id: None,
                whole: true,
                memory: None,
                processes: None,
            }],
        };
        let count = self.setup.cores.len();
        Survey {
            uuid: device(&self.setup.cores),
            name: format!("{count} cores"),
            kind: Some(self.kind),
            mode: Mode::On,
            reset_pending: false,
            memory: None,
            slices: self.geometry.positions().iter().map(slice).collect(),
            privileged: true,
            offered: self.kind.positions(),
            disagreements: Vec::new(),
            room: Vec::new(),
        }
    }
}

impl Gpu for CoreDevice {
    fn survey(&self) -> Result<Survey, GpuError> {
        Ok(self.survey_now())
    }

    /// Nothing is known of cores that a GPU tells.
    fn sample(&self) -> Result<Sample, GpuError> {
        Ok(Sample::default())
    }

    fn lease(&self, uuid: &str) -> Result<Lease, GpuError> {
        let mut positions = self.geometry.positions().iter();
        if positions.any(|position| self.uuid(*position) == uuid) {
            Ok(self.leases.take(uuid))
        } else {
            Err(GpuError::NoSuchSlice { uuid: uuid.to_owned() })
        }
    }

    fn reshape(&mut self, wanted: &Geometry) -> Reshaped {
        let outcome = self.cut(wanted);
        Reshaped { outcome, found: self.survey() }
    }

    fn xids(&mut self, _wait: std::time::Duration) -> Result<Vec<Xid>, GpuError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::cores;

    fn setup(name: &str, cores: &[usize]) -> CoreSetup {
        let directory = std::env::temp_dir().join(format!("sluice-cores-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        CoreSetup { cores: cores.to_vec(), memory_mib: 4_096, path: directory.join(name) }
    }

    fn geometry(count: u8, positions: &[&str]) -> Geometry {
        let kind = mig::cores(count, 4_096);
        let positions = positions.iter().map(|text| kind.position(text).unwrap()).collect();
        Geometry::new(kind, positions).unwrap()
    }

    fn devices(device: &CoreDevice) -> Vec<String> {
        let slices = device.survey().unwrap().slices;
        slices.iter().map(|slice| slice.usable().unwrap().uuid.clone()).collect()
    }

    #[test]
    fn slices_of_cores_have_disjoint_masks_and_are_found_again() {
        let setup = setup("again", &[4, 5, 6, 7]);
        let mut made = CoreDevice::open(&setup).unwrap();
        assert!(devices(&made).is_empty());
        made.reshape(&geometry(4, &["cpu:2@0", "cpu:1@2", "cpu:1@3"])).outcome.unwrap();
        assert_eq!(devices(&made), ["cores:4,5", "cores:6", "cores:7"]);
        assert_eq!(cores("cores:4,5"), Some(vec![4, 5]));
        let again = CoreDevice::open(&setup).unwrap();
        assert_eq!(devices(&again), devices(&made));
        let other = CoreSetup { cores: vec![0, 1, 2, 3], ..setup };
        let other = CoreDevice::open(&other).unwrap();
        assert!(devices(&other).is_empty(), "other cores are other slices");
    }

    #[test]
    fn a_leased_slice_of_cores_is_not_cut_away() {
        let mut device = CoreDevice::open(&setup("leased", &[0, 1])).unwrap();
        device.reshape(&geometry(2, &["cpu:1@0", "cpu:1@1"])).outcome.unwrap();
        let lease = device.lease("cores:0").unwrap();
        let refused = device.reshape(&geometry(2, &["cpu:2@0"])).outcome.unwrap_err();
        assert_eq!(refused.to_string(), "cpu:1@0 is in use: it is leased");
        assert_eq!(devices(&device), ["cores:0", "cores:1"]);
        drop(lease);
        device.reshape(&geometry(2, &["cpu:2@0"])).outcome.unwrap();
        assert_eq!(devices(&device), ["cores:0,1"]);
    }
}
