//! Chance that repeats: the same seed gives the same run on every machine.

/// SplitMix64, with the distributions arrivals are made of.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator for part `index` of the run, unrelated to its neighbours'.
    pub fn part(seed: u64, index: u64) -> Self {
        let mut parent = Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        Self(parent.bits())
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even in `(0, 1]`: never zero, so its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Gamma with the given shape and mean 1, so its variance is `1 / shape`.
    ///
    /// Marsaglia and Tsang's method; a shape below one is drawn one higher and scaled down.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        assert!(shape > 0.0, "a gamma's shape is above zero, not {shape}");
        let raised = if shape < 1.0 { shape + 1.0 } else { shape };
        let scale = if shape < 1.0 { self.unit().powf(shape.recip()) } else { 1.0 };
        let d = raised - 1.0 / 3.0;
        let c = (9.0 * d).sqrt().recip();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * scale / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    fn mean_and_variance(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let draws: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / DRAWS as f64;
        (mean, variance)
    }

    #[test]
    fn a_gamma_has_mean_one_and_variance_one_over_its_shape() {
        for seed in 0..4 {
            for shape in [0.25, 0.5, 1.0, 4.0, 30.0] {
                let mut random = Random::new(seed);
                let (mean, variance) = mean_and_variance(|| random.gamma(shape));
                assert!((mean - 1.0).abs() < 0.03, "seed {seed} shape {shape}: mean {mean}");
                let error = variance * shape - 1.0;
                assert!(error.abs() < 0.06, "seed {seed} shape {shape}: variance {variance}");
            }
        }
    }

    #[test]
    fn a_normal_has_mean_zero_and_variance_one() {
        for seed in 0..4 {
            let mut random = Random::new(seed);
            let (mean, variance) = mean_and_variance(|| random.normal());
            assert!(mean.abs() < 0.02, "seed {seed}: mean {mean}");
            assert!((variance - 1.0).abs() < 0.02, "seed {seed}: variance {variance}");
        }
    }

    #[test]
    fn parts_of_one_seed_differ_and_repeat() {
        let first = |index| Random::part(7, index).bits();
        assert_eq!(first(1), first(1));
        assert_ne!(first(0), first(1));
        assert_ne!(first(1), first(2));
    }
}
