//! What the loop has learned, written down now and then, and taken up by the next process.

use std::{sync::Arc, time::Duration};

use config::{Config, Engine};
use policy::{demand::Day, interference::Corrected, moment::Moment};
use tokio::task::{JoinHandle, spawn_blocking};

use super::Placer;
use crate::{
    control::Control,
    learned::{Beside, Learned, Memory, OfModel},
};

/// How often what changed is written.
const EVERY: Duration = Duration::from_secs(30);
/// The same of a new warm-up, which is soon written since it is seldom and dear.
const SOON: Duration = Duration::from_secs(1);
/// The same of what could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// When it was written last.
#[derive(Debug, Default)]
pub(super) struct Notebook {
    written_at: Moment,
    /// How many lessons there were then.
    lessons: u64,
    writing: Option<JoinHandle<bool>>,
    /// Whether the last write failed, which was told.
    failed: bool,
}

impl Notebook {
    /// Begins with what was kept. Waits for the disk at most as long as a write takes.
    pub(super) async fn recall(&self, control: &Control, placer: &mut Placer) {
        let learned = Arc::clone(control.learned());
        let Ok(memory) = spawn_blocking(move || learned.recall()).await else { return };
        placer.recall(&memory, &control.config(), Clocks::of(control));
    }

    /// Writes down what `placer` knows, if it is time, while the loop goes on.
    pub(super) async fn note(&mut self, control: &Control, placer: &Placer) {
        if let Some(written) = self.writing.take_if(|writing| writing.is_finished()) {
            self.failed = !written.await.unwrap_or(false);
        }
        let (now, lessons) = (control.clock().now(), placer.lessons.count());
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
        let memory = placer.memory(&control.config(), Clocks::of(control));
        let (learned, failed) = (Arc::clone(control.learned()), self.failed);
        self.writing = Some(spawn_blocking(move || write(&learned, &memory, failed)));
    }
}

/// Whether it could be written; if not, that is said, unless it `failed` before.
fn write(learned: &Learned, memory: &Memory, failed: bool) -> bool {
    let kept = learned.keep(memory);
    match &kept {
        Err(error) if !failed => {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(%error, cause, "what was learned could not be kept; it is tried again");
        }
        Ok(()) if failed => tracing::info!("what was learned is kept again"),
        Ok(()) | Err(_) => {}
    }
    kept.is_ok()
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) now: Moment,
    /// In milliseconds since 1970.
    pub(super) wall_ms: u64,
}

impl Clocks {
    fn of(control: &Control) -> Self {
        Self { now: control.clock().now(), wall_ms: control.clock().now_ms() }
    }

    fn day(self) -> Day {
        Day { now: self.now, of_day: Duration::from_millis(self.wall_ms % 86_400_000) }
    }
}

impl Placer {
    fn memory(&self, config: &Config, clocks: Clocks) -> Memory {
        let corrections = self.neighbours.corrections(clocks.now);
        let name = |index: u32| Some(config.models.get(index as usize)?.name.clone());
        let beside = |one: &Corrected| {
            let others = one.others.as_ref().map(|others| {
                others.iter().map(|(model, compute)| Some((name(*model)?, *compute))).collect()
            });
            let others: Option<Vec<_>> =
                others.map_or(Some(None), |all: Option<_>| all.map(Some))?;
            let factor = (one.factor * 100.0).round() / 100.0;
            Some(Beside { compute: one.compute, others, factor, seen: one.seen })
        };
        let of_model = |(index, model): (usize, &config::Model)| {
            let mine = corrections.iter().filter(|one| one.model as usize == index);
            let known = OfModel {
                source: source(model),
                warmups: self.lessons.kept(&model.name),
                demand: self.demands.kept(&model.name, clocks.day()),
                beside: mine.filter_map(beside).collect(),
            };
            (model.name.clone(), known)
        };
        let models = config.models.iter().enumerate().map(of_model).collect();
        Memory { at_ms: clocks.wall_ms, models }
    }

    fn recall(&mut self, memory: &Memory, config: &Config, clocks: Clocks) {
        let away = Duration::from_millis(clocks.wall_ms.saturating_sub(memory.at_ms));
        let index = |name: &str| {
            let found = config.models.iter().position(|model| model.name == name)?;
            u32::try_from(found).ok()
        };
        let mut corrections = Vec::new();
        for model in &config.models {
            let Some(known) = memory.models.get(&model.name) else { continue };
            self.demands.recall(&model.name, &known.demand, (away, clocks.day()));
            if known.source != source(model) {
                continue;
            }
            self.lessons.recall(&model.name, &known.warmups);
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
        self.neighbours.recall(&corrections, away, clocks.now);
    }
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
