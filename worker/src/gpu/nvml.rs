//! GPUs as the NVIDIA driver's library shows them.
//!
//! `nvml-wrapper` for what it covers; the rest, creating and destroying instances above all, in
//! `raw`, the one module of this package where unsafe code is allowed.

mod catalogue;
mod failure;
mod raw;
mod read;
mod vacant;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use mig::{Geometry, Position};
use nvml_wrapper::{
    Device, EventSet, Nvml,
    bitmasks::event::EventTypes,
    enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor},
    error::NvmlError,
};

use self::{
    catalogue::Catalogue,
    failure::{Failure, failed},
    vacant::Vacant,
};
use super::{Ecc, Gpu, GpuError, Lease, Mode, Reshaped, Sample, Survey, Xid, lease::Leases, steps};

/// The name under which every driver installs its library; the one without `.1` comes only with
/// its development files.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Reads of one survey: others may change the GPU under us, or a call fail by chance.
const READS: u32 = 3;

/// Events handed out at once.
const EVENTS: usize = 64;

/// The driver's library, loaded once and kept for the life of the process.
#[derive(Clone, Copy, Debug)]
pub struct Library(&'static Nvml);

impl Library {
    pub fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let path = path.unwrap_or_else(|| Path::new(LIBRARY));
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            // Never unloaded: its threads and our event sets may outlive any owner.
            Ok(nvml) => Ok(Self(Box::leak(Box::new(nvml)))),
            Err(error) => Err(not_opened(path.to_owned(), error)),
        }
    }

    pub fn count(self) -> Result<u32, GpuError> {
        Ok(self.0.device_count().map_err(failed("nvmlDeviceGetCount_v2"))?)
    }

    pub fn gpu(self, index: u32) -> Result<NvmlGpu, GpuError> {
        let count = self.count()?;
        if index >= count {
            return Err(GpuError::NoSuchGpu { wanted: index, count });
        }
        let device =
            self.0.device_by_index(index).map_err(failed("nvmlDeviceGetHandleByIndex_v2"))?;
        let uuid = device.uuid().map_err(failed("nvmlDeviceGetUUID"))?;
        let events = read::unless_silent(self.watch(&device))?;
        let (catalogue, leases) = (OnceLock::new(), Leases::default());
        Ok(NvmlGpu { nvml: self.0, uuid, catalogue, leases, events })
    }

    fn watch(self, device: &Device<'static>) -> Result<EventSet<'static>, GpuError> {
        let set = self.0.create_event_set().map_err(failed("nvmlEventSetCreate"))?;
        let set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set);
        Ok(set.map_err(|error| failed("nvmlDeviceRegisterEvents")(error.error))?)
    }
}

fn not_opened(path: PathBuf, error: NvmlError) -> GpuError {
    if let NvmlError::LibloadingError(error) = &error {
        return GpuError::LibraryMissing { path, reason: error.to_string() };
    }
    let Failure { code, .. } = failed("nvmlInit_v2")(error);
    GpuError::DriverMissing { path, code }
}

#[derive(Debug)]
pub struct NvmlGpu {
    nvml: &'static Nvml,
    uuid: String,
    /// What it can be cut into, which no reshape changes, once it was read without doubt.
    catalogue: OnceLock<Arc<Catalogue>>,
    leases: Leases,
    /// Absent if the GPU tells no events.
    events: Option<EventSet<'static>>,
}

impl Gpu for NvmlGpu {
    fn survey(&self) -> Result<Survey, GpuError> {
        let mut survey = self.look();
        for _ in 1..READS {
            if survey.is_ok() {
                break;
            }
            survey = self.look();
        }
        survey
    }

    fn sample(&self) -> Result<Sample, GpuError> {
        let device = self.device()?;
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let errors = |kind| device.total_ecc_errors(kind, EccCounter::Volatile);
        let ecc = |kind| read::optional("nvmlDeviceGetTotalEccErrors", errors(kind));
        let corrected = ecc(MemoryError::Corrected)?;
        let uncorrected = ecc(MemoryError::Uncorrected)?;
        Ok(Sample {
            power_milliwatts: read::optional("nvmlDeviceGetPowerUsage", device.power_usage())?,
            clock_mhz: read::optional("nvmlDeviceGetClockInfo", device.clock_info(Clock::SM))?,
            temperature_celsius: read::optional("nvmlDeviceGetTemperature", temperature)?,
            ecc: corrected
                .zip(uncorrected)
                .map(|(corrected, uncorrected)| Ecc { corrected, uncorrected }),
        })
    }

    fn lease(&self, uuid: &str) -> Result<Lease, GpuError> {
        let survey = self.survey()?;
        let mut known = survey.slices.iter().flat_map(|slice| &slice.compute);
        if known.any(|compute| compute.uuid == uuid) {
            Ok(self.leases.take(uuid))
        } else {
            Err(GpuError::NoSuchSlice { uuid: uuid.to_owned() })
        }
    }

    fn reshape(&mut self, wanted: &Geometry) -> Reshaped {
        let outcome = self.cut(wanted);
        Reshaped { outcome, found: self.survey() }
    }

