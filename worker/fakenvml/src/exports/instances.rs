//! What a GPU is cut into.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlDevice_t,
    nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
};

use crate::{
    Code, State,
    pointers::{self, compute_of, gpu_of, instance_of, put, put_list},
    rules,
    store::privileged,
};

fn create(
    state: &mut State,
    device: nvmlDevice_t,
    profile: c_uint,
    start: Option<c_uint>,
) -> Result<nvmlGpuInstance_t, Code> {
    privileged(state)?;
    let gpu = gpu_of(state, device)?;
    let serial = rules::create(&mut state.devices[gpu], &mut state.made, profile, start)?;
    Ok(pointers::instance(serial))
}

/// Counts a try to destroy what is in use.
fn note(state: &mut State, outcome: Result<(), Code>) -> Result<(), Code> {
    state.attacks += u64::from(outcome == Err(IN_USE));
    outcome
}

exports! {
    /// Makes a GPU instance where there is room.
    fn nvmlDeviceCreateGpuInstance(
        device: nvmlDevice_t, profile: c_uint, instance: *mut nvmlGpuInstance_t
    ) |state| {
        put(instance, create(state, device, profile, None)?)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        device: nvmlDevice_t,
        profile: c_uint,
        placement: *const nvmlGpuInstancePlacement_t,
        instance: *mut nvmlGpuInstance_t
    ) |state| {
        let placement = placement.as_ref().ok_or(INVALID_ARGUMENT)?;
        let size = rules::profile(&state.devices[gpu_of(state, device)?], profile)?.memory_slices;
        if placement.size != size {
            return Err(INVALID_ARGUMENT);
        }
        put(instance, create(state, device, profile, Some(placement.start))?)
    }

    fn nvmlGpuInstanceDestroy(instance: nvmlGpuInstance_t) |state| {
        privileged(state)?;
        let (gpu, index) = instance_of(state, instance)?;
        let serial = state.devices[gpu].instances[index].serial;
        let outcome = rules::destroy(&mut state.devices[gpu], serial);
        note(state, outcome)
    }

    fn nvmlDeviceGetGpuInstances(
        device: nvmlDevice_t,
        profile: c_uint,
        list: *mut nvmlGpuInstance_t,
        count: *mut c_uint
    ) |state| {
        privileged(state)?;
        let device = &state.devices[gpu_of(state, device)?];
        rules::profile(device, profile)?;
        let same = device.instances.iter().filter(|instance| instance.profile == profile);
        let all: Vec<_> = same.map(|instance| pointers::instance(instance.serial)).collect();
        put_list(list, count, &all)
    }

    fn nvmlDeviceGetGpuInstanceById(
        device: nvmlDevice_t, id: c_uint, instance: *mut nvmlGpuInstance_t
    ) |state| {
        privileged(state)?;
        let device = &state.devices[gpu_of(state, device)?];
        let found = device.instances.iter().find(|instance| instance.id == id).ok_or(NOT_FOUND)?;
        put(instance, pointers::instance(found.serial))
    }

    fn nvmlGpuInstanceGetInfo(
        instance: nvmlGpuInstance_t, info: *mut nvmlGpuInstanceInfo_t
    ) |state| {
        let (gpu, index) = instance_of(state, instance)?;
        let found = &state.devices[gpu].instances[index];
        let size = rules::profile(&state.devices[gpu], found.profile)?.memory_slices;
        put(info, nvmlGpuInstanceInfo_t {
            device: pointers::gpu(gpu),
            id: found.id,
            profileId: found.profile,
            placement: nvmlGpuInstancePlacement_t { start: found.start, size },
        })
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        instance: nvmlGpuInstance_t, profile: c_uint, compute: *mut nvmlComputeInstance_t
    ) |state| {
        privileged(state)?;
        let (gpu, index) = instance_of(state, instance)?;
        let device = &mut state.devices[gpu];
        let serial = rules::create_compute(device, &mut state.made, index, profile)?;
        put(compute, pointers::compute(serial))
    }

    fn nvmlComputeInstanceDestroy(compute: nvmlComputeInstance_t) |state| {
        privileged(state)?;
        let (gpu, instance, compute) = compute_of(state, compute)?;
        let (id, serial) = (instance.id, compute.serial);
        let mut instances = state.devices[gpu].instances.iter_mut();
        let instance = instances.find(|instance| instance.id == id).ok_or(INVALID_ARGUMENT)?;
        let outcome = rules::destroy_compute(instance, serial);
        note(state, outcome)
    }

    fn nvmlGpuInstanceGetComputeInstances(
        instance: nvmlGpuInstance_t,
        profile: c_uint,
        list: *mut nvmlComputeInstance_t,
        count: *mut c_uint
    ) |state| {
        privileged(state)?;
        let (gpu, index) = instance_of(state, instance)?;
        let all = state.devices[gpu].instances[index].compute.iter();
        let same = all.filter(|compute| compute.profile == profile);
        let all: Vec<_> = same.map(|compute| pointers::compute(compute.serial)).collect();
        put_list(list, count, &all)
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        instance: nvmlGpuInstance_t, id: c_uint, compute: *mut nvmlComputeInstance_t
    ) |state| {
        privileged(state)?;
        let (gpu, index) = instance_of(state, instance)?;
        let mut all = state.devices[gpu].instances[index].compute.iter();
        let found = all.find(|compute| compute.id == id).ok_or(NOT_FOUND)?;
        put(compute, pointers::compute(found.serial))
    }

    fn nvmlComputeInstanceGetInfo_v2(
        compute: nvmlComputeInstance_t, info: *mut nvmlComputeInstanceInfo_t
    ) |state| {
        let (gpu, instance, found) = compute_of(state, compute)?;
        let profile = rules::profile(&state.devices[gpu], instance.profile)?;
        let size = rules::compute_slices(profile, found.profile)?;
        let mut before = instance.compute.iter().take_while(|other| other.id != found.id);
        let start = before.try_fold(0, |start, other| {
            rules::compute_slices(profile, other.profile).map(|slices| start + slices)
        })?;
        put(info, nvmlComputeInstanceInfo_t {
            device: pointers::gpu(gpu),
            gpuInstance: pointers::instance(instance.serial),
            id: found.id,
            profileId: found.profile,
            placement: nvmlComputeInstancePlacement_t { start, size },
        })
    }
}
