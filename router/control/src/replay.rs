//! The whole input of a placement decision as JSON: what a live router decided from, kept to be
//! decided again elsewhere.

mod pin;
mod target;

use policy::{
    fleet::Home,
    interference::{Draw, Gains},
    place::{Gpu, Replica, Slice, Snapshot, State},
    plan::{Measured, Model, Row, Rules},
};
use serde::{Deserialize, Serialize};

use self::{pin::PinView, target::TargetView};

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("not a dump of a router's placement")]
    Json(#[from] serde_json::Error),
    #[error("GPU {gpu} of the dump cannot be")]
    Gpu {
        gpu: usize,
        #[source]
        source: mig::MigError,
    },
    /// It places something on a GPU that is not there.
    #[error("something is placed on GPU {gpu}, and there are only {gpus}")]
    NoGpu { gpu: usize, gpus: usize },
    /// A pin is of a model that is not there.
    #[error("a pin is of model {model}, and there are only {models}")]
    Pin { model: usize, models: usize },
    /// A replica is of a model that is not there.
    #[error("replica {replica} is of model {model}, and there are only {models}")]
    Model { replica: u64, model: usize, models: usize },
}

pub fn dump(snapshot: &Snapshot) -> String {
    let view = SnapshotView {
        models: snapshot.models.iter().map(ModelView::from).collect(),
        gpus: snapshot.gpus.iter().map(GpuView::from).collect(),
        rules: RulesView::from(&snapshot.rules),
        pins: snapshot.pins.iter().map(PinView::from).collect(),
        consolidate: snapshot.consolidate,
        last: TargetView::from(&snapshot.last),
    };
    serde_json::to_string(&view).expect("strings, numbers and lists have a JSON form") + "\n"
}

