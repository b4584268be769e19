//! From a study to a fleet: where replicas are, by the rule the study names.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use loadtest::plan::Source;
use mig::Geometry;
use policy::{
    dispatch::Settings,
    interference::Draw,
    plan::{self, PlanError, Problem, Rules, baselines::Planner},
};
use simgpu::{SimError, random::Random};

use crate::{
    balance::{NoRoom, Slice, Want, balance},
    fleet::{Fault, SimFleet, SimModel, SimReplica, Stream, Times, Trouble},
    start::{Placed, Start},
    study::{Placement, Study, Subject},
};

/// Sampled points of a rate over time, for its mean.
const SAMPLES: u32 = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("a replica of {model:?} needs {needs_mib} MiB; no slice has more than {free_mib} left")]
    NoRoom { model: String, needs_mib: u64, free_mib: u64 },
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// Where one process of a model goes.
struct PlacedProcess {
    model: usize,
    gpu: usize,
    slice: usize,
    process: usize,
}

pub fn fleet(study: &Study, seed: u64) -> Result<SimFleet, PlaceError> {
    let (gpus, placed) = match (&study.start, study.placement) {
        (Some(start), _) => recorded(study, start),
        (None, Placement::Spread) => spread_out(study)?,
        (None, Placement::Follow) => (geometries(study), Vec::new()),
        (None, Placement::Planned(planner)) => planned(study, planner)?,
    };
    let replicas = replicas(study, &gpus, &placed)?;
    let mut terms = study.terms;
    terms.seed = seed;
    let (streams, weights) = streams(study);
    let mut faults = study.faults.clone();
    faults.extend(drawn(study, gpus.len(), seed));
    let model = |(subject, weights): (&Subject, Vec<f64>)| SimModel {
        name: subject.name.clone(),
        settings: Settings::routed(subject.slo, subject.max_batch),
        timeout: subject.timeout,
        target: subject.target,
        batching: subject.batching,
        memory_mib: subject.memory_mib.unwrap_or(1),
        weights,
        load: subject.load.unwrap_or(simgpu::Load::INFERENCE),
    };
    let models = study.models.iter().zip(weights).map(model).collect();
    Ok(SimFleet { models, gpus, replicas, streams, faults, terms })
}

fn recorded(study: &Study, start: &Start) -> (Vec<Geometry>, Vec<PlacedProcess>) {
    let one = |placed: &Placed| {
        let model = study.models.iter().position(|model| model.name == placed.model)?;
        Some(PlacedProcess { model, gpu: placed.gpu, slice: placed.slice, process: placed.process })
    };
    (start.gpus.clone(), start.replicas.iter().filter_map(one).collect())
}

fn geometries(study: &Study) -> Vec<Geometry> {
    let each = study.gpus.iter();
    each.flat_map(|gpus| std::iter::repeat_n(gpus.geometry.clone(), gpus.count as usize)).collect()
}

fn spread_out(study: &Study) -> Result<(Vec<Geometry>, Vec<PlacedProcess>), PlaceError> {
    let gpus = geometries(study);
    let mut places = Vec::new();
    let mut slices = Vec::new();
    for (gpu, geometry) in gpus.iter().enumerate() {
        for (slice, position) in geometry.positions().iter().enumerate() {
            places.push((gpu, slice));
            slices.push(Slice { free_mib: simgpu::total_mib(*position), replicas: 0 });
        }
    }
    let want = |subject: &Subject| Want {
        memory_mib: subject.memory_mib.unwrap_or(1),
        replicas: subject.replicas,
    };
    let wants: Vec<Want> = study.models.iter().map(want).collect();
    let chosen = balance(&slices, &wants);
    let models = study.models.iter().enumerate();
    let models =
        models.flat_map(|(index, subject)| std::iter::repeat_n(index, subject.replicas as usize));
    let one = |(model, place): (usize, Result<usize, NoRoom>)| match place {
        Ok(place) => {
            let (gpu, slice) = places[place];
            Ok(PlacedProcess { model, gpu, slice, process: 0 })
        }
        Err(none) => Err(PlaceError::NoRoom {
            model: study.models[model].name.clone(),
            needs_mib: none.needs_mib,
            free_mib: none.most_free_mib,
        }),
    };
    let mut placed = models.zip(chosen).map(one).collect::<Result<Vec<PlacedProcess>, _>>()?;
    // Several of one model on a slice are processes; different models share one.
    let mut processes: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
    for one in &mut placed {
        let next = processes.entry((one.model, one.gpu, one.slice)).or_default();
        one.process = *next;
        *next += 1;
    }
    Ok((gpus, placed))
}

fn planned(
    study: &Study,
    planner: Planner,
) -> Result<(Vec<Geometry>, Vec<PlacedProcess>), PlaceError> {
    let asked = asked_rps(study);
    let demand = |(index, subject): (usize, &Subject)| subject.demand_rps.unwrap_or(asked[index]);
    let demands: Vec<f64> = study.models.iter().enumerate().map(demand).collect();
    let problem = problem(study, &demands);
    let plan = planner.plan(&problem)?;
    let kinds =
        study.gpus.iter().flat_map(|gpus| std::iter::repeat_n(gpus.kind, gpus.count as usize));
    let mut positions: Vec<_> = kinds.map(|kind| (kind, Vec::new())).collect();
    let mut placed = Vec::new();
    for slice in &plan.slices {
        let place = positions[slice.gpu].1.len();
        positions[slice.gpu].1.push(slice.position);
        for replica in &slice.replicas {
            for process in 0..replica.processes as usize {
                placed.push(PlacedProcess {
                    model: replica.model,
                    gpu: slice.gpu,
                    slice: place,
                    process,
                });
            }
        }
    }
    let gpus = positions
        .into_iter()
        .map(|(kind, positions)| Geometry::new(kind, positions))
        .collect::<Result<Vec<_>, _>>()
        .map_err(SimError::from)?;
    Ok((gpus, placed))
}

