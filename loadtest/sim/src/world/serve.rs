//! Batches on replicas: sent, begun, finished, answered.

use std::{collections::VecDeque, time::Duration};

use mig::{Geometry, Position};
use policy::{
    dispatch::{Batch, Effect, Ended},
    moment::Moment,
};

use super::{Event, RequestWorld};
use crate::{claims::Claim, fleet::SimFleet};

/// The most batches a replica has at once: one that runs and one that waits.
const MOST_BATCHES: usize = 2;

#[derive(Debug, Default)]
pub(super) struct Slice {
    members: Vec<usize>,
    processes: Vec<Process>,
    busy: u32,
    busy_since: Moment,
    part: f64,
}

#[derive(Debug, Default)]
struct Process {
    members: Vec<usize>,
    running: Option<usize>,
    queue: VecDeque<usize>,
}

impl Slice {
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.members.iter().copied()
    }

    pub(super) fn part(&self) -> f64 {
        self.part
    }
}

pub(super) fn slices(fleet: &SimFleet) -> Vec<Vec<Slice>> {
    let gpu = |geometry: &Geometry| {
        let whole = f64::from(geometry.kind().compute_slices);
        let part = |position: &Position| f64::from(position.profile().compute_slices) / whole;
        let slice = |position| Slice { part: part(position), ..Slice::default() };
        geometry.positions().iter().map(slice).collect::<Vec<_>>()
    };
    let mut slices: Vec<Vec<Slice>> = fleet.gpus.iter().map(gpu).collect();
    for (index, replica) in fleet.replicas.iter().enumerate() {
        let slice = &mut slices[replica.gpu][replica.slice];
        slice.members.push(index);
        if slice.processes.len() <= replica.process {
            slice.processes.resize_with(replica.process + 1, Process::default);
        }
        slice.processes[replica.process].members.push(index);
    }
    slices
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    left: f64,
    /// As of when.
    as_of: Moment,
    /// How much longer it takes than alone on the GPU, by its neighbours and by chance.
    slower: f64,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) up: bool,
    /// How often it was started: what was due for an earlier life is void.
    pub(super) epoch: u32,
    /// Its name in its model's machine, a new one each time it joins.
    pub(super) name: Option<u32>,
    pub(super) joined: u32,
    /// How often the end of its batches was foreseen: only the last holds.
    turn: u32,
    current: Option<Batch>,
    progress: Progress,
    waiting: VecDeque<Batch>,
    returning: VecDeque<Batch>,
    returns_at: Moment,
}

