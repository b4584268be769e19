//! Proof that nothing uses a slice.

use nvml_wrapper::Device;

use super::{
    catalogue::Catalogue,
    raw::{self, Instance},
    read,
};
use crate::gpu::{GpuError, User, lease::Leases, steps::Doomed};

/// A slice without processes and without leases, a moment ago.
///
/// Only [`Vacant::check`] makes one, and only with one can a slice be destroyed. Should a process
/// arrive in between, the driver refuses.
#[derive(Debug)]
pub(super) struct Vacant {
    instance: Instance,
    compute: Vec<u32>,
    label: String,
}

impl Vacant {
    /// Looks whether anything uses the slice; not being able to tell is an error.
    pub(super) fn check(
        device: &Device<'_>,
        Doomed { id, position }: Doomed,
        catalogue: &Catalogue,
        leases: &Leases,
    ) -> Result<Self, GpuError> {
        let instance = raw::instance(device, id)?;
        if catalogue.position(instance.profile, instance.start) != position {
            return Err(GpuError::Stale { call: "nvmlGpuInstanceGetInfo" });
        }
        let label = position.map_or_else(|| format!("GPU instance {id}"), |at| at.to_string());
        let mut compute = Vec::new();
        for mig in read::mig_devices(device)?.iter().filter(|mig| mig.instance == id) {
            if leases.has(&mig.uuid) {
                return Err(GpuError::InUse { slice: label, by: User::Lease });
            }
            let processes = read::processes(&mig.device)?;
            if !processes.is_empty() {
                let pids = processes.iter().map(|process| process.pid).collect();
                return Err(GpuError::InUse { slice: label, by: User::Processes(pids) });
            }
            compute.push(mig.compute);
        }
        // One we are not shown could be in use without our knowing.
        read::all_seen(device, id, compute.iter().copied())?;
        Ok(Self { instance, compute, label })
    }

    pub(super) fn instance(&self) -> Instance {
        self.instance
    }

    pub(super) fn compute(&self) -> &[u32] {
        &self.compute
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }
}
