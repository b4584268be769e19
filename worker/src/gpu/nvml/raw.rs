//! The calls that `nvml-wrapper` lacks or gets wrong.
//!
//! Every handle lives within one function here: callers speak of GPU and compute instances by id,
//! and each call finds the handle anew. So no handle is used after what it stood for is gone, and
//! the unsafe blocks below need only this: a device handle comes from the wrapper, which borrows
//! the library; an instance handle comes from the driver a moment earlier; out-pointers are to
//! locals of the type the binding names, as long as the driver is told.

#![allow(unsafe_code, reason = "calls into the driver's C library; see the module's text")]

use std::{
    ffi::{CStr, c_uint},
    mem, ptr,
};

use nvml_wrapper::{Device, EventSet};
use nvml_wrapper_sys::bindings::{self as sys, nvmlComputeInstance_t, nvmlGpuInstance_t};

use super::{catalogue::Profile, failure::Failure, vacant::Vacant};
use crate::gpu::{GpuError, User, Xid};

/// NVML's "there is none" for ids.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) id: u32,
    pub(super) profile: u32,
    pub(super) start: u32,
}

/// Calls a function of the library `$device` came from.
macro_rules! call {
    ($device:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match &$device.nvml().lib().$function {
            // SAFETY: see the module's text.
            Ok(function) => checked(stringify!($function), unsafe { function($($argument),*) }),
            Err(_) => Err(Failure {
                call: stringify!($function),
                code: sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND,
            }),
        }
    };
}

fn checked(call: &'static str, code: sys::nvmlReturn_t) -> Result<(), Failure> {
    if code == sys::nvmlReturn_enum_NVML_SUCCESS { Ok(()) } else { Err(Failure { call, code }) }
}

/// The version field of a structure that has one: its size, and its number in the top byte.
fn version<T>(number: u32) -> c_uint {
    size_of::<T>() as c_uint | (number << 24)
}

/// What of `T` the driver is to fill in.
fn blank<T: Copy>() -> T {
    // SAFETY: used only for the binding's plain C structures of numbers and pointers, of which all
    // zeroes is a value.
    unsafe { mem::zeroed() }
}

fn handle(device: &Device<'_>) -> sys::nvmlDevice_t {
    // SAFETY: it is used within the borrow of the device, for calls only.
    unsafe { device.handle() }
}

