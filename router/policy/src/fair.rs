//! Who is below the share it was promised.
//!
//! Order is by deadline; fairness decides only whom to shed. A tenant that has had less than its
//! weighted share of recent service is protected: its requests are not skipped for a larger batch,
//! and are admitted in place of those of tenants above their share.

use std::time::Duration;

use crate::moment::Moment;

const MEMORY: Duration = Duration::from_secs(2);
const BELOW: f64 = 0.9;

/// Recent service of every tenant of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    tenants: Vec<Account>,
}

#[derive(Clone, Debug, PartialEq)]
struct Account {
    weight: f64,
    served: f64,
    wanted: f64,
    at: Moment,
}

impl Account {
    fn faded(&self, now: Moment) -> (f64, f64) {
        let keep = (-now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp();
        (self.served * keep, self.wanted * keep)
    }

    fn fade(&mut self, now: Moment) {
        (self.served, self.wanted) = self.faded(now);
        self.at = self.at.max(now);
    }
}

impl Shares {
    /// Sets the weights, by tenant index; service so far is kept for indices that stay.
    pub fn set_weights(&mut self, weights: &[f64]) {
        assert!(weights.iter().all(|weight| *weight > 0.0));
        self.tenants.truncate(weights.len());
        for (index, weight) in weights.iter().enumerate() {
            match self.tenants.get_mut(index) {
                Some(account) => account.weight = *weight,
                None => self.tenants.push(Account {
                    weight: *weight,
                    served: 0.0,
                    wanted: 0.0,
                    at: Moment::default(),
                }),
            }
        }
    }

    /// `rows` of `tenant` were asked for.
    pub fn asked(&mut self, tenant: u32, rows: u32, now: Moment) {
        if let Some(account) = self.tenants.get_mut(tenant as usize) {
            account.fade(now);
            account.wanted += f64::from(rows);
        }
    }

    /// `rows` of `tenant` were sent to a replica.
    pub fn served(&mut self, tenant: u32, rows: u32, now: Moment) {
        if let Some(account) = self.tenants.get_mut(tenant as usize) {
            account.fade(now);
            account.served += f64::from(rows);
        }
    }

    /// Whether `tenant` asks for no more than its share of what is being served.
    pub fn protects(&self, tenant: u32, now: Moment) -> bool {
        if self.tenants.len() < 2 {
            return false;
        }
        let Some(me) = self.tenants.get(tenant as usize) else { return false };
        let (mut served, mut weight) = (0.0, 0.0);
        for account in &self.tenants {
            let (its_served, its_wanted) = account.faded(now);
            if its_wanted >= 0.5 {
                served += its_served;
                weight += account.weight;
            }
        }
        if weight <= me.weight {
            return false;
        }
        me.faded(now).1 < BELOW * served * me.weight / weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_micros(ms * 1_000)
    }

    #[test]
    fn a_lone_tenant_is_never_protected() {
        let mut shares = Shares::default();
        shares.set_weights(&[1.0]);
        shares.asked(0, 1, at(0));
        assert!(!shares.protects(0, at(0)));
    }

    #[test]
    fn a_modest_tenant_beside_a_flood_is_protected_and_the_flood_is_not() {
        let mut shares = Shares::default();
        shares.set_weights(&[1.0, 1.0]);
        for ms in 0..1_000 {
            shares.asked(0, 10, at(ms));
            shares.served(0, 1, at(ms));
            if ms % 50 == 0 {
                shares.asked(1, 1, at(ms));
                shares.served(1, 1, at(ms));
            }
        }
        assert!(shares.protects(1, at(1_000)));
        assert!(!shares.protects(0, at(1_000)));
    }

    #[test]
    fn two_equal_floods_protect_nobody() {
        let mut shares = Shares::default();
        shares.set_weights(&[1.0, 1.0]);
        for ms in 0..1_000 {
            for tenant in 0..2 {
                shares.asked(tenant, 10, at(ms));
                shares.served(tenant, 1, at(ms));
            }
        }
        assert!(!shares.protects(0, at(1_000)));
        assert!(!shares.protects(1, at(1_000)));
    }

    #[test]
    fn a_heavier_weight_is_protected_up_to_a_larger_share() {
        let demand = |weight: f64| {
            let mut shares = Shares::default();
            shares.set_weights(&[1.0, weight]);
            for ms in 0..1_000 {
                shares.asked(0, 20, at(ms));
                shares.served(0, 5, at(ms));
                shares.asked(1, 6, at(ms));
                shares.served(1, 5, at(ms));
            }
            shares.protects(1, at(1_000))
        };
        assert!(!demand(1.0));
        assert!(demand(3.0));
    }
}
