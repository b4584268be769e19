//! Chance, reproducible from a seed.

use std::time::Duration;

/// SplitMix64: small, seedable, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.bits() % bound
    }

    pub fn exponential(&mut self, per_second: f64) -> Duration {
        Duration::from_secs_f64(-(1.0 - self.unit()).ln() / per_second)
    }

    /// Normal with mean 0 and deviation 1, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A factor of mean 1, spread log-normally with deviation `noise` of its logarithm.
    pub fn spread(&mut self, noise: f64) -> f64 {
        if noise == 0.0 {
            return 1.0;
        }
        (noise * self.normal() - noise * noise / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_stream() {
        let draw = |seed| (0..4).map(|_| Random::new(seed).bits()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn exponential_gaps_have_the_mean_they_were_asked_for() {
        let mut random = Random::new(1);
        let total: f64 = (0..100_000).map(|_| random.exponential(500.0).as_secs_f64()).sum();
        assert!((total / 100_000.0 - 0.002).abs() < 0.000_05, "{total}");
    }

    #[test]
    fn normals_have_mean_zero_and_deviation_one() {
        let mut random = Random::new(2);
        let draws: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn noise_changes_no_mean_and_none_is_exact() {
        let mut random = Random::new(3);
        let mean = (0..100_000).map(|_| random.spread(0.3)).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert_eq!(random.spread(0.0), 1.0);
    }
}
