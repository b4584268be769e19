//! What busy slices do to each other, through what MIG does not divide.
//!
//! Compute, memory and its bandwidth are a slice's own. Board power, the PCIe bus and the last TLB
//! are not, so a slice runs slower beside busy neighbours by
//! `1 + power * (watts over the cap / cap) + pcie * bus use + tlb * neighbours / 6`.
//!
//! The gains are set so that six neighbours that infer cost 1.2 to 2.2 % of throughput, as in
//! NVIDIA's MLPerf v1.0 runs under MIG. Over the power cap the clock falls for all: a tenth over
//! costs a twentieth, since power falls faster than the clock. A bus asked for more than it has
//! makes all who use it wait.

use mig::Kind;

use crate::{Board, board};

const POWER: f64 = 0.5;
const PCIE: f64 = 0.08;
const TLB: f64 = 0.012;
/// Neighbours a GPU of seven slices has at most.
const NEIGHBOURS: f64 = 6.0;

/// What work on a slice asks of what all slices share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Power, as a part of the slice's share of the board's limit; dense training exceeds it.
    pub power: f64,
    /// The part of the PCIe bus it keeps busy.
    pub pcie: f64,
    /// Translations it asks of the last TLB, of what a busy slice does.
    pub tlb: f64,
}

impl Load {
    /// Inference on small inputs: under the power limit, a hundredth of the bus.
    pub const INFERENCE: Self = Self { power: 0.75, pcie: 0.01, tlb: 1.0 };
    /// Training: dense arithmetic without pause, and its input pipeline.
    pub const TRAINING: Self = Self { power: 1.15, pcie: 0.03, tlb: 1.0 };

    /// The mean of a slice that is at it for this part of the time.
    pub fn during(self, part: f64) -> Self {
        Self { power: self.power * part, pcie: self.pcie * part, tlb: self.tlb * part }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    pub compute_slices: u8,
    pub load: Load,
}

/// What the slices of one GPU share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shared {
    board: &'static Board,
    compute_slices: f64,
}

impl Shared {
    pub fn of(kind: &Kind) -> Self {
        Self { board: board(kind), compute_slices: f64::from(kind.compute_slices) }
    }

    /// Watts that `busy` slices would draw without a limit.
    pub fn watts_wanted(&self, busy: impl IntoIterator<Item = Busy>) -> f64 {
        let board = self.board;
        let part = |one: Busy| one.load.power * f64::from(one.compute_slices) / self.compute_slices;
        let parts: f64 = busy.into_iter().map(part).sum();
        board.idle_watts + parts * (board.cap_watts - board.idle_watts)
    }

    /// How much longer work takes on the slice of `own` than alone on the GPU, beside `others`.
    pub fn slowdown(&self, own: Busy, others: impl Iterator<Item = Busy>) -> f64 {
        let (mut watts, mut bus, mut tlb) = (0.0, 0.0, 0.0);
        let idle = self.board.idle_watts;
        for other in others {
            watts += self.watts_wanted([other]) - idle;
            bus += other.load.pcie;
            tlb += other.load.tlb;
        }
        // What it draws by itself was felt when it was measured alone.
        let alone = self.watts_wanted([own]);
        let power = self.over(watts + alone) - self.over(alone);
        let waiting = if own.load.pcie > 0.0 { (bus + own.load.pcie - 1.0).max(0.0) } else { 0.0 };
        1.0 + POWER * power + PCIE * bus.min(1.0) + waiting + TLB * (tlb / NEIGHBOURS).min(1.0)
    }

    /// Power drawn where this much is wanted: never more than the limit.
    pub fn watts(&self, wanted: f64) -> f64 {
        wanted.min(self.board.cap_watts)
    }

    /// The clock where this much power is wanted: lower than its highest over the limit.
    pub fn clock_mhz(&self, watts_wanted: f64) -> f64 {
        f64::from(self.board.clock_mhz) / (1.0 + POWER * self.over(watts_wanted))
    }

    fn over(&self, watts: f64) -> f64 {
        (watts - self.board.cap_watts).max(0.0) / self.board.cap_watts
    }
}

#[cfg(test)]
mod tests {
    use mig::kind;

    use super::*;

    fn a100() -> Shared {
        Shared::of(kind("A100-80GB").unwrap())
    }

    fn beside(load: Load, neighbours: usize) -> f64 {
        let own = Busy { compute_slices: 1, load: Load::INFERENCE };
        let other = Busy { compute_slices: 1, load };
        a100().slowdown(own, std::iter::repeat_n(other, neighbours))
    }

    #[test]
    fn six_busy_neighbours_cost_one_to_three_percent_of_throughput() {
        let lost = 1.0 - 1.0 / beside(Load::INFERENCE, 6);
        assert!((0.012..=0.022).contains(&lost), "{lost}");
    }

    #[test]
    fn nobody_is_slowed_by_nobody() {
        assert_eq!(beside(Load::TRAINING, 0), 1.0);
        let whole = Busy { compute_slices: 7, load: Load::TRAINING };
        assert_eq!(a100().slowdown(whole, std::iter::empty()), 1.0);
    }

    #[test]
    fn neighbours_over_the_power_limit_cost_clearly_more() {
        let lost = 1.0 - 1.0 / beside(Load::TRAINING, 6);
        assert!((0.04..=0.12).contains(&lost), "{lost}");
    }

    #[test]
    fn neighbors_that_saturate_the_bus_slow_work_down_more() {
        let hungry = Load { pcie: 0.2, ..Load::INFERENCE };
        let lost = 1.0 - 1.0 / beside(hungry, 6);
        assert!((0.1..=0.4).contains(&lost), "{lost}");
    }

    #[test]
    fn neighbours_busy_half_the_time_cost_half_as_much() {
        let (half, all) = (beside(Load::INFERENCE.during(0.5), 6), beside(Load::INFERENCE, 6));
        assert!((2.0 * (half - 1.0) - (all - 1.0)).abs() < 1e-12, "{half} {all}");
    }

    #[test]
    fn more_neighbours_never_make_it_faster() {
        for load in [Load::INFERENCE, Load::TRAINING] {
            let slow: Vec<f64> = (0..=6).map(|count| beside(load, count)).collect();
            assert!(slow.is_sorted(), "{slow:?}");
        }
    }

    #[test]
    fn the_clock_falls_over_the_limit_only() {
        assert_eq!(a100().clock_mhz(400.0), 1_410.0);
        assert!((1_300.0..1_400.0).contains(&a100().clock_mhz(450.0)));
    }
}