pub(super) fn profiles(device: &Device<'_>) -> Result<Vec<Profile>, Failure> {
    let mut found = Vec::new();
    for number in 0..sys::NVML_GPU_INSTANCE_PROFILE_COUNT {
        let mut info: sys::nvmlGpuInstanceProfileInfo_v2_t = blank();
        info.version = version::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2);
        let asked =
            call!(device, nvmlDeviceGetGpuInstanceProfileInfoV(handle(device), number, &mut info));
        match asked {
            Ok(()) => found.push(Profile {
                id: info.id,
                name: profile_name(&info.name),
                compute_slices: info.sliceCount,
                most: info.instanceCount,
                placements: None,
            }),
            Err(Failure {
                code:
                    sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
                    | sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT,
                ..
            }) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

/// `1g.10gb`, which the driver calls `MIG 1g.10gb`.
fn profile_name(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|byte| byte.cast_unsigned()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy).unwrap_or_default();
    text.strip_prefix("MIG ").unwrap_or(&text).to_owned()
}

/// Where instances of a profile can be: start and size. The wrapper's own function always returns
/// an empty list.
pub(super) fn placements(device: &Device<'_>, profile: u32) -> Result<Vec<(u32, u32)>, Failure> {
    let mut count: c_uint = 0;
    call!(
        device,
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(
            handle(device),
            profile,
            ptr::null_mut(),
            &mut count
        )
    )?;
    let mut list: Vec<sys::nvmlGpuInstancePlacement_t> = vec![blank(); count as usize];
    call!(
        device,
        nvmlDeviceGetGpuInstancePossiblePlacements_v2(
            handle(device),
            profile,
            list.as_mut_ptr(),
            &mut count
        )
    )?;
    list.truncate(count as usize);
    Ok(list.iter().map(|placement| (placement.start, placement.size)).collect())
}

pub(super) fn remaining(device: &Device<'_>, profile: u32) -> Result<u32, Failure> {
    let mut count: c_uint = 0;
    call!(device, nvmlDeviceGetGpuInstanceRemainingCapacity(handle(device), profile, &mut count))?;
    Ok(count)
}

pub(super) fn instances(device: &Device<'_>, profile: &Profile) -> Result<Vec<Instance>, GpuError> {
    // The driver writes as many as there are, and there are never more than this.
    let mut list: Vec<nvmlGpuInstance_t> = vec![ptr::null_mut(); profile.most as usize];
    let mut count: c_uint = profile.most;
    call!(
        device,
        nvmlDeviceGetGpuInstances(handle(device), profile.id, list.as_mut_ptr(), &mut count)
    )?;
    list.truncate(count as usize);
    list.into_iter().map(|instance| describe(device, instance)).collect()
}

fn describe(device: &Device<'_>, instance: nvmlGpuInstance_t) -> Result<Instance, GpuError> {
    let mut info: sys::nvmlGpuInstanceInfo_t = blank();
    call!(device, nvmlGpuInstanceGetInfo(instance, &mut info)).map_err(Failure::of_slice)?;
    Ok(Instance { id: info.id, profile: info.profileId, start: info.placement.start })
}

pub(super) fn instance(device: &Device<'_>, id: u32) -> Result<Instance, GpuError> {
    describe(device, instance_by_id(device, id)?)
}

pub(super) fn ids(mig: &Device<'_>) -> Result<(u32, u32), GpuError> {
    let (mut instance, mut compute) = (0, 0);
    call!(mig, nvmlDeviceGetGpuInstanceId(handle(mig), &mut instance))
        .map_err(Failure::of_slice)?;
    call!(mig, nvmlDeviceGetComputeInstanceId(handle(mig), &mut compute))
        .map_err(Failure::of_slice)?;
    Ok((instance, compute))
}

pub(super) fn create(device: &Device<'_>, profile: &Profile, start: u32) -> Result<u32, GpuError> {
    let placement = sys::nvmlGpuInstancePlacement_t { start, size: profile.memory_slices() };
    let mut instance: nvmlGpuInstance_t = ptr::null_mut();
    call!(
        device,
        nvmlDeviceCreateGpuInstanceWithPlacement(
            handle(device),
            profile.id,
            &placement,
            &mut instance
        )
    )?;
    Ok(describe(device, instance)?.id)
}

/// Gives the GPU instance one compute instance with all its `slices`.
pub(super) fn create_compute(
    device: &Device<'_>,
    instance: u32,
    slices: u32,
) -> Result<(), GpuError> {
    let instance = instance_by_id(device, instance)?;
    let profiles = compute_profiles(device, instance)?;
    let profile = profiles.iter().find(|profile| profile.slices == slices);
    let call = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
    let profile = profile.ok_or(GpuError::NotSupported { call })?;
    let mut compute: nvmlComputeInstance_t = ptr::null_mut();
    call!(device, nvmlGpuInstanceCreateComputeInstance(instance, profile.id, &mut compute))?;
    Ok(())
}

fn instance_by_id(device: &Device<'_>, id: u32) -> Result<nvmlGpuInstance_t, GpuError> {
    let mut instance: nvmlGpuInstance_t = ptr::null_mut();
    call!(device, nvmlDeviceGetGpuInstanceById(handle(device), id, &mut instance))?;
    Ok(instance)
}

/// A compute instance profile of a GPU instance.
struct ComputeProfile {
    id: u32,
    slices: u32,
    most: u32,
}

fn compute_profiles(
    device: &Device<'_>,
    instance: nvmlGpuInstance_t,
) -> Result<Vec<ComputeProfile>, GpuError> {
    let engines = sys::NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED;
    let mut found = Vec::new();
    for number in 0..sys::NVML_COMPUTE_INSTANCE_PROFILE_COUNT {
        let mut info: sys::nvmlComputeInstanceProfileInfo_t = blank();
        let asked = call!(
            device,
            nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, number, engines, &mut info)
        );
        match asked.map_err(GpuError::from) {
            Ok(()) => found.push(ComputeProfile {
                id: info.id,
                slices: info.sliceCount,
                most: info.instanceCount,
            }),
            Err(GpuError::NotSupported { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The ids of the compute instances in a GPU instance, by size and then as the driver lists them.
pub(super) fn compute_ids(device: &Device<'_>, instance: u32) -> Result<Vec<u32>, GpuError> {
    let instance = instance_by_id(device, instance)?;
    let mut ids = Vec::new();
    for profile in compute_profiles(device, instance)? {
        let mut list: Vec<nvmlComputeInstance_t> = vec![ptr::null_mut(); profile.most as usize];
        let mut count: c_uint = profile.most;
        call!(
            device,
            nvmlGpuInstanceGetComputeInstances(instance, profile.id, list.as_mut_ptr(), &mut count)
        )
        .map_err(Failure::of_slice)?;
        for compute in list.into_iter().take(count as usize) {
            let mut info: sys::nvmlComputeInstanceInfo_t = blank();
            call!(device, nvmlComputeInstanceGetInfo_v2(compute, &mut info))
                .map_err(Failure::of_slice)?;
            ids.push(info.id);
        }
    }
    Ok(ids)
}

/// Destroys a slice that nothing uses: its compute instances, then itself.
pub(super) fn destroy(device: &Device<'_>, vacant: &Vacant) -> Result<(), GpuError> {
    let in_use = |failure: Failure| match failure.code {
        sys::nvmlReturn_enum_NVML_ERROR_IN_USE => {
            GpuError::InUse { slice: vacant.label().to_owned(), by: User::Unknown }
        }
        _ => failure.of_slice(),
    };
    let instance = instance_by_id(device, vacant.instance().id)?;
    // Ids are used again, so the one that was looked at may be gone and this another.
    if describe(device, instance)? != vacant.instance() {
        return Err(GpuError::Stale { call: "nvmlGpuInstanceGetInfo" });
    }
    for id in vacant.compute() {
        let mut compute: nvmlComputeInstance_t = ptr::null_mut();
        call!(device, nvmlGpuInstanceGetComputeInstanceById(instance, *id, &mut compute))?;
        call!(device, nvmlComputeInstanceDestroy(compute)).map_err(in_use)?;
    }
    call!(device, nvmlGpuInstanceDestroy(instance)).map_err(in_use)
}

/// The next Xid error, if one comes within `wait_ms`. The wrapper drops which slice it struck.
pub(super) fn next_xid(events: &EventSet<'_>, wait_ms: u32) -> Result<Option<Xid>, GpuError> {
    let mut data: sys::nvmlEventData_t = blank();
    // SAFETY: it is used within the borrow of the set, for one call.
    let set = unsafe { events.handle() };
    let nvml = &events.nvml;
    let waited = match &nvml.lib().nvmlEventSetWait_v2 {
        // SAFETY: see the module's text.
        Ok(wait) => checked("nvmlEventSetWait_v2", unsafe { wait(set, &mut data, wait_ms) }),
        Err(_) => return Err(GpuError::NotSupported { call: "nvmlEventSetWait_v2" }),
    };
    match waited {
        Ok(()) => {
            let gpu_instance = Some(data.gpuInstanceId).filter(|id| *id != NONE);
            Ok(Some(Xid { code: data.eventData, gpu_instance }))
        }
        Err(Failure { code: sys::nvmlReturn_enum_NVML_ERROR_TIMEOUT, .. }) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}
