//! Batches on replicas: sent, begun, finished, answered.

use std::collections::VecDeque;

use policy::{
    dispatch::{Batch, Effect, Ended},
    moment::Moment,
};
use simgpu::Load;

use super::{Event, World};
use crate::claims::Claim;

/// The most batches a replica has at once: one that runs and one that waits.
const MOST_BATCHES: usize = 2;

/// One replica as it runs.
#[derive(Debug)]
pub(super) struct Running {
    /// Whether its process lives and its model is loaded.
    pub(super) up: bool,
    /// How often it was started: what was due for an earlier life is void.
    pub(super) epoch: u32,
    /// Its name in its model's machine, a new one each time it joins.
    pub(super) name: Option<u32>,
    /// How often it has joined.
    pub(super) joined: u32,
    current: Option<Batch>,
    waiting: VecDeque<Batch>,
    returning: VecDeque<Batch>,
    /// When the last of the returning comes back.
    returns_at: Moment,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            up: true,
            epoch: 0,
            name: None,
            joined: 0,
            current: None,
            waiting: VecDeque::new(),
            returning: VecDeque::new(),
            returns_at: Moment::default(),
        }
    }
}

impl Running {
    fn held(&self) -> impl Iterator<Item = &Batch> {
        self.current.iter().chain(&self.waiting).chain(&self.returning)
    }

    /// Batches it has under its present name.
    fn batches(&self) -> usize {
        self.held().filter(|batch| Some(batch.replica) == self.name).count()
    }

    /// Drops what it has not begun.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl World<'_> {
    /// Brings a replica into rotation, as its worker reports it.
    pub(super) fn join(&mut self, replica: usize) -> Result<(), Claim> {
        let spec = &self.fleet.replicas[replica];
        let running = &mut self.replicas[replica];
        let name = (replica + running.joined as usize * self.fleet.replicas.len()) as u32;
        running.joined += 1;
        running.name = Some(name);
        let warmup = spec.times.warmup();
        let effects = self.models[spec.model].dispatch.add_replica(name, &warmup, self.now);
        self.act(spec.model, effects)
    }

    /// The replica that its model's machine calls `name`, if it still goes by that name.
    fn replica_of(&self, name: u32) -> Result<usize, usize> {
        let replica = name as usize % self.fleet.replicas.len();
        if self.replicas[replica].name == Some(name) { Ok(replica) } else { Err(replica) }
    }

    pub(super) fn send(&mut self, batch: Batch) -> Result<(), Claim> {
        let replica = self
            .replica_of(batch.replica)
            .map_err(|replica| Claim::SentNowhere { replica })?;
        let spec = &self.fleet.replicas[replica];
        let most_rows = self.fleet.models[spec.model].settings.max_batch;
        if batch.rows == 0 || batch.rows > most_rows {
            return Err(Claim::BadSize { rows: batch.rows });
        }
        if self.replicas[replica].batches() >= MOST_BATCHES {
            return Err(Claim::ThirdBatch { replica });
        }
        if self.counts(self.now) {
            let served = &mut self.report.models[spec.model];
            served.batches += 1;
            served.rows += u64::from(batch.rows);
        }
        for id in &batch.requests {
            if let Some(request) = self.requests.get_mut(*id) {
                request.sent = true;
            }
        }
        self.replicas[replica].waiting.push_back(batch);
        if self.replicas[replica].current.is_none() {
            self.begin(replica, self.now + self.network);
        }
        Ok(())
    }

    fn begin(&mut self, replica: usize, at: Moment) {
        let Some(batch) = self.replicas[replica].waiting.pop_front() else { return };
        let spec = &self.fleet.replicas[replica];
        let busy = &mut self.busy[spec.gpu][spec.slice];
        *busy += 1;
        let device = &mut self.devices[spec.gpu];
        device.set_busy_at(spec.slice, Some(Load::INFERENCE));
        let slower = device.slowdown_at(spec.slice, Load::INFERENCE)
            * self.service.spread(self.fleet.terms.noise);
        let micros = spec.times.micros(batch.rows, *busy) * slower;
        let took = std::time::Duration::from_nanos((micros * 1e3) as u64);
        let position = self.fleet.gpus[spec.gpu].positions()[spec.slice];
        let part = f64::from(position.profile().compute_slices)
            / f64::from(self.fleet.gpus[spec.gpu].kind().compute_slices);
        // Of those who share a slice each is busy for its own part of it.
        self.report.busy_gpu_s += took.as_secs_f64() * part / f64::from(*busy);
        let epoch = self.replicas[replica].epoch;
        self.replicas[replica].current = Some(batch);
        self.push(at + took, Event::Finish { replica: replica as u32, epoch });
    }