pub fn load(text: &str) -> Result<Snapshot, ReplayError> {
    let SnapshotView { models, gpus: views, rules, pins, consolidate, last } =
        serde_json::from_str(text)?;
    let models: Vec<Model> = models.into_iter().map(Model::from).collect();
    let mut gpus = Vec::new();
    for (index, gpu) in views.into_iter().enumerate() {
        let gpu = gpu.read().map_err(|source| ReplayError::Gpu { gpu: index, source })?;
        for one in gpu.slices.iter().flat_map(|slice| &slice.replicas) {
            if let Some(model) = one.model.filter(|model| *model >= models.len()) {
                let models = models.len();
                return Err(ReplayError::Model { replica: one.id, model, models });
            }
        }
        gpus.push(gpu);
    }
    let last = last.read(&gpus)?;
    let read = |pin: PinView| pin.read(&gpus, models.len());
    let pins = pins.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(Snapshot { models, gpus, rules: rules.into(), pins, consolidate, last })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotView {
    models: Vec<ModelView>,
    gpus: Vec<GpuView>,
    rules: RulesView,
    pins: Vec<PinView>,
    consolidate: bool,
    last: TargetView,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelView {
    name: String,
    demand_rps: f64,
    slo_ms: f64,
    measured: Vec<MeasuredView>,
    max_batch: Option<u32>,
    memory_mib: Option<u64>,
    replicas_min: u32,
    replicas_max: u32,
    draws: LoadView,
    #[serde(default)]
    home: Home,
    slowdown: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredView {
    kind: Option<String>,
    /// Profile, batch, processes and requests per second.
    rows: Vec<(String, u32, u32, f64)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadView {
    power: f64,
    bandwidth: f64,
    pcie: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GpuView {
    kind: String,
    healthy: bool,
    cuttable: bool,
    slices: Vec<SliceView>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SliceView {
    position: String,
    loaned: bool,
    doomed: bool,
    replicas: Vec<ReplicaView>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplicaView {
    id: u64,
    model: Option<usize>,
    current: bool,
    processes: u32,
    state: StateView,
    busy: f64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StateView {
    Starting,
    Ready,
    Draining,
    Failed,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesView {
    latency_share: f64,
    max_processes: u32,
    share_slices: bool,
    gain_power: f64,
    gain_pcie: f64,
    gain_tlb: f64,
    spare_gpus: u32,
    work: u64,
}

impl From<&Model> for ModelView {
    fn from(model: &Model) -> Self {
        let Draw { power, bandwidth, pcie } = model.load;
        let measured = model.measured.iter().map(|measured| MeasuredView {
            kind: measured.kind.clone(),
            rows: measured
                .rows
                .iter()
                .map(|row| (row.profile.clone(), row.batch, row.processes, row.throughput_rps))
                .collect(),
        });
        Self {
            name: model.name.clone(),
            demand_rps: model.demand_rps,
            slo_ms: model.slo_ms,
            measured: measured.collect(),
            max_batch: model.max_batch,
            memory_mib: model.memory_mib,
            replicas_min: model.replicas_min,
            replicas_max: model.replicas_max,
            draws: LoadView { power, bandwidth, pcie },
            home: model.home,
            slowdown: model.slowdown,
        }
    }
}

impl From<ModelView> for Model {
    fn from(view: ModelView) -> Self {
        let LoadView { power, bandwidth, pcie } = view.draws;
        let measured = view.measured.into_iter().map(|measured| Measured {
            kind: measured.kind,
            rows: measured
                .rows
                .into_iter()
                .map(|(profile, batch, processes, throughput_rps)| Row {
                    profile,
                    batch,
                    processes,
                    throughput_rps,
                })
                .collect(),
        });
        Self {
            name: view.name,
            demand_rps: view.demand_rps,
            slo_ms: view.slo_ms,
            measured: measured.collect(),
            max_batch: view.max_batch,
            memory_mib: view.memory_mib,
            replicas_min: view.replicas_min,
            replicas_max: view.replicas_max,
            load: Draw { power, bandwidth, pcie },
            home: view.home,
            slowdown: view.slowdown,
        }
    }
}

impl From<&Gpu> for GpuView {
    fn from(gpu: &Gpu) -> Self {
        let replica = |one: &Replica| ReplicaView {
            id: one.id,
            model: one.model,
            current: one.current,
            processes: one.processes,
            state: one.state.into(),
            busy: one.busy,
        };
        let slice = |slice: &Slice| SliceView {
            position: slice.position.to_string(),
            loaned: slice.loaned,
            doomed: slice.doomed,
            replicas: slice.replicas.iter().map(replica).collect(),
        };
        Self {
            kind: gpu.kind.name.clone(),
            healthy: gpu.healthy,
            cuttable: gpu.cuttable,
            slices: gpu.slices.iter().map(slice).collect(),
        }
    }
}

impl GpuView {
    fn read(self) -> Result<Gpu, mig::MigError> {
        let kind = mig::device(&self.kind)?;
        let mut slices = Vec::new();
        for slice in self.slices {
            let position = kind.position(&slice.position)?;
            let replicas = slice.replicas.into_iter().map(|one| Replica {
                id: one.id,
                model: one.model,
                current: one.current,
                processes: one.processes,
                state: one.state.into(),
                busy: one.busy,
            });
            let SliceView { loaned, doomed, .. } = slice;
            slices.push(Slice { position, loaned, doomed, replicas: replicas.collect() });
        }
        let stays = slices.iter().filter(|slice| !slice.doomed).map(|slice| slice.position);
        mig::Geometry::new(kind, stays.collect())?;
        Ok(Gpu { kind, healthy: self.healthy, cuttable: self.cuttable, slices })
    }
}

impl From<State> for StateView {
    fn from(state: State) -> Self {
        match state {
            State::Starting => Self::Starting,
            State::Ready => Self::Ready,
            State::Draining => Self::Draining,
            State::Failed => Self::Failed,
        }
    }
}

impl From<StateView> for State {
    fn from(view: StateView) -> Self {
        match view {
            StateView::Starting => Self::Starting,
            StateView::Ready => Self::Ready,
            StateView::Draining => Self::Draining,
            StateView::Failed => Self::Failed,
        }
    }
}

impl From<&Rules> for RulesView {
    fn from(rules: &Rules) -> Self {
        let Rules { latency_share, max_processes, share_slices, gains, spare_gpus, work } = *rules;
        let Gains { power, pcie, tlb } = gains;
        let (gain_power, gain_pcie, gain_tlb) = (power, pcie, tlb);
        Self {
            latency_share,
            max_processes,
            share_slices,
            gain_power,
            gain_pcie,
            gain_tlb,
            spare_gpus,
            work,
        }
    }
}

impl From<RulesView> for Rules {
    fn from(view: RulesView) -> Self {
        Self {
            latency_share: view.latency_share,
            max_processes: view.max_processes,
            share_slices: view.share_slices,
            gains: Gains { power: view.gain_power, pcie: view.gain_pcie, tlb: view.gain_tlb },
            spare_gpus: view.spare_gpus,
            work: view.work,
        }
    }
}

#[cfg(test)]
mod tests;
