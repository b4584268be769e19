//! A fleet in which decisions are carried out.

use std::collections::BTreeMap;

use mig::{Geometry, Position};
use policy::{
    interference::Draw,
    place::{Action, Gpu, Pin, Placed, Replica, Slice, Snapshot, State, Target, place},
    plan::{Measured, Model, Row, Rules},
};
use simgpu::random::Random;

pub(crate) fn between(random: &mut Random, least: f64, most: f64) -> f64 {
    least + (most - least) * random.below(1 << 20) as f64 / f64::from(1 << 20)
}

/// A model that serves `rps` on a seventh of an A100, and nearly as many times that on more.
pub(crate) fn model(name: &str, rps: f64, demand_rps: f64) -> Model {
    let rows = [
        ("1g.10gb", 1.0),
        ("1g.20gb", 1.0),
        ("2g.20gb", 1.9),
        ("3g.40gb", 2.8),
        ("4g.40gb", 3.6),
        ("7g.80gb", 6.0),
    ];
    let row = |(profile, times): (&str, f64)| Row {
        profile: profile.to_owned(),
        batch: 4,
        processes: 1,
        throughput_rps: rps * times,
    };
    Model {
        name: name.to_owned(),
        demand_rps,
        slo_ms: 2_000.0,
        measured: vec![Measured { kind: None, rows: rows.map(row).to_vec() }],
        max_batch: None,
        memory_mib: Some(2_000),
        replicas_min: 1,
        replicas_max: u32::MAX,
        load: Draw::default(),
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    }
}

pub(crate) struct World {
    pub(crate) models: Vec<Model>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) said_no_room: bool,
    /// Replicas that were stopped before they were ready.
    pub(crate) cancelled: u32,
    last: Target,
    serves_rps: BTreeMap<u64, f64>,
    next: u64,
    jobs: bool,
}

impl World {
    pub(crate) fn empty(gpus: usize, models: Vec<Model>) -> Self {
        let kind = mig::kind("A100-80GB").unwrap();
        let gpu = Gpu { kind, healthy: true, cuttable: true, slices: Vec::new() };
        Self {
            models,
            gpus: vec![gpu; gpus],
            pins: Vec::new(),
            said_no_room: false,
            cancelled: 0,
            last: Target::default(),
            serves_rps: BTreeMap::new(),
            next: 0,
            jobs: false,
        }
    }

    /// Three to six models on GPUs that are about half full with them.
    pub(crate) fn new(random: &mut Random, jobs: bool) -> Self {
        let count = 3 + random.below(4) as usize;
        let models = (0..count).map(|index| {
            let rps = between(random, 50.0, 150.0);
            model(&format!("m{index}"), rps, rps * between(random, 0.5, 6.0))
        });
        let models: Vec<Model> = models.collect();
        let gpus = count * 2;
        Self { jobs, ..Self::empty(gpus, models) }
    }

    pub(crate) fn snapshot(&self, consolidate: bool) -> Snapshot {
        Snapshot {
            models: self.models.clone(),
            gpus: self.gpus.clone(),
            rules: Rules { work: 200_000, ..Rules::default() },
            pins: self.pins.clone(),
            consolidate,
            last: self.last.clone(),
        }
    }

    fn position(&self, gpu: usize, position: &str) -> Position {
        self.gpus[gpu].kind.position(position).unwrap()
    }

    pub(crate) fn cut(&mut self, gpu: usize, position: &str) {
        let position = self.position(gpu, position);
        let slice = Slice { position, loaned: false, doomed: false, replicas: Vec::new() };
        self.gpus[gpu].slices.push(slice);
    }

    pub(crate) fn lend(&mut self, gpu: usize, position: &str) {
        self.cut(gpu, position);
        self.gpus[gpu].slices.last_mut().unwrap().loaned = true;
    }

