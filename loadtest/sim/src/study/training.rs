//! Training beside inference, as the scenario has it.

use std::time::Duration;

use policy::loan::{Loaning, Rules, order};
use toml::Spanned;

use super::{draft, read::Reader};
use crate::{
    jobs::{self, TraceJob},
    training::Habits,
};

const KNOWING: [&str; 4] = ["backfill", "srtf", "ftf", "deadline"];
const TENANTS: [(&str, bool); 2] = [("even", true), ("free", false)];
const MOST_GPUS: u32 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Training {
    pub jobs: Vec<TraceJob>,
    /// GPUs beside those of inference.
    pub gpus: u32,
    pub order: &'static str,
    /// Whether the tenant that had least goes first, before the order.
    pub tenants_even: bool,
    pub loans: Loaning,
    pub habits: Habits,
}

impl Training {
    pub fn rules(&self) -> Rules {
        let default = Rules::default();
        // Without loans jobs are ordered all the same, on GPUs of their own.
        let lends = self.loans != Loaning::None;
        Rules {
            order: order::named(self.order).unwrap_or(default.order),
            fair_tenants: self.tenants_even,
            loaning: if lends { self.loans } else { default.loaning },
            ..default
        }
    }

    pub fn habits(&self) -> Habits {
        Habits { lengths_known: KNOWING.contains(&self.order), ..self.habits }
    }

    pub(super) fn words(key: &str) -> Option<Vec<&'static str>> {
        Some(match key {
            "order" => order::all().iter().map(|order| order.name()).collect(),
            "tenants" => TENANTS.map(|(word, _)| word).to_vec(),
            "loans" => Loaning::ALL.map(Loaning::name).to_vec(),
            _ => return None,
        })
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        match key {
            "order" => self.order = order::named(value).map_or(self.order, |order| order.name()),
            "tenants" => self.tenants_even = TENANTS.contains(&(value, true)),
            "loans" => {
                let named = Loaning::ALL.into_iter().find(|rule| rule.name() == value);
                self.loans = named.unwrap_or(self.loans);
            }
            _ => {}
        }
    }
}

impl Reader {
    pub(super) fn training(&mut self, draft: &draft::Training) -> Option<Training> {
        let path = &draft.trace_csv;
        let text = self.file(path)?;
        let jobs = jobs::parse(&text);
        let jobs = jobs.map_err(|error| {
            self.problems.add(&path.span(), format!("{}: {error}", path.get_ref()));
        });
        let from = draft.from_s.as_ref().map(|value| self.seconds("from_s", value, 0.0));
        let until = draft.until_s.as_ref().map(|value| self.seconds("until_s", value, 0.0));
        let (from, until) = (from.unwrap_or_default(), until.unwrap_or(Duration::MAX));
        let mut habits = Habits::default();
        if let Some(value) = &draft.round_s {
            habits.round = self.seconds("round_s", value, 1.0);
        }
        if let Some(value) = &draft.checkpoint_every_s {
            habits.checkpoint_every = self.seconds("checkpoint_every_s", value, 1.0);
        }
        if let Some(value) = &draft.reserve_gpus {
            habits.reserve = self.problems.within("reserve_gpus", value, 0..=MOST_GPUS);
        }
        habits.elastic = draft.elastic.unwrap_or(false);
        let mut training = Training {
            jobs: within(jobs.ok()?, from, until),
            gpus: self.problems.within("gpus", &draft.gpus, 1..=MOST_GPUS),
            order: "las",
            tenants_even: true,
            loans: Loaning::Sluice,
            habits,
        };
        let choices =
            [("order", &draft.order), ("tenants", &draft.tenants), ("loans", &draft.loans)];
        for (key, given) in choices {
            self.word(&mut training, key, given.as_ref());
        }
        if training.jobs.is_empty() {
            self.problems.add(&path.span(), "no job of the trace is within from_s and until_s");
        }
        let largest = training.jobs.iter().map(|job| job.gpus).fold(0.0, f64::max);
        if largest > f64::from(training.gpus) {
            let message = format!("a job wants {largest} GPUs; give at least as many");
            self.problems.add(&draft.gpus.span(), message);
        }
        Some(training)
    }

    fn word(&mut self, training: &mut Training, key: &str, given: Option<&Spanned<String>>) {
        let Some(word) = given else { return };
        let words = Training::words(key).unwrap_or_default();
        if words.contains(&word.get_ref().as_str()) {
            training.set(key, word.get_ref());
        } else {
            self.problems.add(&word.span(), format!("{key} is one of {}", words.join(", ")));
        }
    }
}

/// The jobs that come from `from` until before `until`, in time counted from `from`.
fn within(jobs: Vec<TraceJob>, from: Duration, until: Duration) -> Vec<TraceJob> {
    let mut jobs = jobs;
    jobs.retain(|job| (from..until).contains(&job.submitted));
    jobs.iter_mut().for_each(|job| job.submitted -= from);
    jobs
}
