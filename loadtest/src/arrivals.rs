//! When requests arrive: a rate that changes over time, and the chance between neighbours.
//!
//! Every process is made the same way. Gaps with mean one are drawn by the [`Spacing`] and added
//! up; the sum is then carried through the inverse of the cumulative rate of the [`Shape`]. So any
//! spacing goes with any shape, the mean is exact, and a seed names one list of arrivals.

use std::time::Duration;

use crate::random::Random;

/// Halvings when a sine is inverted: a period shrinks to well under a microsecond.
const HALVINGS: u32 = 40;

/// The chance between one arrival and the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Every gap is the same.
    Even,
    /// Exponential gaps: many callers who do not know of each other.
    Poisson,
    /// Gamma gaps: burstier than Poisson below shape 1, more regular above.
    Gamma {
        /// Above zero; the gaps' squared coefficient of variation is its inverse.
        shape: f64,
    },
}

/// How the rate moves, as a factor of the stated rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Flat,
    /// Each factor holds for `each`; the last one holds to the end.
    Step {
        /// Above or equal to zero, the last above zero.
        factors: Vec<f64>,
        /// Above zero.
        each: Duration,
    },
    /// From one factor to another in a straight line, then the second.
    Ramp {
        from: f64,
        to: f64,
        /// Above zero.
        over: Duration,
    },
    /// `1 + depth * sin`, so the mean over a period is the stated rate.
    Sine {
        /// Above zero.
        period: Duration,
        /// 0 to 1.
        depth: f64,
    },
    /// The stated rate, then nothing, in turn.
    OnOff {
        /// Above zero.
        on: Duration,
        /// Above or equal to zero.
        off: Duration,
    },
}

impl Shape {
    pub fn factor(&self, at: f64) -> f64 {
        match self {
            Self::Flat => 1.0,
            Self::Step { factors, each } => {
                let index = (at / each.as_secs_f64()) as usize;
                factors.get(index).or_else(|| factors.last()).copied().unwrap_or(1.0)
            }
            Self::Ramp { from, to, over } => {
                from + (to - from) * (at / over.as_secs_f64()).clamp(0.0, 1.0)
            }
            Self::Sine { period, depth } => {
                1.0 + depth * (std::f64::consts::TAU * at / period.as_secs_f64()).sin()
            }
            Self::OnOff { on, off } => {
                let within = at % (on.as_secs_f64() + off.as_secs_f64());
                f64::from(u8::from(within < on.as_secs_f64()))
            }
        }
    }

    /// The time by which `work` seconds at the stated rate have passed.
    fn time_of(&self, work: f64) -> f64 {
        match self {
            Self::Flat => work,
            Self::Step { factors, each } => step_time(factors, each.as_secs_f64(), work),
            Self::Ramp { from, to, over } => ramp_time(*from, *to, over.as_secs_f64(), work),
            Self::Sine { period, depth } => sine_time(period.as_secs_f64(), *depth, work),
            Self::OnOff { on, off } => {
                let on = on.as_secs_f64();
                (work / on).floor() * off.as_secs_f64() + work
            }
        }
    }
}

/// A rate, its shape and its spacing.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Requests per second where the shape's factor is one. Above zero.
    pub rate_rps: f64,
    pub spacing: Spacing,
    pub shape: Shape,
}

impl Process {
    pub fn arrivals(&self, random: Random, length: Duration) -> Arrivals {
        assert!(self.rate_rps > 0.0, "a rate is above zero, not {}", self.rate_rps);
        // Even arrivals stand in the middle of their gaps: their count is the rate times the length,
        // however the last sum is rounded.
        let work = match self.spacing {
            Spacing::Even => -0.5 / self.rate_rps,
            Spacing::Poisson | Spacing::Gamma { .. } => 0.0,
        };
        Arrivals { process: self.clone(), random, work, length: length.as_secs_f64() }
    }
}

#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Process,
    random: Random,
    work: f64,
    length: f64,
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let gap = match self.process.spacing {
            Spacing::Even => 1.0,
            Spacing::Poisson => self.random.exponential(),
            Spacing::Gamma { shape } => self.random.gamma(shape),
        };
        self.work += gap / self.process.rate_rps;
        let at = self.process.shape.time_of(self.work);
        (at < self.length).then(|| Duration::from_secs_f64(at))
    }
}