    /// Puts a replica on a slice, and makes that if it is not there.
    pub(crate) fn hold(
        &mut self,
        (gpu, position): (usize, &str),
        model: usize,
        state: State,
        busy: f64,
    ) {
        let at = self.position(gpu, position);
        if self.gpus[gpu].slices.iter().all(|slice| slice.position != at) {
            self.cut(gpu, position);
        }
        let mut slices = self.gpus[gpu].slices.iter_mut();
        let slice = slices.find(|slice| slice.position == at).unwrap();
        let name = &slice.position.profile().name;
        let rows = &self.models[model].measured[0].rows;
        let capacity_rps = rows.iter().find(|row| row.profile == *name).unwrap().throughput_rps;
        let id = self.next;
        slice.replicas.push(Replica {
            id,
            model: Some(model),
            current: true,
            processes: 1,
            state,
            busy,
        });
        self.serves_rps.insert(id, capacity_rps);
        self.next += 1;
    }

    pub(crate) fn pin(&mut self, model: usize, (gpu, position): (usize, &str)) {
        let position = self.position(gpu, position);
        self.pins.push(Pin { model, gpu, position, from: None, by: "ada".to_owned() });
    }

    pub(crate) fn demands(&self) -> Vec<f64> {
        self.models.iter().map(|model| model.demand_rps).collect()
    }

    pub(crate) fn ready(&self) -> Vec<f64> {
        let mut ready = vec![0.0; self.models.len()];
        let slices = self.gpus.iter().flat_map(|gpu| &gpu.slices);
        for one in slices.flat_map(|slice| &slice.replicas) {
            if let (Some(model), State::Ready) = (one.model, one.state) {
                ready[model] += self.serves_rps[&one.id];
            }
        }
        ready
    }

    pub(crate) fn used(&self) -> impl Iterator<Item = usize> {
        let busy = |gpu: &Gpu| gpu.slices.iter().any(|slice| !slice.replicas.is_empty());
        (0..self.gpus.len()).filter(move |gpu| busy(&self.gpus[*gpu]))
    }

    /// Something happens: a demand changes, a GPU fails or is mended, a job borrows or gives back.
    pub(crate) fn change(&mut self, random: &mut Random) {
        match random.below(4) {
            0 => {
                let gpu = random.below(self.gpus.len() as u64) as usize;
                self.gpus[gpu].healthy = !self.gpus[gpu].healthy;
            }
            1 if self.jobs => {
                let gpu = random.below(self.gpus.len() as u64) as usize;
                let free = self.gpus[gpu].slices.iter_mut().find(|slice| slice.replicas.is_empty());
                if let Some(slice) = free {
                    slice.loaned = !slice.loaned;
                }
            }
            2 if random.below(3) == 0 => {
                let model = random.below(self.models.len() as u64) as usize;
                self.models[model].demand_rps = 0.0;
                self.models[model].replicas_min = 0;
            }
            _ => self.change_demand(random, 0.2, 2.5),
        }
    }

    pub(crate) fn change_demand(&mut self, random: &mut Random, least: f64, most: f64) {
        let model = random.below(self.models.len() as u64) as usize;
        let model = &mut self.models[model];
        model.demand_rps = (model.demand_rps * between(random, least, most)).clamp(20.0, 900.0);
    }

    pub(crate) fn converge(&mut self, random: &mut Random, seed: u64) -> u32 {
        for round in 0..400 {
            let decision = place(&self.snapshot(true));
            let slices = self.gpus.iter().flat_map(|gpu| &gpu.slices);
            let mut replicas = slices.flat_map(|slice| &slice.replicas);
            if decision.steps.is_empty() && replicas.all(|one| one.state == State::Ready) {
                return round;
            }
            self.step(random).unwrap();
        }
        panic!("seed {seed}: still not settled: {:#?}", place(&self.snapshot(true)).steps);
    }

