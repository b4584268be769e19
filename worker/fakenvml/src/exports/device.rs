//! GPUs and MIG devices: who they are and how they are.

use std::ffi::{CStr, c_char, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlClockType_t, nvmlDevice_t, nvmlDeviceAttributes_t, nvmlEccCounterType_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlMemoryErrorType_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as VERSION_MISMATCH,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED, nvmlTemperatureSensors_t,
};

use crate::{
    Code, Compute, Device, Instance, Mig, State,
    pointers::{self, Handle, device_of, gpu_of, in_slot, put, put_bounded, put_text},
    rules, table,
};

/// NVML's "there is none" for ids.
const NONE: c_uint = c_uint::MAX;

struct MigDevice<'a> {
    gpu: &'a Device,
    instance: &'a Instance,
    compute: &'a Compute,
}

/// The MIG device of a handle; a GPU has what is asked of it not.
fn mig_of(state: &State, device: nvmlDevice_t) -> Result<MigDevice<'_>, Code> {
    let Handle::Mig(index, slot) = device_of(device)? else { return Err(NOT_SUPPORTED) };
    let gpu = state.devices.get(index).ok_or(INVALID_ARGUMENT)?;
    let (instance, compute) = in_slot(gpu, slot).map_err(|_| INVALID_ARGUMENT)?;
    Ok(MigDevice { gpu, instance, compute })
}

/// The GPU of a handle; a MIG device has what is asked of it not.
fn sensor<T>(
    state: &State,
    device: nvmlDevice_t,
    read: impl FnOnce(&Device) -> Option<T>,
) -> Result<T, Code> {
    match device_of(device)? {
        Handle::Gpu(_) => read(&state.devices[gpu_of(state, device)?]).ok_or(NOT_SUPPORTED),
        Handle::Mig(..) => Err(NOT_SUPPORTED),
    }
}

fn memory(state: &State, device: nvmlDevice_t) -> Result<(u64, u64), Code> {
    const EACH: u64 = 512 << 20;
    let used = |processes: usize| processes as u64 * EACH;
    match device_of(device)? {
        Handle::Gpu(_) => {
            let device = &state.devices[gpu_of(state, device)?];
            let total = table::kind(&device.kind).map_or(16 << 30, table::Kind::memory_bytes);
            Ok((total, used(everyone(device).len())))
        }
        Handle::Mig(..) => {
            let mig = mig_of(state, device)?;
            let profile = rules::profile(mig.gpu, mig.instance.profile)?;
            Ok((profile.memory_mib() << 20, used(mig.compute.pids.len())))
        }
    }
}

fn everyone(device: &Device) -> Vec<nvmlProcessInfo_t> {
    let whole = device.pids.iter().map(|pid| process(*pid, NONE, NONE));
    let parts = device.instances.iter().flat_map(|instance| {
        instance.compute.iter().flat_map(|compute| processes(instance, compute))
    });
    whole.chain(parts).collect()
}

fn processes<'a>(
    instance: &'a Instance,
    compute: &'a Compute,
) -> impl Iterator<Item = nvmlProcessInfo_t> + 'a {
    compute.pids.iter().map(|pid| process(*pid, instance.id, compute.id))
}

fn process(pid: u32, instance: c_uint, compute: c_uint) -> nvmlProcessInfo_t {
    nvmlProcessInfo_t {
        pid,
        usedGpuMemory: 512 << 20,
        gpuInstanceId: instance,
        computeInstanceId: compute,
    }
}

fn processes_of(state: &State, device: nvmlDevice_t) -> Result<Vec<nvmlProcessInfo_t>, Code> {
    match device_of(device)? {
        Handle::Gpu(_) => Ok(everyone(&state.devices[gpu_of(state, device)?])),
        Handle::Mig(..) => {
            let mig = mig_of(state, device)?;
            Ok(processes(mig.instance, mig.compute).collect())
        }
    }
}

fn by_uuid(state: &State, uuid: &str) -> Option<nvmlDevice_t> {
    state.devices.iter().enumerate().find_map(|(index, device)| {
        if device.uuid == uuid {
            return Some(pointers::gpu(index));
        }
        let mut parts = device.instances.iter().flat_map(|instance| &instance.compute);
        parts.find(|part| part.uuid == uuid).map(|part| pointers::mig(index, part.slot))
    })
}

