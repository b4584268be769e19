//! What there is, read call by call. Handles live no longer than one reading.

use nvml_wrapper::{Device, enums::device::UsedGpuMemory, error::NvmlError};

use super::{
    catalogue::Catalogue,
    failure::{Failure, failed},
    raw::{self, Instance},
};
use crate::gpu::{Compute, GpuError, Memory, Mode, Process, Room, Slice};

pub(super) struct MigDevice<'nvml> {
    pub(super) device: Device<'nvml>,
    pub(super) uuid: String,
    /// The id of its GPU instance.
    pub(super) instance: u32,
    /// The id of its compute instance.
    pub(super) compute: u32,
}

/// An answer, or its absence if the driver will not give it.
pub(super) fn unless_silent<T>(answer: Result<T, GpuError>) -> Result<Option<T>, GpuError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_silence() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same, of a call of the wrapper's.
pub(super) fn optional<T>(
    call: &'static str,
    answer: Result<T, NvmlError>,
) -> Result<Option<T>, GpuError> {
    unless_silent(answer.map_err(|error| failed(call)(error).of_slice()))
}

pub(super) fn mode(device: &Device<'_>) -> Result<(Mode, bool), GpuError> {
    let found = device.mig_mode().map_err(failed("nvmlDeviceGetMigMode"));
    match found.map_err(GpuError::from) {
        Ok(found) => {
            let mode = if found.current == 0 { Mode::Off } else { Mode::On };
            Ok((mode, found.current != found.pending))
        }
        Err(GpuError::NotSupported { .. }) => Ok((Mode::Unsupported, false)),
        Err(error) => Err(error),
    }
}

pub(super) fn memory(device: &Device<'_>) -> Result<Option<Memory>, GpuError> {
    let found = optional("nvmlDeviceGetMemoryInfo_v2", device.memory_info())?;
    Ok(found.map(|found| Memory { total_bytes: found.total, used_bytes: found.used }))
}

