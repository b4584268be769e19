//! How many replicas keep the objectives as rates change, and how requests go with fewer.
//!
//! For fleets whose replicas of a model are all alike. What a model needs at a rate is the fewest
//! replicas under which its target is kept, by the runs that the lookup makes.

use super::{Flow, Fluid, lookup::Going, offered};
use crate::{claims::Broken, fleet::SimFleet};

/// How closely the highest load that keeps the target is found.
const HALVINGS: u32 = 12;
/// No load above this is looked for: beyond it replicas are busy all the time.
const MOST_LOAD: f64 = 1.0;

pub(crate) struct Needs<'a> {
    fluid: Fluid<'a>,
    /// By model, the highest load over capacity that keeps its target.
    loads: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Need {
    /// By model, requests per second.
    rates: Vec<f64>,
    /// By model, replicas.
    each: Vec<f64>,
    pub(crate) replicas: u32,
}

impl<'a> Needs<'a> {
    pub(crate) fn new(fleet: &'a SimFleet) -> Result<Self, Broken> {
        let mut needs = Self { fluid: Fluid::new(fleet), loads: Vec::new() };
        for (model, spec) in fleet.models.iter().enumerate() {
            let count = fleet.replicas.iter().filter(|replica| replica.model == model).count();
            let (mut low, mut high) = (0.0, MOST_LOAD);
            for _ in 0..HALVINGS {
                let middle = (low + high) / 2.0;
                let kept = needs.going(model, count as f64, middle)?.in_time >= spec.target;
                *(if kept { &mut low } else { &mut high }) = middle;
            }
            needs.loads.push(low);
        }
        Ok(needs)
    }

    /// What is needed from `span.0` to `span.1`, in seconds: one replica of each model at least.
    pub(crate) fn of(&self, span: (f64, f64)) -> Need {
        let rates = offered(self.fluid.fleet, span);
        let each: Vec<f64> = (0..rates.len())
            .map(|model| {
                (rates[model] / (self.capacity(model) * self.loads[model])).ceil().max(1.0)
            })
            .collect();
        Need { replicas: each.iter().sum::<f64>() as u32, rates, each }
    }

    pub(crate) fn flow(
        &mut self,
        need: &Need,
        replicas: u32,
        seconds: f64,
    ) -> Result<Vec<Flow>, Broken> {
        let part = f64::from(replicas) / f64::from(need.replicas.max(1));
        let mut flows = Vec::with_capacity(need.rates.len());
        for (model, rate) in need.rates.iter().enumerate() {
            let (offered, count) = (rate * seconds, need.each[model] * part);
            let going = if count > 0.0 && *rate > 0.0 {
                self.going(model, count, rate / (self.capacity(model) * count))?
            } else {
                Going::default()
            };
            let (in_time, late) = (offered * going.in_time, offered * going.late);
            flows.push(Flow::new(offered, in_time, late));
        }
        Ok(flows)
    }

    fn going(&mut self, model: usize, count: f64, load: f64) -> Result<Going, Broken> {
        match self.fluid.kinds.iter().find(|kind| kind.model == model) {
            Some(kind) => self.fluid.lookup.going(kind, count, load),
            None => Ok(Going::default()),
        }
    }

    fn capacity(&self, model: usize) -> f64 {
        let kind = self.fluid.kinds.iter().find(|kind| kind.model == model);
        kind.map_or(0.0, |kind| kind.capacity_rps).max(f64::MIN_POSITIVE)
    }
}
