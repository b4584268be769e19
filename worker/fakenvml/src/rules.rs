//! What MIG allows.

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_IN_USE as IN_USE,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES as INSUFFICIENT_RESOURCES,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED as NOT_SUPPORTED,
};

use crate::{
    Code, Compute, Device, Instance, Mig,
    table::{self, Kind, Profile},
};

/// Compute slices of each compute instance profile; its place here is its number and its id.
const COMPUTE: [u32; 5] = [1, 2, 3, 4, 7];

pub(crate) fn kind(device: &Device) -> Result<&'static Kind, Code> {
    if device.mig == Mig::Unsupported {
        return Err(NOT_SUPPORTED);
    }
    table::kind(&device.kind).ok_or(NOT_SUPPORTED)
}

pub(crate) fn profile(device: &Device, id: u32) -> Result<&'static Profile, Code> {
    kind(device)?.by_id(id).ok_or(INVALID_ARGUMENT)
}

/// The same, of a GPU that must be cut.
fn cut_profile(device: &Device, id: u32) -> Result<&'static Profile, Code> {
    if device.mig == Mig::On { profile(device, id) } else { Err(NOT_SUPPORTED) }
}

fn memory(start: u32, profile: &Profile) -> u32 {
    ((1 << profile.memory_slices) - 1) << start
}

#[derive(Clone, Copy)]
struct Taken {
    memory: u32,
    compute: u32,
    same: u32,
    media: bool,
}

fn taken(device: &Device, wanted: &Profile) -> Result<Taken, Code> {
    let mut taken = Taken { memory: 0, compute: 0, same: 0, media: false };
    for instance in &device.instances {
        let profile = profile(device, instance.profile)?;
        taken = taken.and(profile, instance.start, wanted);
    }
    Ok(taken)
}

impl Taken {
    fn and(mut self, profile: &Profile, start: u32, wanted: &Profile) -> Self {
        self.memory |= memory(start, profile);
        self.compute += profile.compute_slices;
        self.same += u32::from(profile.id == wanted.id);
        self.media |= profile.media;
        self
    }

    fn leaves(self, kind: &Kind, profile: &Profile, start: u32) -> bool {
        self.memory & memory(start, profile) == 0
            && self.compute + profile.compute_slices <= kind.compute_slices
            && self.same < profile.max_instances
            && !(self.media && profile.media)
    }
}

pub(crate) fn remaining(device: &Device, profile: u32) -> Result<u32, Code> {
    let wanted = cut_profile(device, profile)?;
    let kind = kind(device)?;
    let mut taken = taken(device, wanted)?;
    let mut count = 0;
    for start in &wanted.placement_starts {
        if taken.leaves(kind, wanted, *start) {
            taken = taken.and(wanted, *start, wanted);
            count += 1;
        }
    }
    Ok(count)
}

pub(crate) fn create(
    device: &mut Device,
    made: &mut u64,
    profile: u32,
    start: Option<u32>,
) -> Result<u64, Code> {
    let wanted = cut_profile(device, profile)?;
    let kind = kind(device)?;
    let taken = taken(device, wanted)?;
    if start.is_some_and(|start| !wanted.placement_starts.contains(&start)) {
        return Err(INVALID_ARGUMENT);
    }
    let mut starts = wanted.placement_starts.iter().copied();
    let start = starts
        .find(|at| start.is_none_or(|start| start == *at) && taken.leaves(kind, wanted, *at))
        .ok_or(INSUFFICIENT_RESOURCES)?;
    *made += 1;
    // The real driver's ids start at 0 only for the profile that is the whole GPU.
    let first = u32::from(wanted.compute_slices < kind.compute_slices);
    let id = free(first, device.instances.iter().map(|instance| instance.id));
    let instance = Instance { id, profile, start, serial: *made, compute: Vec::new() };
    device.instances.push(instance);
    Ok(*made)
}

fn free(from: u32, used: impl Iterator<Item = u32>) -> u32 {
    let used: Vec<u32> = used.collect();
    (from..).find(|id| !used.contains(id)).expect("there are few instances and many numbers")
}

/// The compute slices of the compute instance profile of that number, in that instance.
pub(crate) fn compute_slices(of: &Profile, number: u32) -> Result<u32, Code> {
    let slices = COMPUTE.get(number as usize).copied().ok_or(NOT_SUPPORTED)?;
    if slices <= of.compute_slices { Ok(slices) } else { Err(NOT_SUPPORTED) }
}

pub(crate) fn create_compute(
    device: &mut Device,
    made: &mut u64,
    index: usize,
    number: u32,
) -> Result<u64, Code> {
    let slots = device.instances.iter().flat_map(|instance| &instance.compute);
    let slot = free(0, slots.map(|compute| compute.slot));
    let instance = &device.instances[index];
    let of = profile(device, instance.profile)?;
    let mut taken = compute_slices(of, number).map_err(|_| INVALID_ARGUMENT)?;
    for compute in &instance.compute {
        taken += compute_slices(of, compute.profile)?;
    }
    if taken > of.compute_slices {
        return Err(INSUFFICIENT_RESOURCES);
    }
    *made += 1;
    let id = free(0, instance.compute.iter().map(|compute| compute.id));
    let uuid = format!("MIG-{}", table::uuid(&format!("{} {} {id}", device.uuid, instance.id)));
    let serial = *made;
    let compute = Compute { id, profile: number, serial, slot, uuid, pids: Vec::new() };
    device.instances[index].compute.push(compute);
    Ok(serial)
}

pub(crate) fn destroy_compute(instance: &mut Instance, serial: u64) -> Result<(), Code> {
    let is = |compute: &Compute| compute.serial == serial;
    let index = instance.compute.iter().position(is).ok_or(INVALID_ARGUMENT)?;
    if !instance.compute[index].pids.is_empty() {
        return Err(IN_USE);
    }
    instance.compute.remove(index);
    Ok(())
}

pub(crate) fn destroy(device: &mut Device, serial: u64) -> Result<(), Code> {
    let is = |instance: &Instance| instance.serial == serial;
    let index = device.instances.iter().position(is).ok_or(INVALID_ARGUMENT)?;
    if !device.instances[index].compute.is_empty() {
        return Err(IN_USE);
    }
    device.instances.remove(index);
    Ok(())
}
