//! The state of a large fleet, every series of which has moved: 200 models on 500 slices.

use std::time::Duration;

use policy::dispatch::ClosedBy;
use router::{
    leader::LeadState,
    metrics,
    plan::{Moved, PlanState, PlannedModel},
    state::{
        ConfigState, GpuState, JobsState, LaneState, Memory, ModelState, Presence, ReplicaPhase,
        ReplicaState, Replicas, SliceState, State, WorkerState,
    },
};
use serve::{
    count::{ModelMetrics, Outcome, Reason, latency::LatencyView, recent::RecentView},
    dispatch::{Limit, SetBy, View},
    trace::{Build, SpanTotals},
};

const MODELS: usize = 200;
const SLICES: usize = 500;

/// A state and the counts behind it.
pub(crate) struct Fleet {
    state: State,
    counted: Vec<ModelMetrics>,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let slices: Vec<SliceState> = (0..SLICES).map(slice).collect();
        let counted: Vec<ModelMetrics> = (0..MODELS).map(|index| moved(&name(index))).collect();
        let gpu = |(index, slices): (usize, &[SliceState])| GpuState {
            gpu: format!("gpu{index}"),
            kind: Some("A100-80GB".to_owned()),
            memory_slices: 8,
            memory: Some(Memory { total_bytes: 80 << 30, used_bytes: 40 << 30 }),
            power_w: Some(312.5),
            temperature_c: Some(61),
            ecc: Some((3, 0)),
            slices: slices.to_vec(),
            ..GpuState::default()
        };
        let worker = WorkerState {
            name: "local".to_owned(),
            state: Presence::Connected,
            silent_s: 0.2,
            leaving: false,
            drain: None,
            generation: Some(3),
            desired_generation: Some(3),
            gpus: slices.chunks(7).enumerate().map(gpu).collect(),
        };
        let models = (0..MODELS).map(|index| model(index, &counted[index], &slices)).collect();
        let state = State {
            build: Build { version: "1.2.3".to_owned(), revision: "0123456789".to_owned() },
            uptime_s: 1e6,
            lead: LeadState::default(),
            ready: true,
            problems: Vec::new(),
            draining: false,
            config: ConfigState { generation: 9, last_reload_successful: true, loaded_at_s: 2e9 },
            models,
            workers: vec![worker],
            plan: plan(),
            pins: Vec::new(),
            jobs: JobsState::default(),
            tenants: Vec::new(),
            spans: SpanTotals { exported: 1, dropped: 2 },
            log: router::state::LogState::default(),
        };
        Self { state, counted }
    }

    pub(crate) fn page(&self) -> String {
        let counted: Vec<&ModelMetrics> = self.counted.iter().collect();
        metrics::write(&self.state, &counted)
    }
}

fn plan() -> PlanState {
    let model = |index: usize| PlannedModel {
        model: name(index),
        demand_rps: 123.4,
        floor_rps: 100.5,
        why: "rate".to_owned(),
        capacity_rps: Some(234.5),
        slices_rps: Some(345.6),
        limit: Some("router".to_owned()),
    };
    PlanState {
        gpus_used: SLICES / 7,
        models: (0..MODELS).map(model).collect(),
        moved: Moved { start: 9, stop: 8, cut: 7 },
        ..PlanState::default()
    }
}

/// Two replicas of different models on each slice.
fn slice(index: usize) -> SliceState {
    let replica = |place: usize| ReplicaState {
        replica: (index * 2 + place) as u32,
        model: name((index * 2 + place) % MODELS),
        version: "1".to_owned(),
        lane: place as u32,
        state: ReplicaPhase::Ready,
        reason: None,
        memory_bytes: Some(1 << 30),
        runtime: None,
        load_ms: Some(1_000.0),
    };
    SliceState {
        slice: format!("gpu{}:1g@{}", index / 7, index % 7),
        profile: "1g.10gb".to_owned(),
        start: (index % 7) as u8,
        memory_slices: 1,
        position: format!("1g.10gb@{}", index % 7),
        uuid: Some(format!("MIG-{index:08x}-8f8e-4d4b-a0b5-0d8f2b2f6c11")),
        memory_bytes: Some(10 << 30),
        lanes: vec![LaneState { lane: 0, pid: Some(1_000), restarts: 3, busy_s: 1_234.567_891 }],
        replicas: vec![replica(0), replica(1)],
        rank: None,
        job: None,
    }
}

fn name(index: usize) -> String {
    format!("some-model-of-a-team-{index}")
}

fn model(index: usize, counted: &ModelMetrics, slices: &[SliceState]) -> ModelState {
    let name = name(index);
    let on = slices.iter().filter(|slice| slice.replicas.iter().any(|own| own.model == name));
    let limit = |slice: &SliceState| Limit {
        slowdown: 1.02,
        replica: slice.replicas[0].replica,
        slice: slice.slice.clone(),
        rows: 32,
        set_by: SetBy::Aimd,
    };
    let limits: Vec<Limit> = on.map(limit).collect();
    ModelState {
        version: "1".to_owned(),
        content: None,
        availability: "ready".to_owned(),
        reason: None,
        slo_ms: 50.0,
        slo_target: 0.99,
        max_batch: 64,
        batching: "slo".to_owned(),
        recent: RecentView {
            judged_s: 300.0,
            attainment: Some(0.995),
            rated_s: 10.0,
            served_rps: 100.0,
            refused_rps: 1.0,
            abandoned_rps: 0.0,
            failed_rps: 0.0,
        },
        latency: LatencyView::default(),
        totals: counted.totals(),
        replicas: Replicas { ready: limits.len() as u32, ..Replicas::default() },
        dispatch: View { waiting: 7, oldest_age_ms: 12.5, in_flight: 40, rate_rps: 101.0, limits },
        cache: None,
        name,
    }
}

/// Counts in every cell a model's histograms usually have, and of every label.
fn moved(model: &str) -> ModelMetrics {
    let metrics = ModelMetrics::new(model);
    let batches = metrics.batch_time("1g.10gb");
    for step in 0..2_000_u32 {
        let took = Duration::from_micros(500).mul_f64(1.005_f64.powi(step as i32));
        metrics.dispatched(took / 2);
        metrics.ended(Outcome::Served { took, in_time: step < 1_000 });
        metrics.sent(step % 64 + 1, ClosedBy::Full);
        batches.record(took.as_secs_f64() / 3.0);
    }
    for reason in [Reason::Overloaded, Reason::TooLate, Reason::NoReplica] {
        metrics.ended(Outcome::Refused(reason));
    }
    metrics
}
