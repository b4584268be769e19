//! What each gets when there is not enough for all.

use super::{
    Refusal, Target,
    reasons::{Bound, Lack},
    situation::Situation,
};

/// Each try asks for this part of what the one before did.
const LESS: f64 = 0.8;
/// Tries; the last asks for a thousandth.
const TRIES: i32 = 32;

impl Situation<'_> {
    /// Gives all who lack something the same part of it, as large as there is room for, and says what
    /// is missing. A model that would have nothing at all gets something at the cost of others.
    pub(super) fn share_out(&self, target: &mut Target, refusals: &mut Vec<Refusal>) {
        let short = self.short(target);
        if !self.add_part(target, &short) {
            for index in &short {
                self.add_part(target, &[*index]);
            }
        }
        let held = target.held(self.models.len());
        if short.iter().any(|index| held[*index].1 == 0) {
            self.share_anew(target);
        }
        for index in &short {
            self.crowd(target, *index);
        }
        let held = target.held(self.models.len());
        for index in short {
            let (model, (gets_rps, count)) = (&self.models[index], held[index]);
            let told = |why: String| Refusal { model: Some(index), why };
            if let Err(free_mib) = self.beside(target, index)
                && count == 0
            {
                let needs_mib = self.memory_mib(index);
                refusals.push(told(Lack::Memory { needs_mib, free_mib }.to_string()));
                continue;
            }
            let (name, least) = (model.name.as_str(), model.replicas_min.max(1));
            let bound = self.bound(index, count);
            if gets_rps < model.demand_rps * (1.0 - 1e-9) {
                let demand_rps = model.demand_rps;
                let lack = Lack::Rows { model: name, demand_rps, gets_rps, replicas: count, bound };
                refusals.push(told(lack.to_string()));
            } else if count < least {
                let lack = Lack::Replicas { model: name, least, replicas: count, bound };
                refusals.push(told(lack.to_string()));
            }
        }
    }

    /// What keeps a model with so many replicas from having more.
    fn bound(&self, index: usize, count: u32) -> Bound {
        let most = self.models[index].replicas_max;
        let all = &self.snapshot.gpus;
        let open = || all.iter().filter(|gpu| gpu.healthy);
        let slices = open().flat_map(|gpu| &gpu.slices);
        let lent = slices.filter(|slice| slice.loaned).count();
        let spare = self.snapshot.rules.spare_gpus;
        match (count >= most, open().count()) {
            (true, _) => Bound::Most(most),
            (false, 0) if all.is_empty() => Bound::NoGpu,
            (false, 0) => Bound::Unhealthy { gpus: all.len() },
            (false, _) if lent > 0 => Bound::Lent { slices: lent },
            (false, _) if spare > 0 => Bound::Spare { gpus: spare },
            (false, gpus) => Bound::Full { gpus },
        }
    }

    /// Adds the largest part of what `short` lack that there is room for; says whether there was any.
    fn add_part(&self, target: &mut Target, short: &[usize]) -> bool {
        let held = target.held(self.models.len());
        let found = (0..TRIES).find_map(|tried| {
            let mut models = self.models.clone();
            for (index, (model, (has_rps, count))) in models.iter_mut().zip(&held).enumerate() {
                let more = short.contains(&index);
                let lacks_rps = if more { (model.demand_rps - has_rps).max(0.0) } else { 0.0 };
                model.demand_rps = has_rps + lacks_rps * LESS.powi(tried);
                model.replicas_min = if more { (*count).max(1) } else { *count };
            }
            self.with(models).repair(target)
        });
        let any = found.is_some();
        if let Some(placed) = found {
            target.placed = placed;
        }
        any
    }

    /// Plans anew for the largest part of every demand for which there is a plan.
    fn share_anew(&self, target: &mut Target) {
        let part = |tried: i32| {
            let mut models = self.models.clone();
            for model in &mut models {
                model.demand_rps *= LESS.powi(tried);
                model.replicas_min = model.replicas_min.min(1);
            }
            self.with(models).plan_anew(target)
        };
        let (mut fails, mut works) = (0, TRIES);
        let Some(mut found) = part(works) else { return };
        while works - fails > 1 {
            let tried = (works + fails) / 2;
            match part(tried) {
                Some(placed) => (works, found) = (tried, placed),
                None => fails = tried,
            }
        }
        target.replace(found, "replanned the fleet so that every model has a replica");
    }
}
