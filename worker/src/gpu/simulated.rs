//! GPUs that do not exist, by the physics of [`simgpu`].
//!
//! How one is cut is kept in a file, as a real GPU keeps it: a worker that starts again finds the
//! same slices with the same UUIDs. Changes take the time that [`Delays`] says.

mod kept;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc, time::Duration};

use mig::{Geometry, Kind, Position};
use parking_lot::{Condvar, Mutex};
use simgpu::{Device, SimError};

pub use simgpu::{Delays, Fault, Load};

use self::kept::Kept;
use super::{
    Compute, Gpu, GpuError, Lease, Memory, Mode, Reshaped, Room, Sample, Slice, Survey, User, Xid,
    lease::Leases,
};
use crate::{clock, engine::pause};

const MIB: u64 = 1 << 20;
/// What an idle board in a cool room has, and how much warmer it is at its power limit.
const IDLE_CELSIUS: f64 = 32.0;
const LIMIT_CELSIUS: f64 = 72.0;

#[derive(Clone, Debug)]
pub struct Setup {
    pub kind: &'static Kind,
    /// Unlike that of every other in the fleet: its UUIDs are made of it.
    pub name: String,
    pub path: PathBuf,
    pub delays: Delays,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub uuid: String,
    pub memory_mib: u64,
    pub load: Load,
    pub duty: f64,
}

/// Makes things go wrong on a GPU, from anywhere.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Injected>);

#[derive(Debug, Default)]
struct Injected {
    pending: Mutex<Vec<Fault>>,
    added: Condvar,
}

impl Faults {
    pub fn inject(&self, fault: Fault) {
        self.0.pending.lock().push(fault);
        self.0.added.notify_all();
    }

    fn take(&self) -> Vec<Fault> {
        std::mem::take(&mut *self.0.pending.lock())
    }

    /// Returns once there is one, or after `wait`.
    fn wait(&self, wait: Duration) {
        let mut pending = self.0.pending.lock();
        let until = clock::now() + wait;
        while pending.is_empty() && !self.0.added.wait_until(&mut pending, until).timed_out() {}
    }
}

#[derive(Debug)]
pub struct SimulatedGpu {
    kept: Kept,
    device: Mutex<Device>,
    leases: Leases,
    faults: Faults,
}

impl SimulatedGpu {
    pub fn open(setup: &Setup) -> Result<Self, GpuError> {
        let kept = Kept::open(setup)?;
        let device = Mutex::new(Device::new(kept.geometry(), setup.delays));
        Ok(Self { kept, device, leases: Leases::default(), faults: Faults::default() })
    }

    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn device(&self) -> Result<parking_lot::MutexGuard<'_, Device>, GpuError> {
        let mut device = self.device.lock();
        for fault in self.faults.take() {
            device.inject(fault);
        }
        device.answers().map_err(refused)?;
        Ok(device)
    }

    fn cut(&mut self, wanted: &Geometry) -> Result<(), GpuError> {
        let mut device = self.device()?;
        let (gpu, kind) = (self.kept.uuid().to_owned(), device.kind());
        if kind.name != wanted.kind().name {
            let (found, wanted) = (kind.name.as_str(), wanted.kind().name.as_str());
            return Err(GpuError::WrongKind { gpu, found, wanted });
        }
        for (position, _, uuid) in self.kept.slices() {
            if !wanted.positions().contains(&position) && self.leases.has(uuid) {
                return Err(GpuError::InUse { slice: position.to_string(), by: User::Lease });
            }
        }
        let recut = device.recut(wanted);
        drop(device);
        pause::until(clock::now() + recut.took);
        self.kept.change(&recut.destroyed, &recut.created)?;
        for position in &recut.destroyed {
            tracing::info!(gpu, slice = %position, "slice destroyed");
        }
        for position in &recut.created {
            tracing::info!(gpu, slice = %position, "slice created");
        }
        recut.outcome.map_err(refused)
    }
}