impl Default for Running {
    fn default() -> Self {
        Self {
            up: true,
            epoch: 0,
            name: None,
            joined: 0,
            turn: 0,
            current: None,
            progress: Progress::default(),
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

    fn batches(&self) -> usize {
        self.held().filter(|batch| Some(batch.replica) == self.name).count()
    }

    pub(super) fn has_batches(&self) -> bool {
        self.held().next().is_some()
    }

    /// Drops what it has not begun.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }
}

impl RequestWorld<'_> {
    pub(super) fn join(&mut self, replica: usize) -> Result<(), Claim> {
        let spec = &self.fleet.replicas[replica];
        let running = &mut self.replicas[replica];
        let name = (replica + running.joined as usize * self.fleet.replicas.len()) as u32;
        running.joined += 1;
        running.name = Some(name);
        let warmup = spec.times.warmup();
        let dispatch = &mut self.models[spec.model].dispatch;
        let effects = dispatch.add_replica(name, &warmup, self.now);
        let longest = self.longest_turn(replica);
        self.models[spec.model].dispatch.take_turns(name, longest);
        self.act(spec.model, effects)
    }

    /// The replica that its model's machine calls `name`, if it still goes by that name.
    fn replica_of(&self, name: u32) -> Result<usize, usize> {
        let replica = name as usize % self.fleet.replicas.len();
        if self.replicas[replica].name == Some(name) { Ok(replica) } else { Err(replica) }
    }

    pub(super) fn send(&mut self, batch: Batch) -> Result<(), Claim> {
        let replica =
            self.replica_of(batch.replica).map_err(|replica| Claim::SentNowhere { replica })?;
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
        let ends = batch.ends;
        self.replicas[replica].waiting.push_back(batch);
        self.process(replica).queue.push_back(replica);
        self.others_step_aside(replica, ends);
        self.go_on(replica, self.now + self.network);
        Ok(())
    }

    pub(super) fn sharing(&mut self, replica: usize) -> &[usize] {
        &self.process(replica).members
    }

    fn process(&mut self, replica: usize) -> &mut Process {
        let spec = &self.fleet.replicas[replica];
        &mut self.slices[spec.gpu][spec.slice].processes[spec.process]
    }

    /// Lets the process of `beside` begin with the next batch that waits there, unless it is at one.
    fn go_on(&mut self, beside: usize, at: Moment) {
        while self.process(beside).running.is_none()
            && let Some(next) = self.process(beside).queue.pop_front()
        {
            // A batch that was called off left its place behind.
            if let Some(batch) = self.replicas[next].waiting.pop_front() {
                self.process(beside).running = Some(next);
                self.begin(next, batch, at);
            }
        }
    }

    fn begin(&mut self, replica: usize, batch: Batch, at: Moment) {
        let spec = &self.fleet.replicas[replica];
        let device = &mut self.devices[spec.gpu];
        let load = self.fleet.models[spec.model].load;
        device.set_busy_at(spec.slice, Some(load));
        let slower =
            device.slowdown_at(spec.slice, load) * self.service.spread(self.fleet.terms.noise);
        let running = &mut self.replicas[replica];
        running.current = Some(batch);
        running.progress = Progress { left: 1.0, as_of: at, slower };
        if let Some(slowdowns) = &mut self.slowdowns {
            slowdowns.turn(replica, true, self.now);
        }
        self.crowd(replica, |busy| busy + 1);
    }

    fn crowd(&mut self, replica: usize, change: impl Fn(u32) -> u32) {
        let spec = &self.fleet.replicas[replica];
        let slice = &mut self.slices[spec.gpu][spec.slice];
        let before = slice.busy;
        slice.busy = change(before);
        if before == 0 {
            slice.busy_since = self.now;
        }
        let (after, members) = (slice.busy, std::mem::take(&mut slice.members));
        if after == 0 {
            self.report.busy_gpu_s += self.now.since(slice.busy_since).as_secs_f64() * slice.part;
            self.devices[spec.gpu].set_busy_at(spec.slice, None);
        }
        for member in &members {
            self.pace(*member, before, after);
        }
        self.slices[spec.gpu][spec.slice].members = members;
    }

    /// Foresees the end of a replica's batch anew.
    fn pace(&mut self, replica: usize, before: u32, after: u32) {
        let running = &mut self.replicas[replica];
        let Some(batch) = &running.current else { return };
        let times = &self.fleet.replicas[replica].times;
        let progress = &mut running.progress;
        let own = self.fleet.terms.executor.as_secs_f64() * 1e6;
        let took = |busy: u32| times.micros(batch.rows, busy) * progress.slower + own;
        let passed = self.now.since(progress.as_of).as_secs_f64() * 1e6;
        let left = (progress.left - passed / took(before)).max(0.0);
        let ahead = Duration::from_nanos((left * took(after) * 1e3) as u64);
        progress.left = left;
        progress.as_of = progress.as_of.max(self.now);
        running.turn += 1;
        let (at, turn) = (progress.as_of + ahead, running.turn);
        self.push(at, Event::Finish { replica: replica as u32, turn });
    }

    pub(super) fn finish(&mut self, replica: usize, turn: u32) -> Result<(), Claim> {
        let running = &mut self.replicas[replica];
        if running.turn != turn {
            return Ok(());
        }
        let Some(batch) = running.current.take() else { return Ok(()) };
        let slower = running.progress.slower;
        running.returning.push_back(batch);
        self.feel(replica, slower);
        self.crowd(replica, |busy| busy - 1);
        self.process(replica).running = None;
        self.go_on(replica, self.now);
        let (epoch, network) = (self.replicas[replica].epoch, self.network);
        if network.is_zero() {
            return self.answer(replica, epoch);
        }
        let running = &mut self.replicas[replica];
        running.returns_at = running.returns_at.max(self.now + network);
        let at = running.returns_at;
        self.push(at, Event::Answer { replica: replica as u32, epoch });
        Ok(())
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
        self.act(model, effects)?;
        self.next_turn(replica)
    }

    fn serve(&mut self, model: usize, id: u64) {
        let Some(request) = self.requests.remove(id) else { return };
        self.ended += 1;
        self.models[model].live -= 1;
        let in_time = self.now <= request.until.due;
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

    pub(super) fn kill(&mut self, replica: usize) -> Result<(), Claim> {
        let running = &mut self.replicas[replica];
        let mut names: Vec<u32> = running.held().map(|batch| batch.replica).collect();
        names.extend(running.name.take());
        names.dedup();
        running.up = false;
        running.epoch += 1;
        running.waiting.clear();
        running.returning.clear();
        if running.current.take().is_some() {
            self.crowd(replica, |busy| busy - 1);
            self.process(replica).running = None;
            self.go_on(replica, self.now);
        }
        let model = self.fleet.replicas[replica].model;
        for name in names {
            let mut effects = std::mem::take(&mut self.effects);
            self.models[model].dispatch.lost(name, self.now, &mut effects);
            self.act(model, effects)?;
        }
        self.next_turn(replica)
    }
}
