//! From NVML's codes to ours.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings as sys;

use crate::gpu::GpuError;

#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) code: sys::nvmlReturn_t,
}

impl From<Failure> for GpuError {
    fn from(Failure { call, code }: Failure) -> Self {
        match code {
            sys::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
            | sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND => Self::NotSupported { call },
            sys::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => Self::NoPermission { call },
            sys::nvmlReturn_enum_NVML_ERROR_NOT_FOUND => Self::Stale { call },
            sys::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => Self::Lost { call },
            sys::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => Self::ResetRequired { call },
            sys::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_RESOURCES => {
                Self::InsufficientResources { call }
            }
            _ => Self::Other { call, code },
        }
    }
}

impl Failure {
    /// The same, of a call on a slice found a moment ago: the driver calls the handle of one that
    /// has vanished an invalid argument.
    pub(super) fn of_slice(self) -> GpuError {
        if self.code == sys::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT {
            GpuError::Stale { call: self.call }
        } else {
            self.into()
        }
    }
}

pub(super) fn failed(call: &'static str) -> impl FnOnce(NvmlError) -> Failure {
    move |error| {
        let absent = matches!(error, NvmlError::FailedToLoadSymbol(_));
        let code =
            if absent { sys::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND } else { error.into() };
        Failure { call, code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_fail_is_an_error_of_its_own() {
        let call = "nvmlGpuInstanceDestroy";
        let of = |code| GpuError::from(Failure { call, code });
        assert_eq!(of(3), GpuError::NotSupported { call });
        assert_eq!(of(4), GpuError::NoPermission { call });
        assert_eq!(of(6), GpuError::Stale { call });
        assert_eq!(of(15), GpuError::Lost { call });
        assert_eq!(of(16), GpuError::ResetRequired { call });
        assert_eq!(of(23), GpuError::InsufficientResources { call });
        assert_eq!(of(2), GpuError::Other { call, code: 2 });
        assert_eq!(Failure { call, code: 2 }.of_slice(), GpuError::Stale { call });
    }

    #[test]
    fn a_function_the_driver_lacks_is_not_supported() {
        let failure = failed("nvmlX")(NvmlError::FailedToLoadSymbol("no such symbol".into()));
        assert_eq!(GpuError::from(failure), GpuError::NotSupported { call: "nvmlX" });
        let failure = failed("nvmlX")(NvmlError::UnexpectedVariant(23));
        assert_eq!(GpuError::from(failure), GpuError::InsufficientResources { call: "nvmlX" });
    }
}
