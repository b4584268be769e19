//! Who has had its share, and who asks for less.
//!
//! Order is by deadline; fairness decides whom to turn away. The recent service is divided by weight
//! between those who want more than they get, after those who want less have had all they asked for.
//! A tenant that asks for less is protected: its requests are admitted and put into batches as if
//! nobody else were there, and others have the room they leave. A tenant beyond its share is refused
//! while capacity is scarce. With nobody refused there is nothing to divide, and all are alike.

use std::time::Duration;

use crate::moment::Moment;

const MEMORY: Duration = Duration::from_secs(2);
/// Accounts fade and the division is made anew this often, not with every request.
const STEP: Duration = Duration::from_millis(10);
/// A tenant is protected while it asks for less than this part of its share.
const BELOW: f64 = 0.9;
/// A tenant is beyond its share from this part of it on.
const BEYOND: f64 = 1.02;
const EXACTLY: f64 = 1.0 + 1e-9;
/// Fewer rows than this are no demand.
const NOTHING: f64 = 0.5;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shares {
    tenants: Vec<Account>,
    divided_at: Moment,
    available: f64,
    /// Rows for those who want more than they get, and their weight together.
    divided: (f64, f64),
    /// Whether any tenant was protected when last looked at.
    guards: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Account {
    weight: f64,
    asked: f64,
    granted: f64,
    wants: bool,
}

impl Shares {
    /// Sets the weights, by tenant index; service so far is kept for indices that stay.
    pub(crate) fn set_weights(&mut self, weights: &[f64]) {
        assert!(weights.iter().all(|weight| *weight > 0.0));
        self.tenants.truncate(weights.len());
        for (index, weight) in weights.iter().enumerate() {
            match self.tenants.get_mut(index) {
                Some(account) => account.weight = *weight,
                None => self.tenants.push(Account {
                    weight: *weight,
                    asked: 0.0,
                    granted: 0.0,
                    wants: false,
                }),
            }
        }
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.tenants.len() >= 2 && now.since(self.divided_at) >= STEP
    }

    /// Divides the recent service, or what `per_second` rows would have been if that is more: what
    /// nobody used is there for whoever asks.
    pub(crate) fn divide(&mut self, per_second: f64, now: Moment) {
        self.fade(now, per_second);
        let served: f64 = self.tenants.iter().map(|account| account.granted).sum();
        let unused = (self.available - served).max(0.0);
        let mut level = 0.0;
        // Each round either settles or finds at least one more tenant content.
        for _ in 0..=self.tenants.len() {
            self.divided = (unused, 0.0);
            for account in &mut self.tenants {
                account.wants = account.asked > (level * account.weight * EXACTLY).max(NOTHING);
                if account.wants {
                    self.divided.0 += account.granted;
                    self.divided.1 += account.weight;
                }
            }
            let (rows, weight) = self.divided;
            if weight == 0.0 || rows <= level * weight * EXACTLY {
                break;
            }
            level = rows / weight;
        }
        if self.tenants.iter().filter(|account| account.asked > NOTHING).count() < 2 {
            self.divided = (0.0, 0.0);
        }
        self.guards = (0..self.tenants.len())
            .any(|tenant| self.tenants[tenant].asked > NOTHING && self.protects(tenant as u32));
    }

    /// `rows` that `tenant` asked for were let in.
    pub(crate) fn granted(&mut self, tenant: u32, rows: u32) {
        self.count(tenant, f64::from(rows), f64::from(rows));
    }

    pub(crate) fn refused(&mut self, tenant: u32, rows: u32) {
        self.count(tenant, f64::from(rows), 0.0);
    }

    /// `rows` of `tenant` that were let in were refused after all.
    pub(crate) fn revoked(&mut self, tenant: u32, rows: u32) {
        self.count(tenant, 0.0, -f64::from(rows));
    }

    fn count(&mut self, tenant: u32, asked: f64, granted: f64) {
        if let Some(account) = self.tenants.get_mut(tenant as usize) {
            account.asked += asked;
            account.granted = (account.granted + granted).max(0.0);
            if account.wants {
                self.divided.0 = (self.divided.0 + granted).max(0.0);
            }
        }
    }

    /// Whether `tenant` asks for clearly less than its share.
    pub(crate) fn protects(&self, tenant: u32) -> bool {
        self.share(tenant).is_some_and(|(account, share)| account.asked < BELOW * share)
    }

    pub(crate) fn guards(&self) -> bool {
        self.guards
    }

    /// Whether `tenant` has had more than its share.
    pub(crate) fn is_beyond(&self, tenant: u32) -> bool {
        self.share(tenant).is_some_and(|(account, share)| account.granted > BEYOND * share)
    }

    fn share(&self, tenant: u32) -> Option<(&Account, f64)> {
        let account = self.tenants.get(tenant as usize)?;
        let (served, weight) = self.divided;
        (weight > 0.0).then(|| (account, served / weight * account.weight))
    }

    fn fade(&mut self, now: Moment, per_second: f64) {
        let passed = now.since(self.divided_at).as_secs_f64() / MEMORY.as_secs_f64();
        let keep = (-passed).exp();
        for account in &mut self.tenants {
            account.asked *= keep;
            account.granted *= keep;
        }
        let whole = per_second * MEMORY.as_secs_f64();
        self.available = whole + (self.available - whole) * keep;
        self.divided_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of demand and service, in rows per millisecond for each tenant.
    fn after(weights: &[f64], asked: &[u32], served: &[u32]) -> Shares {
        after_with(weights, asked, served, 0.0)
    }

    fn after_with(weights: &[f64], asked: &[u32], served: &[u32], per_second: f64) -> Shares {
        let mut shares = Shares::default();
        shares.set_weights(weights);
        for ms in 0..1_000 {
            for tenant in 0..weights.len() {
                shares.granted(tenant as u32, served[tenant]);
                shares.refused(tenant as u32, asked[tenant] - served[tenant]);
            }
            shares.divide(per_second, Moment::from_micros(ms * 1_000));
        }
        shares
    }

    fn judged(shares: &Shares) -> Vec<(bool, bool)> {
        let tenants = 0..shares.tenants.len() as u32;
        tenants.map(|tenant| (shares.protects(tenant), shares.is_beyond(tenant))).collect()
    }

    const PLAIN: (bool, bool) = (false, false);
    const PROTECTED: (bool, bool) = (true, false);
    const BEYOND_IT: (bool, bool) = (false, true);

    #[test]
    fn a_lone_tenant_has_nobody_to_share_with() {
        assert_eq!(judged(&after(&[1.0], &[50], &[10])), [PLAIN]);
        assert_eq!(judged(&after(&[1.0, 1.0], &[50, 0], &[10, 0])), [PLAIN, PLAIN]);
    }

    #[test]
    fn with_nobody_refused_all_are_alike() {
        assert_eq!(judged(&after(&[1.0, 1.0, 5.0], &[50, 1, 7], &[50, 1, 7])), [PLAIN; 3]);
    }

    #[test]
    fn modest_tenant_is_protected_from_a_flood() {
        assert_eq!(judged(&after(&[1.0, 1.0], &[50, 1], &[10, 1])), [PLAIN, PROTECTED]);
    }

    #[test]
    fn two_equal_floods_protect_nobody() {
        assert_eq!(judged(&after(&[1.0, 1.0], &[50, 50], &[10, 10])), [PLAIN, PLAIN]);
    }

    #[test]
    fn half_weight_flood_exceeds_its_share_at_equal_service() {
        assert_eq!(judged(&after(&[2.0, 1.0], &[50, 50], &[10, 10])), [PLAIN, BEYOND_IT]);
        assert_eq!(judged(&after(&[2.0, 1.0], &[50, 50], &[20, 10])), [PLAIN, PLAIN]);
    }

    #[test]
    fn what_the_content_leave_is_divided_between_the_others() {
        let three = after(&[1.0, 1.0, 1.0], &[50, 50, 1], &[14, 6, 1]);
        assert_eq!(judged(&three), [BEYOND_IT, PLAIN, PROTECTED]);
    }

    #[test]
    fn nobody_is_beyond_its_share_while_there_is_room_for_more() {
        let idle = after_with(&[1.0, 1.0], &[50, 5], &[6, 4], 20_000.0);
        assert_eq!(judged(&idle), [PLAIN, PROTECTED]);
    }

    #[test]
    fn a_heavier_weight_is_protected_up_to_a_larger_share() {
        assert_eq!(judged(&after(&[1.0, 1.0], &[20, 6], &[5, 5]))[1], PLAIN);
        assert_eq!(judged(&after(&[1.0, 3.0], &[20, 6], &[5, 5]))[1], PROTECTED);
    }
}
