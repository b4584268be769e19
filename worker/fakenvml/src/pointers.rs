//! Handles and out-pointers.

use std::{
    ffi::{c_char, c_uint},
    ptr,
};

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
};

use crate::{Code, Compute, Device, Instance, State};

const TAG: u32 = 40;
const GPU: u64 = 1;
const INSTANCE: u64 = 2;
const COMPUTE: u64 = 3;
const MIG: u64 = 4;
const SLOTS: u64 = 64;

pub(crate) enum Handle {
    Gpu(usize),
    Mig(usize, u32),
}

pub(crate) fn gpu<T>(index: usize) -> *mut T {
    handle(GPU, index as u64 + 1)
}

pub(crate) fn mig<T>(gpu: usize, slot: u32) -> *mut T {
    handle(MIG, gpu as u64 * SLOTS + u64::from(slot))
}

pub(crate) fn instance<T>(serial: u64) -> *mut T {
    handle(INSTANCE, serial)
}

pub(crate) fn compute<T>(serial: u64) -> *mut T {
    handle(COMPUTE, serial)
}

pub(crate) fn device_of<T>(handle: *mut T) -> Result<Handle, Code> {
    match split(handle) {
        (GPU, number @ 1..) => Ok(Handle::Gpu(number as usize - 1)),
        (MIG, number) => Ok(Handle::Mig((number / SLOTS) as usize, (number % SLOTS) as u32)),
        _ => Err(INVALID_ARGUMENT),
    }
}

pub(crate) fn gpu_of<T>(state: &State, handle: *mut T) -> Result<usize, Code> {
    match device_of(handle)? {
        Handle::Gpu(index) if index < state.devices.len() => Ok(index),
        Handle::Gpu(_) | Handle::Mig(..) => Err(INVALID_ARGUMENT),
    }
}

pub(crate) fn instance_of<T>(state: &State, handle: *mut T) -> Result<(usize, usize), Code> {
    let (INSTANCE, serial) = split(handle) else { return Err(INVALID_ARGUMENT) };
    let find = |device: &Device| device.instances.iter().position(|one| one.serial == serial);
    let mut found = state.devices.iter().map(find).enumerate();
    found.find_map(|(gpu, index)| Some((gpu, index?))).ok_or(INVALID_ARGUMENT)
}

pub(crate) fn compute_of<T>(
    state: &State,
    handle: *mut T,
) -> Result<(usize, &Instance, &Compute), Code> {
    let (COMPUTE, serial) = split(handle) else { return Err(INVALID_ARGUMENT) };
    let mut all = state.devices.iter().enumerate().flat_map(|(gpu, device)| {
        let every = move |instance| computes(instance).map(move |compute| (gpu, instance, compute));
        device.instances.iter().flat_map(every)
    });
    all.find(|(_, _, compute)| compute.serial == serial).ok_or(INVALID_ARGUMENT)
}

fn computes(instance: &Instance) -> impl Iterator<Item = &Compute> {
    instance.compute.iter()
}

pub(crate) fn in_slot(device: &Device, slot: u32) -> Result<(&Instance, &Compute), Code> {
    let mut all = device
        .instances
        .iter()
        .flat_map(|instance| computes(instance).map(move |compute| (instance, compute)));
    all.find(|(_, compute)| compute.slot == slot).ok_or(NOT_FOUND)
}

fn handle<T>(tag: u64, number: u64) -> *mut T {
    ptr::without_provenance_mut((tag << TAG | number) as usize)
}

fn split<T>(handle: *mut T) -> (u64, u64) {
    let number = handle.addr() as u64;
    (number >> TAG, number & ((1 << TAG) - 1))
}

/// Writes an answer.
///
/// # Safety
///
/// `to` is null or may be written.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: it is not null, so by this function's contract it may be written.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes text and its end.
///
/// # Safety
///
/// `to` is null or may be written for `length` bytes.
pub(crate) unsafe fn put_text(to: *mut c_char, length: c_uint, text: &str) -> Result<(), Code> {
    if to.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    if text.len() >= length as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: it is not null and there is room for the text and its end.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// Text as a field of a C structure holds it, cut to fit.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    field
}

/// Writes a list whose room the caller does not state.
///
/// # Safety
///
/// `count` is null or may be written; `to` is null or has room for `items`.
pub(crate) unsafe fn put_list<T: Copy>(
    to: *mut T,
    count: *mut c_uint,
    items: &[T],
) -> Result<(), Code> {
    // SAFETY: as this function's contract says.
    unsafe {
        if !to.is_null() {
            ptr::copy_nonoverlapping(items.as_ptr(), to, items.len());
        }
        put(count, items.len() as c_uint)
    }
}

/// Writes a list into the room that `count` states.
///
/// # Safety
///
/// `count` is null or may be read and written; `to` is null or has room for `*count` items.
pub(crate) unsafe fn put_bounded<T: Copy>(
    to: *mut T,
    count: *mut c_uint,
    items: &[T],
) -> Result<(), Code> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: as this function's contract says; the room is checked before it is used.
    unsafe {
        let room = count.read() as usize;
        if items.len() > room {
            count.write(items.len() as c_uint);
            return Err(INSUFFICIENT_SIZE);
        }
        put_list(to, count, items)
    }
}
