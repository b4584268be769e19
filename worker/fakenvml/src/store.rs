//! One call: lock the state, let it go wrong if it is to, do it, keep what changed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use nvml_wrapper_sys::bindings::{
    nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED as DRIVER_NOT_LOADED,
    nvmlReturn_enum_NVML_ERROR_NO_PERMISSION as NO_PERMISSION,
    nvmlReturn_enum_NVML_ERROR_UNINITIALIZED as UNINITIALIZED,
    nvmlReturn_enum_NVML_SUCCESS as SUCCESS,
};

use crate::{Code, STATE_FILE, State};

static USERS: AtomicU32 = AtomicU32::new(0);

/// The state's file: beside the file this code was loaded from.
static PATH: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let here = call as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        let path = &rest[rest.find('/')?..];
        (from..to).contains(&here).then(|| PathBuf::from(path))
    })?;
    Some(library.parent()?.join(STATE_FILE))
});

pub(crate) fn call(name: &str, body: &mut dyn FnMut(&mut State) -> Result<(), Code>) -> Code {
    if USERS.load(Ordering::Relaxed) == 0 {
        return UNINITIALIZED;
    }
    run(name, body)
}

pub(crate) fn init(name: &str) -> Code {
    let code = run(name, &mut |_| Ok(()));
    if code == SUCCESS {
        USERS.fetch_add(1, Ordering::Relaxed);
    }
    code
}

pub(crate) fn shutdown() -> Code {
    let fewer = |users: u32| users.checked_sub(1);
    match USERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer) {
        Ok(_) => SUCCESS,
        Err(_) => UNINITIALIZED,
    }
}

/// Refuses callers that may only look.
pub(crate) fn privileged(state: &State) -> Result<(), Code> {
    if state.privileged { Ok(()) } else { Err(NO_PERMISSION) }
}

fn run(name: &str, body: &mut dyn FnMut(&mut State) -> Result<(), Code>) -> Code {
    let Some(path) = PATH.as_deref().filter(|path| path.exists()) else {
        return DRIVER_NOT_LOADED;
    };
    change(path, name, body).unwrap_or(DRIVER_NOT_LOADED)
}

fn change(
    path: &Path,
    name: &str,
    body: &mut dyn FnMut(&mut State) -> Result<(), Code>,
) -> std::io::Result<Code> {
    State::change(path, |state| {
        let fault = strike(state, name);
        let done = match fault {
            Some((_, false)) => Ok(()),
            Some((_, true)) | None => body(state),
        };
        match (fault, done) {
            (Some((code, _)), _) => code,
            (None, Ok(())) => SUCCESS,
            (None, Err(code)) => code,
        }
    })
}

/// Whether this call is to fail: with what, and whether it does its work all the same.
fn strike(state: &mut State, name: &str) -> Option<(Code, bool)> {
    let mut struck = None;
    for fault in &mut state.faults {
        if fault.call.as_deref().is_some_and(|call| call != name) {
            continue;
        }
        if fault.pass > 0 {
            fault.pass -= 1;
        } else if fault.times > 0 && struck.is_none() {
            fault.times -= 1;
            if let Some(device) = fault.becomes.take() {
                state.devices[0] = device;
            }
            struck = (fault.code != SUCCESS).then_some((fault.code, fault.works));
        }
    }
    struck
}
