//! Models that take turns in one process.

use std::time::Duration;

use policy::{dispatch::longest_turn, moment::Moment};

use super::RequestWorld;
use crate::claims::Claim;

impl RequestWorld<'_> {
    /// The longest turn in the process of `replica`, if it is shared.
    pub(super) fn longest_turn(&mut self, replica: usize) -> Option<Duration> {
        let fleet = self.fleet;
        let objective =
            |member: &usize| fleet.models[fleet.replicas[*member].model].settings.objective;
        let objectives: Vec<Duration> = self.sharing(replica).iter().map(objective).collect();
        longest_turn(&objectives)
    }

    pub(super) fn others_step_aside(&mut self, replica: usize, until: Moment) {
        for place in 0..self.sharing(replica).len() {
            let other = self.sharing(replica)[place];
            if other != replica
                && let Some(name) = self.replicas[other].name
            {
                let model = self.fleet.replicas[other].model;
                self.models[model].dispatch.step_aside(name, until);
                self.wake_in_time(model);
            }
        }
    }

    /// Gives the process of `replica` to whoever needs it most, if it is shared and free.
    pub(super) fn next_turn(&mut self, replica: usize) -> Result<(), Claim> {
        let members = self.sharing(replica).to_vec();
        if members.len() == 1 || self.is_taken(&members) {
            return Ok(());
        }
        let leeway = |member: usize| {
            let name = self.replicas[member].name?;
            let model = self.fleet.replicas[member].model;
            Some((self.models[model].dispatch.leeway(name, self.now), model, name))
        };
        let mut waiting: Vec<_> = members.iter().filter_map(|member| leeway(*member)).collect();
        waiting.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (_, model, name) in waiting {
            if self.is_taken(&members) {
                break;
            }
            let mut effects = std::mem::take(&mut self.effects);
            self.models[model].dispatch.step_up(name, self.now, &mut effects);
            self.act(model, effects)?;
        }
        Ok(())
    }

    /// Whether a batch of any of `members` is on its way, runs or returns.
    fn is_taken(&self, members: &[usize]) -> bool {
        members.iter().any(|member| self.replicas[*member].has_batches())
    }
}
