//! How fast training runs on slices.

/// Training speed of a slice by its compute slices, against the whole GPU of seven.
///
/// The medians of MISO's measurements (SoCC'22, github.com/boringlee24/socc22-miso, MIT): iteration
/// times of models and batch sizes on the slices of an A100. A test reads the measurements again.
pub const TRAINING_SPEED: [(u8, f64); 5] = [(1, 0.31), (2, 0.52), (3, 0.67), (4, 0.75), (7, 1.0)];

/// What each further rank costs all of them, as a part of their time.
///
/// Two GPUs train at 0.90 of twice the speed of one, by the median of Gavel's measurements (OSDI'20,
/// github.com/stanford-futuredata/gavel, MIT).
pub const SCALING_OVERHEAD: f64 = 0.1;

/// The training speed of a slice with `compute` of its GPU's `of` compute slices.
///
/// Between the measured sizes it is interpolated by the part of the GPU.
pub fn slice_speed(compute: u8, of: u8) -> f64 {
    let part = f64::from(compute) / f64::from(of.max(1));
    let (mut below, mut known) = ((0.0, 0.0), 1.0);
    for (sevenths, speed) in TRAINING_SPEED {
        let at = f64::from(sevenths) / 7.0;
        if part <= at {
            let (from, base) = below;
            known = base + (speed - base) * (part - from) / (at - from);
            break;
        }
        below = (at, speed);
    }
    known
}

/// The speed of `ranks` in step, the slowest of which has `speed`.
pub fn gang_speed(ranks: u32, speed: f64) -> f64 {
    let ranks = f64::from(ranks);
    ranks * speed / (1.0 + SCALING_OVERHEAD * (ranks - 1.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = include_str!("../../data/miso_a100_40gb_iter_time.csv");

    /// Medians of whole-GPU time over the slice's time, over models and batch sizes.
    fn median(slice: &str) -> f64 {
        let rows: Vec<Vec<&str>> =
            MEASURED.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let time = |row: &[&str]| row[5].parse::<f64>().unwrap();
        let mut ratios: Vec<f64> = Vec::new();
        for row in rows.iter().filter(|row| row[2] == slice) {
            let whole = rows.iter().find(|other| other[..2] == row[..2] && other[2] == "7g.40gb");
            ratios.extend(whole.map(|whole| time(whole) / time(row)));
        }
        ratios.sort_by(f64::total_cmp);
        f64::midpoint(ratios[(ratios.len() - 1) / 2], ratios[ratios.len() / 2])
    }

    #[test]
    fn speeds_are_the_medians_of_the_measurements() {
        let slices = ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];
        for (slice, (compute, speed)) in slices.iter().zip(TRAINING_SPEED) {
            let median = median(slice);
            assert!((median - speed).abs() < 0.005, "{slice}: {median} is not {speed}");
            assert!((slice_speed(compute, 7) - speed).abs() < 1e-9, "{slice}");
        }
    }

    #[test]
    fn a_larger_part_of_a_gpu_is_faster_but_not_in_proportion() {
        let (half, whole) = (slice_speed(2, 4), slice_speed(4, 4));
        assert!((0.5..1.0).contains(&half), "{half}");
        assert!((whole - 1.0).abs() < 1e-9);
    }

    #[test]
    fn every_further_rank_adds_less() {
        let gains: Vec<f64> =
            (1..8).map(|ranks| gang_speed(ranks + 1, 1.0) - gang_speed(ranks, 1.0)).collect();
        assert!(gains.windows(2).all(|pair| pair[1] < pair[0]), "{gains:?}");
        assert!(gains.iter().all(|gain| *gain > 0.0), "{gains:?}");
    }
}