fn step_time(factors: &[f64], each: f64, work: f64) -> f64 {
    let mut left = work;
    let mut at = 0.0;
    let (last, earlier) = factors.split_last().expect("a step has at least one factor");
    for factor in earlier {
        if left < factor * each {
            return at + left / factor;
        }
        left -= factor * each;
        at += each;
    }
    at + left / last
}

fn ramp_time(from: f64, to: f64, over: f64, work: f64) -> f64 {
    let whole = f64::midpoint(from, to) * over;
    if work >= whole {
        return over + (work - whole) / to;
    }
    let slope = (to - from) / over;
    // The stable root of `slope / 2 * t^2 + from * t = work`: no division by a slope near zero.
    let root = from.mul_add(from, 2.0 * slope * work).max(0.0).sqrt();
    2.0 * work / (from + root)
}

fn sine_time(period: f64, depth: f64, work: f64) -> f64 {
    let start = (work / period).floor() * period;
    let wanted = work - start;
    let turn = std::f64::consts::TAU / period;
    let (mut low, mut high) = (0.0, period);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if middle + depth / turn * (1.0 - (turn * middle).cos()) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    start + low
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 8;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    fn arrivals(spacing: Spacing, shape: &Shape, seed: u64, length: f64) -> Vec<f64> {
        let process = Process { rate_rps: 1_000.0, spacing, shape: shape.clone() };
        process.arrivals(Random::new(seed), seconds(length)).map(|at| at.as_secs_f64()).collect()
    }

    fn gaps(arrivals: &[f64]) -> Vec<f64> {
        arrivals.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The largest distance between what was drawn and what the distribution says.
    fn kolmogorov(mut drawn: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
        drawn.sort_by(f64::total_cmp);
        let count = drawn.len() as f64;
        drawn.iter().enumerate().fold(0.0, |worst: f64, (index, x)| {
            let expected = cumulative(*x);
            let below = (expected - index as f64 / count).abs();
            worst.max(below).max((expected - (index + 1) as f64 / count).abs())
        })
    }

    fn shapes() -> Vec<(Shape, f64)> {
        vec![
            (Shape::Flat, 1.0),
            (Shape::Step { factors: vec![0.5, 2.0, 1.0], each: seconds(10.0) }, 3.5 / 3.0),
            (Shape::Ramp { from: 0.2, to: 2.0, over: seconds(30.0) }, 1.1),
            (Shape::Sine { period: seconds(5.0), depth: 0.9 }, 1.0),
            (Shape::OnOff { on: seconds(1.0), off: seconds(2.0) }, 1.0 / 3.0),
        ]
    }

    #[test]
    fn the_mean_rate_is_the_stated_one_times_the_shapes_mean() {
        for seed in 0..SEEDS {
            for (shape, mean) in shapes() {
                let count = arrivals(Spacing::Poisson, &shape, seed, 30.0).len() as f64;
                let expected = 30_000.0 * mean;
                let off = (count - expected).abs() / expected.sqrt();
                assert!(off < 4.5, "seed {seed} {shape:?}: {count} against {expected}");
            }
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        for seed in 0..SEEDS {
            let gaps = gaps(&arrivals(Spacing::Poisson, &Shape::Flat, seed, 20.0));
            let count = gaps.len() as f64;
            let distance = kolmogorov(gaps, |gap| 1.0 - (-1_000.0 * gap).exp());
            assert!(distance * count.sqrt() < 1.95, "seed {seed}: distance {distance}");
        }
    }

    #[test]
    fn gamma_gaps_have_the_variance_their_shape_states() {
        for seed in 0..SEEDS {
            for shape in [0.25, 4.0] {
                let gaps = gaps(&arrivals(Spacing::Gamma { shape }, &Shape::Flat, seed, 100.0));
                let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
                let variance =
                    gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
                let squared_variation = variance / (mean * mean);
                assert!((mean * 1_000.0 - 1.0).abs() < 0.04, "seed {seed} {shape}: mean {mean}");
                let error = squared_variation * shape - 1.0;
                assert!(error.abs() < 0.12, "seed {seed} {shape}: {squared_variation}");
            }
        }
    }

    #[test]
    fn gamma_gaps_are_distributed_as_their_shape_states() {
        type Cumulative = fn(f64) -> f64;
        // Of mean one: with shape 4 a sum of four exponentials, with shape 1/2 a square of a normal.
        let four: Cumulative =
            |x| 1.0 - (-4.0 * x).exp() * (1.0 + 4.0 * x + 8.0 * x.powi(2) + 32.0 / 3.0 * x.powi(3));
        let half: Cumulative = |x| error_function((x / 2.0).sqrt());
        for seed in 0..SEEDS {
            for (shape, cumulative) in [(4.0, four), (0.5, half)] {
                let gaps = gaps(&arrivals(Spacing::Gamma { shape }, &Shape::Flat, seed, 20.0));
                let count = gaps.len() as f64;
                let distance = kolmogorov(gaps, |gap| cumulative(1_000.0 * gap));
                assert!(distance * count.sqrt() < 1.95, "seed {seed} {shape}: {distance}");
            }
        }
    }

    /// The integral of the bell curve, by Simpson's rule.
    fn error_function(x: f64) -> f64 {
        let step = x / 200.0;
        let bell = |at: f64| (-at * at).exp();
        let part = |index: i32| {
            let weight = if index % 2 == 0 { 2.0 } else { 4.0 };
            weight * bell(f64::from(index) * step)
        };
        let inner: f64 = (1..200).map(part).sum();
        (bell(0.0) + inner + bell(x)) * step / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn arrivals_of_every_shape_are_distributed_as_its_rate() {
        for (shape, mean) in shapes() {
            let mut passed = vec![0.0];
            for millisecond in 0..30_000 {
                let factor = shape.factor(f64::from(millisecond) / 1e3 + 5e-4);
                passed.push(passed[passed.len() - 1] + factor / (30_000.0 * mean));
            }
            for seed in 0..SEEDS {
                let arrivals = arrivals(Spacing::Poisson, &shape, seed, 30.0);
                let count = arrivals.len() as f64;
                let distance = kolmogorov(arrivals, |at| passed[(at * 1e3) as usize]);
                assert!(distance * count.sqrt() < 1.95, "seed {seed} {shape:?}: {distance}");
            }
        }
    }

    #[test]
    fn counts_vary_as_much_as_the_spacing_states_in_the_long_run() {
        for seed in 0..SEEDS {
            for (spacing, expected) in [
                (Spacing::Poisson, 1.0),
                (Spacing::Gamma { shape: 0.25 }, 4.0),
                (Spacing::Gamma { shape: 4.0 }, 0.25),
            ] {
                let mut counts = vec![0.0_f64; 1_000];
                for at in arrivals(spacing, &Shape::Flat, seed, 200.0) {
                    counts[(at * 5.0) as usize] += 1.0;
                }
                let mean = counts.iter().sum::<f64>() / 1e3;
                let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 999.0;
                let ratio = variance / mean / expected;
                assert!((0.75..1.3).contains(&ratio), "seed {seed} {spacing:?}: {ratio}");
            }
        }
    }

    #[test]
    fn even_gaps_do_not_vary() {
        let gaps = gaps(&arrivals(Spacing::Even, &Shape::Flat, 0, 5.0));
        assert_eq!(gaps.len(), 4_999);
        assert!(gaps.iter().all(|gap| (gap - 0.001).abs() < 1e-6));
    }

    #[test]
    fn arrivals_follow_the_shape_at_every_moment() {
        for (shape, mean) in shapes() {
            let arrivals = arrivals(Spacing::Even, &shape, 0, 30.0);
            let mut counts = vec![0.0_f64; 300];
            for at in &arrivals {
                counts[(at * 10.0) as usize] += 1.0;
            }
            for (bin, count) in counts.iter().enumerate() {
                let expected: f64 = (0..100)
                    .map(|part| shape.factor(bin as f64 / 10.0 + f64::from(part) / 1_000.0 + 5e-4))
                    .sum();
                assert!((count - expected).abs() <= 2.0, "{shape:?} bin {bin}: {count} {expected}");
            }
            assert!((arrivals.len() as f64 - 30_000.0 * mean).abs() <= 2.0, "{shape:?}");
        }
    }

    #[test]
    fn arrivals_never_go_back_in_time() {
        for seed in 0..SEEDS {
            for (shape, _) in shapes() {
                let arrivals = arrivals(Spacing::Gamma { shape: 0.1 }, &shape, seed, 10.0);
                let ordered = arrivals.windows(2).all(|pair| pair[0] <= pair[1]);
                assert!(ordered, "seed {seed} {shape:?}");
            }
        }
    }

    #[test]
    fn a_seed_names_exactly_one_list() {
        let list = |seed| arrivals(Spacing::Poisson, &Shape::Flat, seed, 1.0);
        assert_eq!(list(7), list(7));
        assert_ne!(list(7), list(8));
    }
}
