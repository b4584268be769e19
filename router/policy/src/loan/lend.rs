//! Which idle slices may be lent.

use super::{Held, LoanWorld, Slice};

/// How much is lent, and who gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaning {
    /// Nothing is lent.
    None,
    /// All that is idle beyond a fixed reserve; the jobs spread over the most slices give back
    /// first. As Aryl (Lyra) does with servers.
    Aryl,
    /// What is idle beyond the forecast's upper quantile and the reserve; those who lose least give
    /// back first, before inference needs it.
    Sluice,
}

impl Loaning {
    /// Every rule, the default first.
    pub const ALL: [Self; 3] = [Self::Sluice, Self::Aryl, Self::None];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Aryl => "aryl",
            Self::Sluice => "sluice",
        }
    }

    /// Compute slices that must stay idle; nothing is lent beyond it.
    pub(super) fn kept(self, world: &LoanWorld<'_>) -> u32 {
        match self {
            Self::None => u32::MAX,
            Self::Aryl => world.keep.reserve,
            Self::Sluice => world.keep.forecast.saturating_add(world.keep.reserve),
        }
    }
}

/// How many slices of each slice's GPU are inference's.
///
/// Training beside inference slows it, so such slices are lent last and kept first.
pub(super) fn crowding(slices: &[Slice]) -> Vec<u32> {
    let gpus = slices.iter().map(|slice| slice.gpu as usize + 1).max().unwrap_or(0);
    let mut serving = vec![0; gpus];
    for slice in slices.iter().filter(|slice| slice.held == Held::Inference) {
        serving[slice.gpu as usize] += 1;
    }
    slices.iter().map(|slice| serving[slice.gpu as usize]).collect()
}
