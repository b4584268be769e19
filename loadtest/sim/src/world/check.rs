//! The claims, checked after every event: what the event could have broken, each time; all of the
//! fleet, every so often.

use mig::Geometry;
use policy::{dispatch::GRACE, moment::Moment};

use super::RequestWorld;
use crate::{claims::Claim, report::Report};

pub type OwnClaim<'a> = &'a dyn Fn(&Report) -> Option<String>;

#[derive(Clone, Copy)]
pub struct Checks<'a> {
    /// All of the fleet is looked at after this many events. At least 1.
    pub every: u64,
    pub most_events: u64,
    pub own: Option<OwnClaim<'a>>,
}

impl Default for Checks<'_> {
    fn default() -> Self {
        Self { every: 1 << 16, most_events: u64::MAX, own: None }
    }
}

impl RequestWorld<'_> {
    pub(super) fn check(&self) -> Result<(), Claim> {
        let live = self.requests.len() as u64;
        if self.offered != self.ended + live {
            let (offered, ended) = (self.offered, self.ended);
            return Err(Claim::Uncounted { offered, ended, live });
        }
        if let Some(own) = self.checks.own
            && let Some(wrong) = own(&self.report)
        {
            return Err(Claim::Own(wrong));
        }
        if self.report.events.is_multiple_of(self.checks.every) { self.sweep() } else { Ok(()) }
    }

    pub(super) fn sweep(&self) -> Result<(), Claim> {
        for (model, serving) in self.fleet.models.iter().zip(&self.models) {
            let held = serving.dispatch.waiting() + serving.dispatch.in_flight();
            if held != serving.live {
                let model = model.name.clone();
                return Err(Claim::Mislaid { model, held, live: serving.live });
            }
        }
        let overdue = |deadline: Moment| deadline + GRACE < self.now;
        if let Some((request, _)) =
            self.requests.iter().find(|(_, one)| overdue(one.until.deadline))
        {
            return Err(Claim::Overdue { request });
        }
        let mut held_mib: Vec<Vec<u64>> =
            self.devices.iter().map(|gpu| vec![0; gpu.geometry().positions().len()]).collect();
        for spec in &self.fleet.replicas {
            let (gpu, slice) = (spec.gpu, spec.slice);
            let held = held_mib[gpu].get_mut(slice).ok_or(Claim::Overbooked { gpu, slice })?;
            *held += self.fleet.models[spec.model].memory_mib;
        }
        for (gpu, device) in self.devices.iter().enumerate() {
            let geometry = device.geometry();
            if Geometry::new(geometry.kind(), geometry.positions().to_vec()).is_err() {
                return Err(Claim::Geometry { gpu });
            }
            for (slice, position) in geometry.positions().iter().enumerate() {
                if held_mib[gpu][slice] > simgpu::total_mib(*position) {
                    return Err(Claim::Overbooked { gpu, slice });
                }
            }
        }
        Ok(())
    }
}
