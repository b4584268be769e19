//! The library itself.

use std::ffi::{CStr, c_char, c_int, c_uint};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use crate::{
    pointers::{put, put_text},
    store,
};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    store::init("nvmlInit_v2")
}

/// Opens the library; no flag changes what a fake does.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    store::init("nvmlInitWithFlags")
}

/// Closes the library, once for each time it was opened.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    store::shutdown()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let text: &CStr = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        19 => c"In use by another client",
        23 => c"Insufficient Resources",
        25 => c"Argument Version Mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

exports! {
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) |state| {
        put_text(version, length, &state.driver)
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) |state| {
        put_text(version, length, &format!("13.{}", state.driver))
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) |_state| {
        put(version, 13_000)
    }
}
