//! The functions of NVML, by their names and layouts in `nvml.h`.

#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "names and contracts are those of nvml.h: every pointer may be used as its type says"
)]

/// Exports functions that run as one [call](crate::store::call) each.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) |$state:ident| $body:block)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
            let mut body = |$state: &mut crate::State| -> Result<(), crate::Code> {
                #[allow(unused_unsafe, reason = "a few functions take no pointer")]
                // SAFETY: the caller keeps to nvml.h.
                unsafe { $body }
            };
            crate::store::call(stringify!($name), &mut body)
        }
    )* };
}

pub mod device;
pub mod events;
pub mod instances;
pub mod library;
pub mod profiles;
