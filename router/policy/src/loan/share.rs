//! Long-term GPU time: what each tenant has had, and what it deserved.

use std::time::Duration;

use super::Tenant;

/// After so long, half of what was had and deserved is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// GPU-seconds of one tenant, fading.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    pub received: f64,
    /// Its fair share of what could be lent, while it wanted as much.
    pub deserved: f64,
}

impl Account {
    /// What it has had of what it deserved; 1 for one that never deserved anything.
    pub fn ratio(&self) -> f64 {
        if self.deserved > 0.0 { self.received / self.deserved } else { 1.0 }
    }
}

/// What a tenant's jobs hold and want, in GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    pub held: f64,
    /// Those, and the fewest slices of the jobs that wait.
    pub wants: f64,
}

/// Brings the accounts forward by `elapsed`, in which `capacity` GPUs could be lent.
pub fn accrue(tenants: &mut [Tenant], uses: &[Use], capacity: f64, elapsed: Duration) {
    let fair = divide(tenants, uses, capacity);
    let seconds = elapsed.as_secs_f64();
    let left = 0.5_f64.powf(seconds / HALF_LIFE.as_secs_f64());
    for ((tenant, used), fair) in tenants.iter_mut().zip(uses).zip(fair) {
        let Account { received, deserved } = tenant.account;
        tenant.account = Account {
            received: received * left + used.held * seconds,
            deserved: deserved * left + fair * seconds,
        };
    }
}

/// `capacity` by weight between those who want more, after those who want less have it all.
pub(super) fn divide(tenants: &[Tenant], uses: &[Use], capacity: f64) -> Vec<f64> {
    let weight = |index: usize| tenants.get(index).map_or(1.0, |tenant| tenant.share);
    let mut modest: Vec<usize> = (0..uses.len()).collect();
    modest.sort_by(|a, b| {
        let (a, b) = (uses[*a].wants / weight(*a), uses[*b].wants / weight(*b));
        a.total_cmp(&b)
    });
    let mut fair = vec![0.0; uses.len()];
    let mut left = capacity.max(0.0);
    let mut weights: f64 = modest.iter().map(|index| weight(*index)).sum();
    for index in modest {
        let part = (left * weight(index) / weights).min(uses[index].wants).max(0.0);
        fair[index] = part;
        left -= part;
        weights -= weight(index);
    }
    fair
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(share: f64) -> Tenant {
        Tenant { share, quota: u32::MAX, account: Account::default() }
    }

    fn wants(wants: f64) -> Use {
        Use { held: 0.0, wants }
    }

    #[test]
    fn those_who_want_less_leave_the_rest_to_others_by_weight() {
        let tenants = [tenant(1.0), tenant(1.0), tenant(2.0)];
        let fair = divide(&tenants, &[wants(1.0), wants(9.0), wants(99.0)], 10.0);
        assert_eq!(fair, [1.0, 3.0, 6.0]);
    }

    #[test]
    fn no_more_is_deserved_than_is_wanted() {
        let fair = divide(&[tenant(1.0), tenant(5.0)], &[wants(0.0), wants(2.0)], 10.0);
        assert_eq!(fair, [0.0, 2.0]);
    }

    #[test]
    fn a_tenant_that_held_what_it_deserved_is_even() {
        let mut tenants = [tenant(1.0), tenant(1.0)];
        let uses = [Use { held: 3.0, wants: 4.0 }, Use { held: 1.0, wants: 4.0 }];
        accrue(&mut tenants, &uses, 4.0, Duration::from_secs(100));
        assert_eq!(tenants[0].account.ratio(), 1.5);
        assert_eq!(tenants[1].account.ratio(), 0.5);
        assert_eq!(tenant(1.0).account.ratio(), 1.0, "nothing deserved, nothing owed");
    }

    #[test]
    fn what_was_long_ago_weighs_less() {
        let mut tenants = [tenant(1.0)];
        accrue(&mut tenants, &[Use { held: 0.0, wants: 1.0 }], 1.0, HALF_LIFE);
        let owed = tenants[0].account.deserved;
        accrue(&mut tenants, &[Use::default()], 1.0, HALF_LIFE);
        assert!((tenants[0].account.deserved / owed - 0.5).abs() < 1e-9);
    }
}