pub(super) fn processes(device: &Device<'_>) -> Result<Vec<Process>, GpuError> {
    let direct = device.running_compute_processes();
    let direct = direct.map_err(failed("nvmlDeviceGetComputeRunningProcesses_v3"));
    let mut found = direct.map_err(Failure::of_slice)?;
    let shared = device.mps_running_compute_processes();
    let shared = optional("nvmlDeviceGetMPSComputeRunningProcesses_v3", shared)?;
    found.extend(shared.unwrap_or_default());
    let process = |found: nvml_wrapper::struct_wrappers::device::ProcessInfo| Process {
        pid: found.pid,
        memory_bytes: match found.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    Ok(found.into_iter().map(process).collect())
}

pub(super) fn whole(device: &Device<'_>, uuid: &str, name: &str) -> Result<Slice, GpuError> {
    let compute = Compute {
        uuid: uuid.to_owned(),
        id: None,
        whole: true,
        memory: memory(device)?,
        processes: unless_silent(processes(device))?,
    };
    Ok(Slice {
        profile: name.to_owned(),
        position: None,
        gpu_instance: None,
        compute: vec![compute],
    })
}

pub(super) fn instances(
    device: &Device<'_>,
    catalogue: &Catalogue,
) -> Result<Option<Vec<Instance>>, GpuError> {
    let mut found = Vec::new();
    for profile in &catalogue.profiles {
        match unless_silent(raw::instances(device, profile))? {
            Some(some) => found.extend(some),
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// How many slices of each profile of the driver's there is room for; none if we may not know.
pub(super) fn room(device: &Device<'_>, catalogue: &Catalogue) -> Result<Vec<Room>, GpuError> {
    let mut found = Vec::new();
    for profile in &catalogue.profiles {
        let count = raw::remaining(device, profile.id).map_err(GpuError::from);
        if let Some(count) = unless_silent(count)? {
            found.push(Room { profile: profile.name.clone(), count });
        }
    }
    Ok(found)
}

pub(super) fn mig_devices<'nvml>(
    device: &Device<'nvml>,
) -> Result<Vec<MigDevice<'nvml>>, GpuError> {
    let most = device.mig_device_count().map_err(failed("nvmlDeviceGetMaxMigDeviceCount"))?;
    let mut found = Vec::new();
    for index in 0..most {
        let mig = match device.mig_device_by_index(index) {
            Ok(mig) => mig,
            Err(NvmlError::NotFound) => continue,
            Err(error) => return Err(failed("nvmlDeviceGetMigDeviceHandleByIndex")(error).into()),
        };
        let uuid = mig.uuid().map_err(failed("nvmlDeviceGetUUID")).map_err(Failure::of_slice)?;
        let (instance, compute) = raw::ids(&mig)?;
        found.push(MigDevice { device: mig, uuid, instance, compute });
    }
    Ok(found)
}

/// The slices of a GPU that is cut: its GPU instances, each with the MIG devices in it.
pub(super) fn slices(
    device: &Device<'_>,
    catalogue: &Catalogue,
    instances: Option<&[Instance]>,
) -> Result<Vec<Slice>, GpuError> {
    let mut slices: Vec<Slice> = Vec::new();
    for instance in instances.unwrap_or_default() {
        let profile = catalogue.by_id(instance.profile);
        slices.push(Slice {
            profile: profile.map(|profile| profile.name.clone()).unwrap_or_default(),
            position: catalogue.position(instance.profile, instance.start),
            gpu_instance: Some(instance.id),
            compute: Vec::new(),
        });
    }
    for mig in mig_devices(device)? {
        let compute = describe(&mig)?;
        let is = |slice: &&mut Slice| slice.gpu_instance == Some(mig.instance);
        match slices.iter_mut().find(is) {
            Some(slice) => slice.compute.push(compute),
            // Listed without it: it appeared since, so the reading must begin again.
            None if instances.is_some() => {
                return Err(GpuError::Stale { call: "nvmlDeviceGetGpuInstances" });
            }
            None => slices.push(Slice {
                profile: profile_of(&mig)?,
                position: None,
                gpu_instance: Some(mig.instance),
                compute: vec![compute],
            }),
        }
    }
    for (instance, slice) in instances.unwrap_or_default().iter().zip(&slices) {
        all_seen(device, instance.id, slice.compute.iter().filter_map(|compute| compute.id))?;
    }
    slices.sort_by_key(|slice| (slice.position.map(mig::Position::start), slice.gpu_instance));
    Ok(slices)
}

/// Whether the MIG devices seen in a GPU instance are all its compute instances.
pub(super) fn all_seen(
    device: &Device<'_>,
    instance: u32,
    seen: impl Iterator<Item = u32>,
) -> Result<(), GpuError> {
    let mut seen: Vec<u32> = seen.collect();
    let mut listed = raw::compute_ids(device, instance)?;
    seen.sort_unstable();
    listed.sort_unstable();
    if seen == listed { Ok(()) } else { Err(GpuError::Unseen { instance }) }
}

fn describe(mig: &MigDevice<'_>) -> Result<Compute, GpuError> {
    let attributes = optional("nvmlDeviceGetAttributes_v2", mig.device.attributes())?;
    Ok(Compute {
        uuid: mig.uuid.clone(),
        id: Some(mig.compute),
        whole: attributes
            .is_none_or(|has| has.compute_instance_slice_count == has.gpu_instance_slice_count),
        memory: memory(&mig.device)?,
        processes: unless_silent(processes(&mig.device))?,
    })
}

/// The profile of a MIG device from its name, `NVIDIA A100-SXM4-80GB MIG 3g.40gb`.
fn profile_of(mig: &MigDevice<'_>) -> Result<String, GpuError> {
    let name = mig.device.name().map_err(failed("nvmlDeviceGetName")).map_err(Failure::of_slice)?;
    Ok(name.rsplit_once(" MIG ").map_or_else(|| name.clone(), |(_, profile)| profile.to_owned()))
}
