//! One simulated GPU: how it is cut, who holds its memory, who is busy, what is broken.

use std::time::Duration;

use mig::{Geometry, Kind, Position};

use crate::{
    SimError,
    share::{Busy, Load, Shared},
};

const MIB_PER_GIB: f64 = 1024.0;

/// How long changes take. Nobody has published these: measure them on your own machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delays {
    pub create: Duration,
    pub destroy: Duration,
    /// From starting a process to its first byte of weights.
    pub start: Duration,
    /// MiB of weights loaded per second.
    pub load_mib_per_s: f64,
}

impl Default for Delays {
    /// Half a second and 0.3 s for a slice; 2 s and 2 GiB/s for a model.
    fn default() -> Self {
        Self {
            create: Duration::from_millis(500),
            destroy: Duration::from_millis(300),
            start: Duration::from_secs(2),
            load_mib_per_s: 2048.0,
        }
    }
}

impl Delays {
    /// Until a model of `memory_mib` is ready to be warmed up.
    pub fn load(&self, memory_mib: u64) -> Duration {
        self.start + Duration::from_secs_f64(memory_mib as f64 / self.load_mib_per_s.max(1.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Xid(u64),
    /// Everything takes this many times as long, until it is told otherwise.
    Slow(f64),
    /// The next creations fail, this many.
    FailedCreates(u32),
    Lost,
}

/// What a reshape did and how long it took, whether it got to its end or not.
#[derive(Debug, PartialEq)]
pub struct Recut {
    /// Slices that are no more.
    pub destroyed: Vec<Position>,
    pub created: Vec<Position>,
    pub took: Duration,
    /// What stopped it, if anything did.
    pub outcome: Result<(), SimError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Use {
    memory_mib: u64,
    holders: u32,
    busy: Option<Load>,
}

#[derive(Clone, Debug)]
pub struct Device {
    geometry: Geometry,
    shared: Shared,
    /// In the order of the geometry's positions.
    uses: Vec<Use>,
    delays: Delays,
    slow: f64,
    failing_creates: u32,
    lost: bool,
    xids: Vec<u64>,
}

impl Device {
    pub fn new(geometry: Geometry, delays: Delays) -> Self {
        let uses = vec![Use::default(); geometry.positions().len()];
        let shared = Shared::of(geometry.kind());
        Self {
            geometry,
            shared,
            uses,
            delays,
            slow: 1.0,
            failing_creates: 0,
            lost: false,
            xids: Vec::new(),
        }
    }

    pub fn kind(&self) -> &'static Kind {
        self.geometry.kind()
    }

    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub fn delays(&self) -> Delays {
        self.delays
    }

    /// Cuts it as wanted, touching only slices that are to vanish or appear.
    ///
    /// If one that is to vanish is held, nothing is done at all.
    pub fn recut(&mut self, wanted: &Geometry) -> Recut {
        let mut recut =
            Recut { destroyed: vec![], created: vec![], took: Duration::ZERO, outcome: Ok(()) };
        recut.outcome = self.cut(wanted, &mut recut);
        recut
    }

    fn cut(&mut self, wanted: &Geometry, recut: &mut Recut) -> Result<(), SimError> {
        self.answers()?;
        let stays = |position: &Position| wanted.positions().contains(position);
        let (kept, doomed): (Vec<Position>, Vec<Position>) =
            self.geometry.positions().iter().copied().partition(stays);
        for position in &doomed {
            if self.uses[self.index(*position)?].holders > 0 {
                return Err(SimError::InUse { position: *position });
            }
        }
        let mut target = kept.clone();
        let new: Vec<Position> =
            wanted.positions().iter().copied().filter(|one| !kept.contains(one)).collect();
        // Before anything is touched: the whole must be legal for this very GPU.
        Geometry::new(self.kind(), kept.iter().chain(&new).copied().collect())?;
        recut.took += self.delays.destroy * u32::try_from(doomed.len()).unwrap_or(u32::MAX);
        recut.destroyed = doomed;
        let mut outcome = Ok(());
        for position in new {
            recut.took += self.delays.create;
            if self.failing_creates > 0 {
                self.failing_creates -= 1;
                outcome = Err(SimError::CreateFailed { position });
                break;
            }
            target.push(position);
            recut.created.push(position);
        }
        self.adopt(Geometry::new(self.kind(), target)?);
        outcome
    }

    fn adopt(&mut self, geometry: Geometry) {
        let kept = |position: &Position| self.index(*position).map(|index| self.uses[index]);
        let uses = geometry.positions().iter().map(|one| kept(one).unwrap_or_default()).collect();
        self.geometry = geometry;
        self.uses = uses;
    }

    /// Takes memory of a slice for a process; nothing destroys the slice until it is given back.
    pub fn hold(&mut self, position: Position, memory_mib: u64) -> Result<(), SimError> {
        self.answers()?;
        let free_mib = self.free_mib(position)?;
        if memory_mib > free_mib {
            return Err(SimError::OutOfMemory { position, needed_mib: memory_mib, free_mib });
        }
        let index = self.index(position)?;
        self.uses[index].memory_mib += memory_mib;
        self.uses[index].holders += 1;
        Ok(())
    }

    pub fn release(&mut self, position: Position, memory_mib: u64) -> Result<(), SimError> {
        let index = self.index(position)?;
        let held = &mut self.uses[index];
        held.memory_mib = held.memory_mib.saturating_sub(memory_mib);
        held.holders = held.holders.saturating_sub(1);
        if held.holders == 0 {
            held.busy = None;
        }
        Ok(())
    }

    pub fn free_mib(&self, position: Position) -> Result<u64, SimError> {
        let used = self.uses[self.index(position)?].memory_mib;
        Ok(total_mib(position).saturating_sub(used))
    }

    /// What a slice is busy with from now on.
    pub fn set_busy(&mut self, position: Position, load: Option<Load>) -> Result<(), SimError> {
        let index = self.index(position)?;
        self.set_busy_at(index, load);
        Ok(())
    }

    /// The same, for the slice at `index` of the geometry.
    pub fn set_busy_at(&mut self, index: usize, load: Option<Load>) {
        self.uses[index].busy = load;
    }

    /// What a slice is used for, whoever held it: no more memory than it has.
    pub fn set_use(
        &mut self,
        position: Position,
        memory_mib: u64,
        load: Option<Load>,
    ) -> Result<(), SimError> {
        let index = self.index(position)?;
        self.uses[index].memory_mib = memory_mib.min(total_mib(position));
        self.uses[index].busy = load;
        Ok(())
    }

    /// How much longer work of `load` takes on a slice than alone on a healthy GPU.
    pub fn slowdown(&self, position: Position, load: Load) -> Result<f64, SimError> {
        self.answers()?;
        Ok(self.slowdown_at(self.index(position)?, load))
    }

    /// The same, for the slice at `index` of the geometry.
    pub fn slowdown_at(&self, index: usize, load: Load) -> f64 {
        let others = self.busy().filter(|(other, _)| *other != index).map(|(_, busy)| busy);
        let compute_slices = self.geometry.positions()[index].profile().compute_slices;
        self.slow * self.shared.slowdown(Busy { compute_slices, load }, others)
    }

    /// Power drawn, which never exceeds the limit.
    pub fn watts(&self) -> f64 {
        self.shared.watts(self.watts_wanted())
    }

    /// The clock, which falls where more power is wanted than the limit allows.
    pub fn clock_mhz(&self) -> f64 {
        self.shared.clock_mhz(self.watts_wanted())
    }

    fn watts_wanted(&self) -> f64 {
        self.shared.watts_wanted(self.busy().map(|(_, busy)| busy))
    }

    fn busy(&self) -> impl Iterator<Item = (usize, Busy)> {
        let slices = self.geometry.positions().iter().zip(&self.uses).enumerate();
        slices.filter_map(|(index, (position, one))| {
            let compute_slices = position.profile().compute_slices;
            one.busy.map(|load| (index, Busy { compute_slices, load }))
        })
    }

    pub fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::Xid(code) => self.xids.push(code),
            Fault::Slow(factor) => self.slow = factor.max(f64::MIN_POSITIVE),
            Fault::FailedCreates(count) => self.failing_creates = count,
            Fault::Lost => self.lost = true,
        }
    }

    pub fn take_xids(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.xids)
    }

    pub fn answers(&self) -> Result<(), SimError> {
        if self.lost { Err(SimError::Lost) } else { Ok(()) }
    }

    fn index(&self, position: Position) -> Result<usize, SimError> {
        let positions = self.geometry.positions();
        let found = positions.iter().position(|one| *one == position);
        found.ok_or(SimError::NoSlice { position })
    }
}

pub fn total_mib(position: Position) -> u64 {
    (position.profile().memory_gib * MIB_PER_GIB) as u64
}