pub(crate) fn problem(study: &Study, demands: &[f64]) -> Problem {
    let model = |(index, subject): (usize, &Subject)| plan::Model {
        name: subject.name.clone(),
        demand_rps: demands[index],
        slo_ms: subject.slo.as_secs_f64() * 1e3,
        measured: vec![plan::Measured { kind: None, rows: plan_rows(subject) }],
        max_batch: Some(subject.max_batch),
        memory_mib: subject.memory_mib,
        replicas_min: 1,
        replicas_max: u32::MAX,
        load: subject.load.map_or_else(Draw::default, |load| Draw {
            power: load.power,
            bandwidth: load.tlb,
            pcie: load.pcie,
        }),
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    };
    Problem {
        models: study.models.iter().enumerate().map(model).collect(),
        fleet: study
            .gpus
            .iter()
            .map(|gpus| plan::Gpus { kind: gpus.kind, count: gpus.count })
            .collect(),
        rules: Rules { share_slices: study.share_slices, ..Rules::default() },
    }
}

fn plan_rows(subject: &Subject) -> Vec<plan::Row> {
    let row = |row: &mig::measured::Row| plan::Row {
        profile: row.profile.clone(),
        batch: row.batch,
        processes: row.processes,
        throughput_rps: row.throughput_rps,
    };
    subject.rows.iter().map(row).collect()
}

fn replicas(
    study: &Study,
    gpus: &[Geometry],
    placed: &[PlacedProcess],
) -> Result<Vec<SimReplica>, PlaceError> {
    let mut sharing: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    for one in placed {
        let processes = sharing.entry((one.gpu, one.slice)).or_default();
        *processes = (*processes).max(one.process as u32 + 1);
    }
    let mut tables: BTreeMap<(usize, &str, &str, u32), Arc<Times>> = BTreeMap::new();
    let mut replicas = Vec::with_capacity(placed.len());
    for one in placed {
        let subject = &study.models[one.model];
        let kind = gpus[one.gpu].kind();
        let profile = gpus[one.gpu].positions()[one.slice].profile();
        let busy = sharing[&(one.gpu, one.slice)];
        let key = (one.model, kind.name.as_str(), profile.name.as_str(), busy);
        let times = match tables.get(&key) {
            Some(known) => Arc::clone(known),
            None => {
                let speed = subject.measured.on(kind, &profile.name)?;
                let times = Arc::new(Times::of_speed(&speed, subject.max_batch, busy)?);
                tables.insert(key, Arc::clone(&times));
                times
            }
        };
        let PlacedProcess { model, gpu, slice, process } = *one;
        replicas.push(SimReplica { model, gpu, slice, process, times });
    }
    Ok(replicas)
}

/// The streams, and each model's tenants' weights.
fn streams(study: &Study) -> (Vec<Stream>, Vec<Vec<f64>>) {
    let mut tenants: Vec<Vec<&str>> = vec![Vec::new(); study.models.len()];
    let mut weights: Vec<Vec<f64>> = vec![Vec::new(); study.models.len()];
    let mut streams = Vec::with_capacity(study.streams.len());
    for asking in &study.streams {
        let known = &mut tenants[asking.model];
        let tenant = known.iter().position(|name| *name == asking.tenant).unwrap_or_else(|| {
            known.push(&asking.tenant);
            weights[asking.model].push(asking.weight);
            known.len() - 1
        });
        streams.push(Stream {
            model: asking.model,
            source: asking.source.clone(),
            tenant: tenant as u32,
            class: asking.class,
            shapes: asking.shapes,
        });
    }
    (streams, weights)
}

pub(crate) fn asked_rps(study: &Study) -> Vec<f64> {
    let seconds = study.terms.duration.as_secs_f64();
    let mut rates = vec![0.0; study.models.len()];
    for stream in &study.streams {
        rates[stream.model] += match &stream.source {
            Source::List(list) => {
                let within = list.partition_point(|at| *at < study.terms.duration);
                within as f64 / seconds
            }
            Source::Process(process) => {
                let at = |sample: u32| (f64::from(sample) + 0.5) * seconds / f64::from(SAMPLES);
                let sum: f64 = (0..SAMPLES).map(|one| process.shape.factor(at(one))).sum();
                process.rate_rps * sum / f64::from(SAMPLES)
            }
        };
    }
    rates
}

fn drawn(study: &Study, gpus: usize, seed: u64) -> Vec<Fault> {
    let mut random = Random::new(seed ^ 0x6661_756c_7473);
    let total = study.terms.duration.as_secs_f64();
    let mut one = || {
        let gpu = random.below(gpus.max(1) as u64) as usize;
        let by = Duration::from_secs_f64(0.05 * random.unit());
        let trouble = match random.below(6) {
            0 => Trouble::DeadGpu { gpu },
            1 => Trouble::SlowGpu { gpu, factor: 1.0 + 3.0 * random.unit() },
            2 => Trouble::LostWorker { gpu },
            3 => Trouble::SlowNetwork { by },
            4 => Trouble::StaleReports { by: 100 * by },
            _ => Trouble::RouterRestart,
        };
        let at = Duration::from_secs_f64(total * random.unit());
        let lasts = Duration::from_secs_f64(total * 0.2 * random.unit());
        Fault { at, lasts, trouble }
    };
    (0..study.random_faults).map(|_| one()).collect()
}
