//! How the last batches compared with what was expected of them.

const WINDOW: usize = 128;
const FIRST_SPREAD: f64 = 1.05;
const LARGEST_SPREAD: f64 = 3.0;
const FEW: usize = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Ratios {
    seen: Vec<f64>,
    oldest: usize,
    /// Those seen when last sorted, which is when they are read.
    sorted: Vec<f64>,
}

impl Ratios {
    pub(super) fn add(&mut self, ratio: f64) {
        if self.seen.len() < WINDOW {
            self.seen.push(ratio);
        } else {
            self.seen[self.oldest] = ratio;
            self.oldest = (self.oldest + 1) % WINDOW;
        }
    }

    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.oldest = 0;
    }

    pub(super) fn sort(&mut self) {
        self.sorted.clone_from(&self.seen);
        self.sorted.sort_unstable_by(f64::total_cmp);
    }

    /// Whether every one more still matters.
    pub(super) fn is_young(&self) -> bool {
        self.seen.len() < WINDOW / 4
    }

    /// The part of the batches that took at most `ratio` of the expected.
    pub(super) fn within(&self, ratio: f64) -> f64 {
        let within = self.sorted.partition_point(|seen| *seen <= ratio) as f64;
        let first = f64::from(ratio >= FIRST_SPREAD);
        let trust = self.trust();
        trust * within / self.sorted.len().max(1) as f64 + (1.0 - trust) * first
    }

    /// The middle of those above `ratio`, if there are enough.
    pub(super) fn usual_above(&self, ratio: f64) -> Option<f64> {
        let above = &self.sorted[self.sorted.partition_point(|seen| *seen <= ratio)..];
        (above.len() >= FEW).then(|| above[above.len() / 2])
    }

    /// What only a part of `share` stays below; 1 at the most.
    pub(super) fn low(&self, share: f64) -> f64 {
        let rank = (self.sorted.len() as f64 * share) as usize;
        self.sorted.get(rank).map_or(1.0, |ratio| ratio.min(1.0))
    }

    /// What a part of `share` stays within, leaning on a first guess while little was seen; 1 at the
    /// least.
    pub(super) fn high(&self, share: f64) -> f64 {
        let seen = self.sorted.len();
        let rank = ((seen as f64 * share) as usize).min(seen.saturating_sub(1));
        let at_rank = self.sorted.get(rank).copied().unwrap_or(FIRST_SPREAD);
        let trust = self.trust();
        (trust * at_rank + (1.0 - trust) * FIRST_SPREAD).clamp(1.0, LARGEST_SPREAD)
    }

    /// How far what was seen outweighs the first guess.
    fn trust(&self) -> f64 {
        (self.sorted.len() as f64 / (WINDOW / 4) as f64).min(1.0)
    }
}
