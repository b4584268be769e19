//! What rounds have learned, written now and then, and taken up by the next process.

use std::{sync::Arc, time::Duration};

use config::{Config, Engine};
use policy::{
    demand::{Day, Habit},
    interference::Corrected,
    moment::Moment,
    round::{self, KeptDemand, KeptSpeeds, PlaceMemory},
};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    clock::whole_ms,
    control::Control,
    learned::{Asked, Beside, Learned, Memory, OfModel, Warmups},
};

const EVERY: Duration = Duration::from_secs(30);
/// The same of a new warm-up, which is soon written since it is seldom and dear.
const SOON: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct LearnedWriter {
    written_at: Moment,
    lessons: u64,
    writing: Option<JoinHandle<bool>>,
    /// Whether the last write failed, which was logged.
    failed: bool,
}

impl LearnedWriter {
    pub(super) fn new(now: Moment) -> Self {
        Self { written_at: now, lessons: 0, writing: None, failed: false }
    }

    /// What the first round begins with. Waits for the disk at most as long as a write takes.
    pub(super) async fn recall(&self, control: &Control) -> round::Memory {
        let now = control.clock().now();
        let mut memory = round::Memory::new(now, control.jobs().accounts());
        let learned = Arc::clone(control.learned());
        if let Ok(kept) = spawn_blocking(move || learned.recall()).await {
            recall(&mut memory.place, &kept, &control.config(), now);
        }
        memory
    }

    /// Stores what rounds have learned now, and returns when it is.
    pub(super) async fn flush(&mut self, control: &Control, memory: &round::Memory) {
        if let Some(writing) = self.writing.take() {
            let _ = writing.await;
        }
        self.written_at = control.clock().now();
        let memory = kept(&memory.place, &control.config(), self.written_at);
        let (learned, failed) = (Arc::clone(control.learned()), self.failed);
        let written = spawn_blocking(move || write(&learned, &memory, failed)).await;
        self.failed = !written.unwrap_or(false);
    }

    /// Writes what rounds have learned, if it is time, while they go on.
    pub(super) async fn write(&mut self, control: &Control, memory: &round::Memory) {
        if let Some(written) = self.writing.take_if(|writing| writing.is_finished()) {
            self.failed = !written.await.unwrap_or(false);
        }
        let (now, lessons) = (control.clock().now(), memory.place.lessons());
        let wait = match lessons == self.lessons {
            false => SOON,
            true if self.failed => AGAIN,
            true => EVERY,
        };
        let due = now.since(self.written_at) >= wait;
        if !due || self.writing.is_some() || !control.learned().is_kept() {
            return;
        }
        (self.written_at, self.lessons) = (now, lessons);
        let memory = kept(&memory.place, &control.config(), now);
        let (learned, failed) = (Arc::clone(control.learned()), self.failed);
        self.writing = Some(spawn_blocking(move || write(&learned, &memory, failed)));
    }
}

/// Whether it could be written; if not, that is logged, unless it `failed` before.
fn write(learned: &Learned, memory: &Memory, failed: bool) -> bool {
    let kept = learned.keep(memory);
    match &kept {
        Err(error) if !failed => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(%error, cause, "failed to persist what was learned; retrying");
        }
        Ok(()) if failed => tracing::info!("what was learned is persisted again"),
        Ok(()) | Err(_) => {}
    }
    kept.is_ok()
}

fn wall_ms(now: Moment) -> u64 {
    now.micros() / 1000
}

fn day(now: Moment) -> Day {
    Day { now, of_day: Duration::from_millis(wall_ms(now) % 86_400_000) }
}

fn kept(place: &PlaceMemory, config: &Config, now: Moment) -> Memory {
    let corrections = place.corrections(now);
    let name = |index: u32| Some(config.models.get(index as usize)?.name.clone());
    let beside = |one: &Corrected| {
        let others = one.others.as_ref().map(|others| {
            others.iter().map(|(model, compute)| Some((name(*model)?, *compute))).collect()
        });
        let others: Option<Vec<_>> = others.map_or(Some(None), |all: Option<_>| all.map(Some))?;
        let factor = (one.factor * 100.0).round() / 100.0;
        Some(Beside { compute: one.compute, others, factor, seen: one.seen })
    };
    let of_model = |(index, model): (usize, &config::Model)| {
        let mine = corrections.iter().filter(|one| one.model as usize == index);
        let known = OfModel {
            source: source(model),
            warmups: place.kept_speeds(&model.name).into_iter().map(warmups).collect(),
            demand: asked(place.kept_demand(&model.name, day(now))),
            beside: mine.filter_map(beside).collect(),
        };
        (model.name.clone(), known)
    };
    let models = config.models.iter().enumerate().map(of_model).collect();
    Memory { at_ms: wall_ms(now), models }
}

fn recall(place: &mut PlaceMemory, memory: &Memory, config: &Config, now: Moment) {
    let away = Duration::from_millis(wall_ms(now).saturating_sub(memory.at_ms));
    let index = |name: &str| {
        let found = config.models.iter().position(|model| model.name == name)?;
        u32::try_from(found).ok()
    };
    let mut corrections = Vec::new();
    for model in &config.models {
        let Some(known) = memory.models.get(&model.name) else { continue };
        place.recall_demand(&model.name, kept_demand(&known.demand), away, day(now));
        if known.source != source(model) {
            continue;
        }
        let speeds: Vec<KeptSpeeds> = known.warmups.iter().cloned().map(speeds).collect();
        place.recall_speeds(&model.name, &speeds);
        corrections.extend(known.beside.iter().filter_map(|one| {
            let others = match &one.others {
                Some(others) => Some(
                    others
                        .iter()
                        .map(|(name, compute)| Some((index(name)?, *compute)))
                        .collect::<Option<Vec<_>>>()?,
                ),
                None => None,
            };
            let (compute, factor, seen) = (one.compute, one.factor, one.seen);
            Some(Corrected { model: index(&model.name)?, compute, others, factor, seen })
        }));
    }
    place.recall_corrections(&corrections, away, now);
}

fn warmups(kept: KeptSpeeds) -> Warmups {
    Warmups { kind: kept.kind, profiles: kept.profiles }
}

fn speeds(kept: Warmups) -> KeptSpeeds {
    KeptSpeeds { kind: kept.kind, profiles: kept.profiles }
}

/// What of a model's demand is written, in hundredths.
fn asked(kept: KeptDemand) -> Asked {
    let KeptDemand { habit: Habit { minutes, usual }, load_time } = kept;
    let hundredths = |rate: f64| (rate * 100.0).round() / 100.0;
    let is_known = usual.iter().any(Option::is_some);
    Asked {
        minutes: minutes.into_iter().map(hundredths).collect(),
        usual: if is_known {
            usual.into_iter().map(|rate| rate.map(hundredths)).collect()
        } else {
            Vec::new()
        },
        load_ms: load_time.map(whole_ms),
    }
}

fn kept_demand(asked: &Asked) -> KeptDemand {
    let habit = Habit { minutes: asked.minutes.clone(), usual: asked.usual.clone() };
    KeptDemand { habit, load_time: asked.load_ms.map(Duration::from_millis) }
}

/// What runs under a model's name, without anything secret.
fn source(model: &config::Model) -> String {
    let engine = model.engine.name();
    match &model.engine {
        Engine::Onnx { path } => format!("{engine} {} {}", model.version, path.display()),
        Engine::Server(server) => {
            format!("{engine} {} {}", model.version, server.directory.display())
        }
        Engine::Synthetic { .. } => format!("{engine} {}", model.version),
    }
}

#[cfg(test)]
mod tests;