    fn xids(&mut self, wait: Duration) -> Result<Vec<Xid>, GpuError> {
        let silent = GpuError::NotSupported { call: "nvmlDeviceRegisterEvents" };
        let events = self.events.as_ref().ok_or(silent)?;
        let mut found = Vec::new();
        let mut wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        while found.len() < EVENTS
            && let Some(xid) = raw::next_xid(events, wait_ms)?
        {
            found.push(xid);
            wait_ms = 0;
        }
        Ok(found)
    }
}

impl NvmlGpu {
    fn device(&self) -> Result<Device<'static>, GpuError> {
        let device = self.nvml.device_by_uuid(self.uuid.as_str());
        Ok(device.map_err(failed("nvmlDeviceGetHandleByUUID"))?)
    }

    fn catalogue(&self, device: &Device<'_>) -> Result<Arc<Catalogue>, GpuError> {
        if let Some(known) = self.catalogue.get() {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(Catalogue::read(device)?);
        if read.is_certain() {
            self.catalogue.get_or_init(|| Arc::clone(&read));
        }
        Ok(read)
    }

    fn look(&self) -> Result<Survey, GpuError> {
        let device = self.device()?;
        let (mode, reset_pending) = read::mode(&device)?;
        let name = device.name().map_err(failed("nvmlDeviceGetName"))?;
        let memory = read::memory(&device)?;
        let mut survey = Survey {
            uuid: self.uuid.clone(),
            name,
            kind: catalogue::kind(&device)?,
            mode,
            reset_pending,
            memory,
            slices: Vec::new(),
            privileged: false,
            offered: Vec::new(),
            disagreements: Vec::new(),
            room: Vec::new(),
        };
        match mode {
            Mode::Unsupported | Mode::Off => {
                survey.slices.push(read::whole(&device, &self.uuid, &survey.name)?);
            }
            Mode::On => {
                let catalogue = self.catalogue(&device)?;
                let instances = read::instances(&device, &catalogue)?;
                survey.privileged = instances.is_some();
                survey.slices = read::slices(&device, &catalogue, instances.as_deref())?;
                survey.offered = catalogue.offered().collect();
                survey.disagreements = catalogue.disagreements.clone();
                survey.room = read::room(&device, &catalogue)?;
                // Ids are used again, so a change in between could mix two slices into one.
                if read::instances(&device, &catalogue)? != instances {
                    return Err(GpuError::Stale { call: "nvmlDeviceGetGpuInstances" });
                }
            }
        }
        Ok(survey)
    }

    fn cut(&self, wanted: &Geometry) -> Result<(), GpuError> {
        let survey = self.survey()?;
        self.check(&survey, wanted)?;
        let device = self.device()?;
        let catalogue = self.catalogue(&device)?;
        let steps = steps::plan(&survey.slices, wanted);
        // All of them before the first is touched: a reshape that cannot finish should not begin.
        for doomed in &steps.destroy {
            Vacant::check(&device, *doomed, &catalogue, &self.leases)?;
        }
        for doomed in steps.destroy {
            let vacant = Vacant::check(&device, doomed, &catalogue, &self.leases)?;
            raw::destroy(&device, &vacant)?;
            tracing::info!(gpu = self.uuid, slice = vacant.label(), "slice destroyed");
        }
        for (id, position) in steps.complete {
            raw::create_compute(&device, id, compute_slices(position))?;
            tracing::info!(gpu = self.uuid, slice = %position, "slice completed");
        }
        for position in steps.create {
            let profile =
                catalogue.profile_at(position).ok_or(GpuError::NotOffered { position })?;
            let id = raw::create(&device, profile, u32::from(position.start()))?;
            raw::create_compute(&device, id, compute_slices(position))?;
            tracing::info!(gpu = self.uuid, slice = %position, "slice created");
        }
        Ok(())
    }

    /// Whether the GPU can be cut as wanted at all.
    fn check(&self, survey: &Survey, wanted: &Geometry) -> Result<(), GpuError> {
        let gpu = self.uuid.clone();
        match survey.mode {
            Mode::Unsupported => return Err(GpuError::MigUnsupported { gpu }),
            Mode::Off => return Err(GpuError::MigOff { gpu }),
            Mode::On => {}
        }
        let Some(kind) = survey.kind else {
            return Err(GpuError::UnknownKind { gpu, name: survey.name.clone() });
        };
        if kind.name != wanted.kind().name {
            let (found, wanted) = (&kind.name, &wanted.kind().name);
            return Err(GpuError::WrongKind { gpu, found, wanted });
        }
        if !survey.privileged {
            return Err(GpuError::NoPermission { call: "nvmlDeviceGetGpuInstances" });
        }
        match wanted.positions().iter().find(|position| !survey.offered.contains(position)) {
            Some(position) => Err(GpuError::NotOffered { position: *position }),
            None => Ok(()),
        }
    }
}

fn compute_slices(position: Position) -> u32 {
    u32::from(position.profile().compute_slices)
}