    pub(super) fn finish(&mut self, replica: usize, epoch: u32) -> Result<(), Claim> {
        if self.replicas[replica].epoch != epoch {
            return Ok(());
        }
        self.idle(replica);
        let running = &mut self.replicas[replica];
        if let Some(batch) = running.current.take() {
            running.returning.push_back(batch);
        }
        self.begin(replica, self.now);
        if self.network.is_zero() {
            return self.answer(replica, epoch);
        }
        let running = &mut self.replicas[replica];
        running.returns_at = running.returns_at.max(self.now + self.network);
        let at = running.returns_at;
        self.push(at, Event::Answer { replica: replica as u32, epoch });
        Ok(())
    }

    /// One process less is busy on the replica's slice.
    pub(super) fn idle(&mut self, replica: usize) {
        let spec = &self.fleet.replicas[replica];
        let busy = &mut self.busy[spec.gpu][spec.slice];
        *busy = busy.saturating_sub(1);
        if *busy == 0 {
            self.devices[spec.gpu].set_busy_at(spec.slice, None);
        }
    }

    pub(super) fn answer(&mut self, replica: usize, epoch: u32) -> Result<(), Claim> {
        if self.replicas[replica].epoch != epoch {
            return Ok(());
        }
        let Some(batch) = self.replicas[replica].returning.pop_front() else { return Ok(()) };
        let model = self.fleet.replicas[replica].model;
        let mut effects = std::mem::take(&mut self.effects);
        let dispatch = &mut self.models[model].dispatch;
        dispatch.finished(batch.replica, batch.id, Ended::Done, self.now, &mut effects);
        for id in batch.requests {
            self.serve(model, id);
        }
        self.act(model, effects)
    }

    /// Answers a request, unless it was given up on while it ran.
    fn serve(&mut self, model: usize, id: u64) {
        let Some(request) = self.requests.remove(id) else { return };
        self.ended += 1;
        self.models[model].live -= 1;
        let in_time = self.now <= request.deadline;
        let tenth = self.tenth(request.arrived);
        tenth.in_time += u64::from(in_time);
        tenth.late += u64::from(!in_time);
        if self.counts(request.arrived) {
            let outcome = &mut self.report.streams[request.stream as usize];
            outcome.in_time += u64::from(in_time);
            outcome.late += u64::from(!in_time);
            let micros = self.now.since(request.arrived).as_micros() as u64;
            self.report.models[model].latency.saturating_record(micros.max(1));
        }
    }

    /// Forgets a batch nobody waits for, if it has not begun.
    pub(super) fn call_off(
        &mut self,
        model: usize,
        batch: u64,
        name: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Ok(replica) = self.replica_of(name) else { return };
        let waiting = &mut self.replicas[replica].waiting;
        if let Some(place) = waiting.iter().position(|sent| sent.id == batch) {
            waiting.remove(place);
            let dispatch = &mut self.models[model].dispatch;
            dispatch.finished(name, batch, Ended::Cancelled, self.now, effects);
        }
    }

    /// Ends a replica's life with all it holds, and tells the router.
    pub(super) fn kill(&mut self, replica: usize) -> Result<(), Claim> {
        if self.replicas[replica].current.is_some() {
            self.idle(replica);
        }
        let running = &mut self.replicas[replica];
        let mut names: Vec<u32> = running.held().map(|batch| batch.replica).collect();
        names.extend(running.name.take());
        names.dedup();
        running.up = false;
        running.epoch += 1;
        running.current = None;
        running.waiting.clear();
        running.returning.clear();
        let model = self.fleet.replicas[replica].model;
        for name in names {
            let mut effects = std::mem::take(&mut self.effects);
            self.models[model].dispatch.lost(name, self.now, &mut effects);
            self.act(model, effects)?;
        }
        Ok(())
    }
}
