//! What a GPU can be cut into.

use std::ffi::{c_char, c_uint};

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceProfileInfo_t, nvmlComputeInstanceProfileInfo_v2_t, nvmlDevice_t,
    nvmlGpuInstance_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t,
    nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH as VERSION_MISMATCH,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
};

use crate::{
    Code, State,
    pointers::{field, gpu_of, instance_of, put, put_list},
    rules,
    store::privileged,
    table::Profile,
};

fn numbered(state: &State, device: nvmlDevice_t, number: c_uint) -> Result<&'static Profile, Code> {
    rules::kind(&state.devices[gpu_of(state, device)?])?.by_number(number).ok_or(NOT_SUPPORTED)
}

fn compute(
    state: &State,
    instance: nvmlGpuInstance_t,
    number: c_uint,
) -> Result<(&'static Profile, c_uint), Code> {
    let (gpu, index) = instance_of(state, instance)?;
    let device = &state.devices[gpu];
    let profile = rules::profile(device, device.instances[index].profile)?;
    Ok((profile, rules::compute_slices(profile, number)?))
}

exports! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(
        device: nvmlDevice_t, profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_t
    ) |state| {
        let found = numbered(state, device, profile)?;
        put(info, nvmlGpuInstanceProfileInfo_t {
            id: found.id,
            isP2pSupported: 0,
            sliceCount: found.compute_slices,
            instanceCount: found.max_instances,
            multiprocessorCount: found.sm,
            copyEngineCount: found.copy_engines,
            decoderCount: found.nvdec,
            encoderCount: 0,
            jpegCount: found.nvjpeg,
            ofaCount: found.ofa,
            memorySizeMB: found.memory_mib(),
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(
        device: nvmlDevice_t, profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_v2_t
    ) |state| {
        let version = (size_of::<nvmlGpuInstanceProfileInfo_v2_t>() | (2 << 24)) as c_uint;
        if info.is_null() || (*info).version != version {
            return Err(VERSION_MISMATCH);
        }
        let found = numbered(state, device, profile)?;
        put(info, nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: found.id,
            isP2pSupported: 0,
            sliceCount: found.compute_slices,
            instanceCount: found.max_instances,
            multiprocessorCount: found.sm,
            copyEngineCount: found.copy_engines,
            decoderCount: found.nvdec,
            encoderCount: 0,
            jpegCount: found.nvjpeg,
            ofaCount: found.ofa,
            memorySizeMB: found.memory_mib(),
            name: field::<96>(&format!("MIG {}", found.name)),
        })
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        device: nvmlDevice_t,
        profile: c_uint,
        placements: *mut nvmlGpuInstancePlacement_t,
        count: *mut c_uint
    ) |state| {
        privileged(state)?;
        let profile = rules::profile(&state.devices[gpu_of(state, device)?], profile)?;
        let at = |start: &u32| nvmlGpuInstancePlacement_t {
            start: *start,
            size: profile.memory_slices,
        };
        let all: Vec<_> = profile.placement_starts.iter().map(at).collect();
        put_list(placements, count, &all)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(
        device: nvmlDevice_t, profile: c_uint, count: *mut c_uint
    ) |state| {
        privileged(state)?;
        put(count, rules::remaining(&state.devices[gpu_of(state, device)?], profile)?)
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        instance: nvmlGpuInstance_t,
        profile: c_uint,
        _engines: c_uint,
        info: *mut nvmlComputeInstanceProfileInfo_t
    ) |state| {
        let (of, slices) = compute(state, instance, profile)?;
        put(info, nvmlComputeInstanceProfileInfo_t {
            id: profile,
            sliceCount: slices,
            instanceCount: of.compute_slices / slices,
            multiprocessorCount: of.sm * slices / of.compute_slices,
            sharedCopyEngineCount: of.copy_engines,
            sharedDecoderCount: of.nvdec,
            sharedEncoderCount: 0,
            sharedJpegCount: of.nvjpeg,
            sharedOfaCount: of.ofa,
        })
    }

    /// The compute instance profile of a number, with its name.
    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        instance: nvmlGpuInstance_t,
        profile: c_uint,
        _engines: c_uint,
        info: *mut nvmlComputeInstanceProfileInfo_v2_t
    ) |state| {
        let version = (size_of::<nvmlComputeInstanceProfileInfo_v2_t>() | (2 << 24)) as c_uint;
        if info.is_null() || (*info).version != version {
            return Err(VERSION_MISMATCH);
        }
        let (of, slices) = compute(state, instance, profile)?;
        let whole = slices == of.compute_slices;
        let name: [c_char; 96] = if whole {
            field(&format!("MIG {}", of.name))
        } else {
            field(&format!("MIG {slices}c.{}", of.name))
        };
        put(info, nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: profile,
            sliceCount: slices,
            instanceCount: of.compute_slices / slices,
            multiprocessorCount: of.sm * slices / of.compute_slices,
            sharedCopyEngineCount: of.copy_engines,
            sharedDecoderCount: of.nvdec,
            sharedEncoderCount: 0,
            sharedJpegCount: of.nvjpeg,
            sharedOfaCount: of.ofa,
            name,
        })
    }
}