exports! {
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) |state| {
        put(count, state.devices.len() as c_uint)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) |state| {
        let index = index as usize;
        if index >= state.devices.len() {
            return Err(INVALID_ARGUMENT);
        }
        put(device, pointers::gpu(index))
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) |state| {
        if uuid.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        let uuid = CStr::from_ptr(uuid).to_str().map_err(|_| INVALID_ARGUMENT)?;
        put(device, by_uuid(state, uuid).ok_or(NOT_FOUND)?)
    }

    fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) |state| {
        put(index, gpu_of(state, device)? as c_uint)
    }

    fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) |state| {
        let text = match device_of(device)? {
            Handle::Gpu(_) => state.devices[gpu_of(state, device)?].name.clone(),
            Handle::Mig(..) => {
                let mig = mig_of(state, device)?;
                let profile = rules::profile(mig.gpu, mig.instance.profile)?;
                format!("{} MIG {}", mig.gpu.name, profile.name)
            }
        };
        put_text(name, length, &text)
    }

    fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) |state| {
        match device_of(device)? {
            Handle::Gpu(_) => put_text(uuid, length, &state.devices[gpu_of(state, device)?].uuid),
            Handle::Mig(..) => put_text(uuid, length, &mig_of(state, device)?.compute.uuid),
        }
    }

    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) |state| {
        let index = gpu_of(state, device)?;
        let kind = table::kind(&state.devices[index].kind);
        put(pci, nvmlPciInfo_t {
            busIdLegacy: pointers::field(&format!("0000:{index:02X}:00.0")),
            domain: 0,
            bus: index as c_uint,
            device: 0,
            pciDeviceId: kind.map_or(0x1eb8_10de, table::Kind::pci_id),
            pciSubSystemId: 0,
            busId: pointers::field(&format!("00000000:{index:02X}:00.0")),
        })
    }

    fn nvmlDeviceGetMigMode(device: nvmlDevice_t, now: *mut c_uint, then: *mut c_uint) |state| {
        let (is, will) = match state.devices[gpu_of(state, device)?].mig {
            Mig::Unsupported => return Err(NOT_SUPPORTED),
            Mig::Off => (0, 0),
            Mig::Pending => (0, 1),
            Mig::On => (1, 1),
        };
        put(now, is)?;
        put(then, will)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) |state| {
        let device = &state.devices[gpu_of(state, device)?];
        let cut = device.mig == Mig::On;
        put(count, if cut { rules::kind(device)?.compute_slices } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(
        device: nvmlDevice_t, index: c_uint, mig: *mut nvmlDevice_t
    ) |state| {
        let gpu = gpu_of(state, device)?;
        in_slot(&state.devices[gpu], index)?;
        put(mig, pointers::mig(gpu, index))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        mig: nvmlDevice_t, device: *mut nvmlDevice_t
    ) |state| {
        mig_of(state, mig)?;
        let Handle::Mig(gpu, _) = device_of(mig)? else { return Err(INVALID_ARGUMENT) };
        put(device, pointers::gpu(gpu))
    }

    fn nvmlDeviceIsMigDeviceHandle(device: nvmlDevice_t, answer: *mut c_uint) |_state| {
        put(answer, c_uint::from(matches!(device_of(device)?, Handle::Mig(..))))
    }

    fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) |state| {
        put(id, mig_of(state, device)?.instance.id)
    }

    fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) |state| {
        put(id, mig_of(state, device)?.compute.id)
    }

    fn nvmlDeviceGetAttributes_v2(
        device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t
    ) |state| {
        let mig = mig_of(state, device)?;
        let profile = rules::profile(mig.gpu, mig.instance.profile)?;
        let slices = rules::compute_slices(profile, mig.compute.profile)?;
        put(attributes, nvmlDeviceAttributes_t {
            multiprocessorCount: profile.sm * slices / profile.compute_slices,
            sharedCopyEngineCount: profile.copy_engines,
            sharedDecoderCount: profile.nvdec,
            sharedEncoderCount: 0,
            sharedJpegCount: profile.nvjpeg,
            sharedOfaCount: profile.ofa,
            gpuInstanceSliceCount: profile.compute_slices,
            computeInstanceSliceCount: slices,
            memorySizeMB: profile.memory_mib(),
        })
    }

    /// Memory, without what the driver keeps for itself.
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, answer: *mut nvmlMemory_t) |state| {
        let (total, used) = memory(state, device)?;
        put(answer, nvmlMemory_t { total, free: total - used, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, answer: *mut nvmlMemory_v2_t) |state| {
        let version = (size_of::<nvmlMemory_v2_t>() | (2 << 24)) as c_uint;
        if answer.is_null() || (*answer).version != version {
            return Err(VERSION_MISMATCH);
        }
        let (total, used) = memory(state, device)?;
        put(answer, nvmlMemory_v2_t { version, total, reserved: 0, free: total - used, used })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: *mut c_uint, list: *mut nvmlProcessInfo_t
    ) |state| {
        put_bounded(list, count, &processes_of(state, device)?)
    }

    /// The processes that compute through MPS: none here.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        device: nvmlDevice_t, count: *mut c_uint, list: *mut nvmlProcessInfo_t
    ) |state| {
        processes_of(state, device)?;
        put_bounded(list, count, &[])
    }

    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut c_uint) |state| {
        put(milliwatts, sensor(state, device, |gpu| gpu.power_mw)?)
    }

    /// A GPU's clock, the same for each of its domains.
    fn nvmlDeviceGetClockInfo(
        device: nvmlDevice_t, _domain: nvmlClockType_t, mhz: *mut c_uint
    ) |state| {
        put(mhz, sensor(state, device, |gpu| gpu.clock_mhz)?)
    }

    fn nvmlDeviceGetTemperature(
        device: nvmlDevice_t, _sensor: nvmlTemperatureSensors_t, celsius: *mut c_uint
    ) |state| {
        put(celsius, sensor(state, device, |gpu| gpu.temperature_c)?)
    }

    fn nvmlDeviceGetTotalEccErrors(
        device: nvmlDevice_t,
        kind: nvmlMemoryErrorType_t,
        _since: nvmlEccCounterType_t,
        count: *mut c_ulonglong
    ) |state| {
        let (corrected, uncorrected) = sensor(state, device, |gpu| gpu.ecc)?;
        put(count, if kind == 0 { corrected } else { uncorrected })
    }
}