    /// Does what is decided, or says what cannot be; time passes.
    pub(crate) fn step(&mut self, random: &mut Random) -> Result<(), String> {
        let consolidate = random.below(5) == 0;
        let decision = place(&self.snapshot(consolidate));
        let steps: Vec<_> = decision.now().cloned().collect();
        self.last = decision.target;
        self.said_no_room = steps.iter().any(|step| step.why.contains("no room for both"));
        for step in &steps {
            match &step.action {
                Action::Cut { gpu, destroy, create } => self.recut(*gpu, destroy, create)?,
                Action::Start { gpu, position, model, capacity_rps, .. } => {
                    self.load((*gpu, *position), *model, *capacity_rps)?;
                }
                Action::Stop { replica } => self.drain(*replica)?,
            }
        }
        for gpu in &self.gpus {
            let positions = gpu.slices.iter().map(|slice| slice.position).collect();
            Geometry::new(gpu.kind, positions).map_err(|error| error.to_string())?;
        }
        self.pass(random);
        self.settle();
        Ok(())
    }

    fn recut(
        &mut self,
        gpu: usize,
        destroy: &[Position],
        create: &[Position],
    ) -> Result<(), String> {
        let on = &mut self.gpus[gpu];
        if !on.cuttable || !on.healthy {
            return Err(format!("gpu {gpu} cannot be cut"));
        }
        for position in destroy {
            let index = on.slices.iter().position(|slice| slice.position == *position);
            let index = index.ok_or_else(|| format!("gpu {gpu} has no {position}"))?;
            let slice = on.slices.remove(index);
            if slice.loaned || !slice.replicas.is_empty() {
                return Err(format!("gpu {gpu}: {position} is in use"));
            }
        }
        for position in create {
            let replicas = Vec::new();
            on.slices.push(Slice { position: *position, loaned: false, doomed: false, replicas });
        }
        Ok(())
    }

    fn load(
        &mut self,
        at: (usize, Position),
        model: usize,
        capacity_rps: f64,
    ) -> Result<(), String> {
        let (gpu, position) = at;
        let slices = &mut self.gpus[gpu].slices;
        let slice = slices.iter_mut().find(|slice| slice.position == position);
        let slice = slice.ok_or_else(|| format!("gpu {gpu} has no {position}"))?;
        let others = slice.replicas.iter();
        if slice.loaned || others.into_iter().any(|one| one.state == State::Draining) {
            return Err(format!("gpu {gpu}: {position} is somebody else's"));
        }
        let id = self.next;
        let state = State::Starting;
        slice.replicas.push(Replica {
            id,
            model: Some(model),
            current: true,
            processes: 1,
            state,
            busy: 0.0,
        });
        self.serves_rps.insert(id, capacity_rps);
        self.next += 1;
        Ok(())
    }

    fn drain(&mut self, replica: u64) -> Result<(), String> {
        let slices = self.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices);
        let mut replicas = slices.flat_map(|slice| &mut slice.replicas);
        let one = replicas.find(|one| one.id == replica);
        let one = one.ok_or_else(|| format!("no replica {replica}"))?;
        self.cancelled += u32::from(one.state == State::Starting);
        one.state = State::Draining;
        Ok(())
    }

    /// Some that start are ready, some that drain are gone, all are somewhat busy.
    fn pass(&mut self, random: &mut Random) {
        for slice in self.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices) {
            slice.replicas.retain(|one| one.state != State::Draining || random.below(2) == 0);
            for one in &mut slice.replicas {
                if one.state == State::Starting && random.below(2) == 0 {
                    one.state = State::Ready;
                }
                one.busy = between(random, 0.0, 1.0);
            }
        }
    }

    /// Where a slice has just those that are wanted there, each serves what it was to.
    fn settle(&mut self) {
        for (gpu, on) in self.gpus.iter().enumerate() {
            for slice in &on.slices {
                let here = |one: &&Placed| one.gpu == gpu && one.position == slice.position;
                let wanted: Vec<&Placed> = self.last.placed.iter().filter(here).collect();
                let same = |one: &Replica| {
                    let found = wanted.iter().find(|placed| Some(placed.model) == one.model);
                    found.map(|placed| (one.id, placed.capacity_rps))
                };
                let settled: Option<Vec<(u64, f64)>> = slice.replicas.iter().map(same).collect();
                if let Some(settled) = settled.filter(|some| some.len() == wanted.len()) {
                    self.serves_rps.extend(settled);
                }
            }
        }
    }
}