impl Gpu for SimulatedGpu {
    fn survey(&self) -> Result<Survey, GpuError> {
        let device = self.device()?;
        let kind = device.kind();
        let memory = |total_mib: u64, free_mib: u64| Memory {
            total_bytes: total_mib * MIB,
            used_bytes: (total_mib - free_mib) * MIB,
        };
        let mut slices = Vec::new();
        let mut used_mib = 0;
        for (position, instance, uuid) in self.kept.slices() {
            let (total_mib, free_mib) =
                (simgpu::total_mib(position), device.free_mib(position).map_err(refused)?);
            used_mib += total_mib - free_mib;
            let compute = Compute {
                uuid: uuid.to_owned(),
                id: Some(0),
                whole: true,
                memory: Some(memory(total_mib, free_mib)),
                processes: None,
            };
            slices.push(Slice {
                profile: position.profile().name.clone(),
                position: Some(position),
                gpu_instance: Some(instance),
                compute: vec![compute],
            });
        }
        let all_mib = simgpu::total_mib(kind.whole());
        Ok(Survey {
            uuid: self.kept.uuid().to_owned(),
            name: format!("simulated {}", kind.name),
            kind: Some(kind),
            mode: Mode::On,
            reset_pending: false,
            memory: Some(memory(all_mib, all_mib.saturating_sub(used_mib))),
            slices,
            privileged: true,
            offered: kind.positions(),
            disagreements: Vec::new(),
            room: room(device.geometry()),
        })
    }

    fn sample(&self) -> Result<Sample, GpuError> {
        let device = self.device()?;
        let board = simgpu::board(device.kind());
        let watts = device.watts();
        let warm = (watts - board.idle_watts) / (board.cap_watts - board.idle_watts);
        let celsius = IDLE_CELSIUS + warm * (LIMIT_CELSIUS - IDLE_CELSIUS);
        Ok(Sample {
            power_milliwatts: Some((watts * 1e3) as u32),
            clock_mhz: Some(device.clock_mhz() as u32),
            temperature_celsius: Some(celsius as u32),
            ecc: None,
        })
    }

    fn lease(&self, uuid: &str) -> Result<Lease, GpuError> {
        drop(self.device()?);
        if self.kept.slices().any(|(_, _, known)| known == uuid) {
            Ok(self.leases.take(uuid))
        } else {
            Err(GpuError::NoSuchSlice { uuid: uuid.to_owned() })
        }
    }

    fn reshape(&mut self, wanted: &Geometry) -> Reshaped {
        let outcome = self.cut(wanted);
        Reshaped { outcome, found: self.survey() }
    }

    fn feel(&self, works: &[Work]) -> Result<Vec<(String, f64)>, GpuError> {
        let mut device = self.device()?;
        for (position, _, uuid) in self.kept.slices() {
            let work = works.iter().find(|work| work.uuid == uuid);
            let busy = work.map(|work| work.load.during(work.duty.clamp(0.0, 1.0)));
            let memory_mib = work.map_or(0, |work| work.memory_mib);
            device.set_use(position, memory_mib, busy).map_err(refused)?;
        }
        let mut felt = Vec::new();
        for (position, _, uuid) in self.kept.slices() {
            let work = works.iter().find(|work| work.uuid == uuid);
            let load = work.map_or(Load::INFERENCE, |work| work.load);
            felt.push((uuid.to_owned(), device.slowdown(position, load).map_err(refused)?));
        }
        Ok(felt)
    }

    fn xids(&mut self, wait: Duration) -> Result<Vec<Xid>, GpuError> {
        let found = self.device()?.take_xids();
        let codes = if found.is_empty() {
            self.faults.wait(wait);
            self.device()?.take_xids()
        } else {
            found
        };
        Ok(codes.into_iter().map(|code| Xid { code, gpu_instance: None }).collect())
    }
}

/// How many more slices of each profile there is room for, if no other is made.
fn room(geometry: &Geometry) -> Vec<Room> {
    let profiles = geometry.kind().profiles.iter();
    profiles
        .map(|profile| {
            let mut filled = geometry.clone();
            let mut count = 0;
            for position in profile.positions() {
                if let Ok(more) = filled.with(position) {
                    (filled, count) = (more, count + 1);
                }
            }
            Room { profile: profile.name.clone(), count }
        })
        .collect()
}

fn refused(error: SimError) -> GpuError {
    let call = "simulated";
    match error {
        SimError::Lost => GpuError::Lost { call },
        SimError::CreateFailed { .. } => GpuError::InsufficientResources { call },
        SimError::InUse { position } => {
            GpuError::InUse { slice: position.to_string(), by: User::Unknown }
        }
        SimError::NoSlice { position } => GpuError::NoSuchSlice { uuid: position.to_string() },
        other @ (SimError::Mig(_)
        | SimError::UnknownModel { .. }
        | SimError::Unmeasured
        | SimError::EmptyBatch
        | SimError::NoProcess
        | SimError::OutOfMemory { .. }) => GpuError::Simulated { reason: other.to_string() },
    }
}

/// A slice as it is kept: where, its GPU instance, its UUID.
type Known<'k> = (Position, u32, &'k str);
