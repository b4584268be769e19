//! Things that go wrong, and what follows.

use std::time::Duration;

use simgpu::Fault;

use super::{Event, RequestWorld};
use crate::{claims::Claim, fleet::Trouble};

/// A worker that was silent this long is trusted no more.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct InForce {
    dead: Vec<u32>,
    silent: Vec<u32>,
    slow: Vec<f64>,
    routers_down: u32,
}

impl InForce {
    pub(super) fn new(gpus: usize) -> Self {
        Self { dead: vec![0; gpus], silent: vec![0; gpus], slow: vec![1.0; gpus], routers_down: 0 }
    }

    pub(super) fn router_down(&self) -> bool {
        self.routers_down > 0
    }
}

impl RequestWorld<'_> {
    pub(super) fn break_down(&mut self, index: usize) -> Result<(), Claim> {
        let fault = self.fleet.faults[index];
        self.push(self.now + fault.lasts, Event::Mend { fault: index as u32 });
        match fault.trouble {
            Trouble::DeadGpu { gpu } => {
                self.in_force.dead[gpu] += 1;
                for replica in self.on(gpu) {
                    self.kill(replica)?;
                }
            }
            Trouble::SlowGpu { gpu, factor } => self.slow(gpu, factor),
            Trouble::LostWorker { gpu } => {
                self.in_force.silent[gpu] += 1;
                if fault.lasts > SILENCE {
                    self.push(self.now + SILENCE, Event::Silent { fault: index as u32 });
                }
            }
            Trouble::SlowNetwork { by } => self.network += by,
            Trouble::StaleReports { by } => self.report_delay += by,
            Trouble::RouterRestart => self.stop_router()?,
        }
        Ok(())
    }

    pub(super) fn mend(&mut self, index: usize) -> Result<(), Claim> {
        match self.fleet.faults[index].trouble {
            Trouble::DeadGpu { gpu } => {
                self.in_force.dead[gpu] -= 1;
                self.reload(gpu);
            }
            Trouble::SlowGpu { gpu, factor } => self.slow(gpu, factor.recip()),
            Trouble::LostWorker { gpu } => {
                self.in_force.silent[gpu] -= 1;
                self.hear_again(gpu);
            }
            Trouble::SlowNetwork { by } => self.network -= by,
            Trouble::StaleReports { by } => self.report_delay -= by,
            Trouble::RouterRestart => {
                self.in_force.routers_down -= 1;
                self.join_all()?;
            }
        }
        Ok(())
    }

    /// The router hears no more of a GPU's worker, and gives its replicas nothing new.
    pub(super) fn fall_silent(&mut self, index: usize) -> Result<(), Claim> {
        let Trouble::LostWorker { gpu } = self.fleet.faults[index].trouble else { return Ok(()) };
        for replica in self.on(gpu) {
            if let Some(name) = self.replicas[replica].name.take() {
                let model = self.fleet.replicas[replica].model;
                self.models[model].dispatch.drain_replica(name);
                self.act(model, Vec::new())?;
            }
        }
        Ok(())
    }

    /// A replica's model is loaded, and the router hears of it if its worker speaks.
    pub(super) fn ready(&mut self, replica: usize, epoch: u32) -> Result<(), Claim> {
        if self.replicas[replica].epoch == epoch {
            self.replicas[replica].up = true;
            self.join_if_told(replica)?;
        }
        Ok(())
    }

    /// Every replica that is up and known to a router that is up too.
    pub(super) fn join_all(&mut self) -> Result<(), Claim> {
        (0..self.replicas.len()).try_for_each(|replica| self.join_if_told(replica))
    }

    fn join_if_told(&mut self, replica: usize) -> Result<(), Claim> {
        let gpu = self.fleet.replicas[replica].gpu;
        let running = &self.replicas[replica];
        let told = self.in_force.silent[gpu] == 0 && !self.in_force.router_down();
        if told && running.up && running.name.is_none() { self.join(replica) } else { Ok(()) }
    }

    fn slow(&mut self, gpu: usize, factor: f64) {
        self.in_force.slow[gpu] *= factor;
        self.devices[gpu].inject(Fault::Slow(self.in_force.slow[gpu]));
    }

    fn reload(&mut self, gpu: usize) {
        if self.in_force.dead[gpu] > 0 {
            return;
        }
        for replica in self.on(gpu) {
            let memory_mib = self.fleet.models[self.fleet.replicas[replica].model].memory_mib;
            let loaded = self.fleet.terms.delays.load(memory_mib) + self.report_delay;
            let epoch = self.replicas[replica].epoch;
            self.push(self.now + loaded, Event::Ready { replica: replica as u32, epoch });
        }
    }

    fn hear_again(&mut self, gpu: usize) {
        for replica in self.on(gpu) {
            if self.replicas[replica].up {
                let (epoch, at) = (self.replicas[replica].epoch, self.now + self.report_delay);
                self.push(at, Event::Ready { replica: replica as u32, epoch });
            }
        }
    }

    /// All that live are cut off; executors drop what they have not begun.
    fn stop_router(&mut self) -> Result<(), Claim> {
        self.in_force.routers_down += 1;
        let live: Vec<u64> = self.requests.iter().map(|(id, _)| id).collect();
        for id in live {
            self.end(id, |outcome, _| outcome.failed += 1)?;
        }
        for running in &mut self.replicas {
            running.name = None;
            running.forget_waiting();
        }
        self.models = self.machines();
        Ok(())
    }

    fn on(&self, gpu: usize) -> Vec<usize> {
        let replicas = self.fleet.replicas.iter().enumerate();
        replicas.filter(|(_, spec)| spec.gpu == gpu).map(|(index, _)| index).collect()
    }
}
