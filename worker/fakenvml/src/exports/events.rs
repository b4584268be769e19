//! Event sets, which tell of Xid errors.

use std::{
    collections::BTreeMap,
    ffi::c_uint,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeXidCriticalError,
    nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT as INVALID_ARGUMENT,
    nvmlReturn_enum_NVML_ERROR_NOT_FOUND as NOT_FOUND,
    nvmlReturn_enum_NVML_ERROR_TIMEOUT as TIMEOUT,
};

use crate::pointers::{self, gpu_of, put};

static SETS: Mutex<BTreeMap<usize, Vec<usize>>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<usize, Vec<usize>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

exports! {
    fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) |_state| {
        let mut sets = sets();
        let name = sets.keys().next_back().map_or(1, |last| last + 1);
        sets.insert(name, Vec::new());
        put(set, ptr::without_provenance_mut(name))
    }

    /// Lets an event set watch a GPU; only for Xid errors.
    fn nvmlDeviceRegisterEvents(device: nvmlDevice_t, types: u64, set: nvmlEventSet_t) |state| {
        let gpu = gpu_of(state, device)?;
        if types != u64::from(nvmlEventTypeXidCriticalError) {
            return Err(INVALID_ARGUMENT);
        }
        sets().get_mut(&set.addr()).ok_or(INVALID_ARGUMENT)?.push(gpu);
        Ok(())
    }

    /// The next event, if there is one now: the fake does not wait.
    fn nvmlEventSetWait_v2(
        set: nvmlEventSet_t, data: *mut nvmlEventData_t, _timeout_ms: c_uint
    ) |state| {
        let watched = sets().get(&set.addr()).cloned().ok_or(INVALID_ARGUMENT)?;
        let mut events = state.events.iter();
        let next = events.position(|event| watched.contains(&event.device)).ok_or(TIMEOUT)?;
        let event = state.events.remove(next);
        put(data, nvmlEventData_t {
            device: pointers::gpu(event.device),
            eventType: u64::from(nvmlEventTypeXidCriticalError),
            eventData: event.xid,
            gpuInstanceId: event.gpu_instance.unwrap_or(c_uint::MAX),
            computeInstanceId: c_uint::MAX,
        })
    }

    fn nvmlEventSetFree(set: nvmlEventSet_t) |_state| {
        sets().remove(&set.addr()).map(drop).ok_or(NOT_FOUND)
    }
}
