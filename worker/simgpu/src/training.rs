//! How fast training runs on a slice, alone and beside others.
//!
//! By slice: medians over the models MISO measured on an A100-40GB. Sharing a slice: the median of
//! the pairs Gavel measured on a V100. `data/ATTRIBUTION.md` says where both come from, and a test
//! derives the numbers below from them.

use mig::{Kind, Profile};

/// Speed by part of the GPU's compute, of that on the whole GPU.
const BY_PART: [(f64, f64); 6] = [
    (0.0, 0.0),
    (1.0 / 7.0, 0.309),
    (2.0 / 7.0, 0.516),
    (3.0 / 7.0, 0.668),
    (4.0 / 7.0, 0.746),
    (1.0, 1.0),
];
/// Speed of each of two that share a GPU or a slice, of that alone.
const OF_TWO: f64 = 0.68;

pub fn speed(kind: &Kind, profile: &Profile) -> f64 {
    let part = f64::from(profile.compute_slices) / f64::from(kind.compute_slices);
    let above = BY_PART.partition_point(|(known, _)| *known < part).clamp(1, BY_PART.len() - 1);
    let [(small, slow), (large, fast)] = [BY_PART[above - 1], BY_PART[above]];
    slow + (fast - slow) * (part - small) / (large - small)
}

/// Speed of each of `sharers` on one slice, of that alone: what two reach together is all that
/// more than two have to divide.
pub fn shared(sharers: u32) -> f64 {
    match sharers {
        0 | 1 => 1.0,
        many => 2.0 * OF_TWO / f64::from(many),
    }
}

/// How much longer a batch takes while `jobs` train on its own slice.
pub fn slowdown_beside(jobs: u32) -> f64 {
    1.0 / shared(jobs.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mig::kind;

    use super::*;

    fn columns<'t>(text: &'t str, names: &[&str]) -> Vec<Vec<&'t str>> {
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let wanted: Vec<usize> =
            names.iter().map(|name| header.iter().position(|one| one == name).unwrap()).collect();
        lines
            .map(|line| {
                let fields: Vec<&str> = line.split(',').collect();
                wanted.iter().map(|column| fields[*column]).collect()
            })
            .collect()
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 {
            values[middle]
        } else {
            (values[middle - 1] + values[middle]) / 2.0
        }
    }

    #[test]
    fn speed_by_slice_is_the_median_of_what_miso_measured() {
        let text = include_str!("../data/miso_a100_40gb_iter_time.csv");
        let rows = columns(text, &["model", "batch_size", "mig_slice", "median_iter_s"]);
        let mut times: BTreeMap<(&str, &str), BTreeMap<&str, f64>> = BTreeMap::new();
        for row in rows {
            times.entry((row[0], row[1])).or_default().insert(row[2], row[3].parse().unwrap());
        }
        let kind = kind("A100-40GB").unwrap();
        for name in ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"] {
            let of = |by: &BTreeMap<&str, f64>| Some(by.get("7g.40gb")? / by.get(name)?);
            let measured = median(times.values().filter_map(of).collect());
            let ours = speed(kind, kind.profile(name).unwrap());
            assert!((ours - measured).abs() < 0.002, "{name}: {ours} for {measured}");
        }
    }

    #[test]
    fn speed_of_two_that_share_is_the_median_of_what_gavel_measured() {
        let text = include_str!("../data/gavel_v100_pairs.csv");
        let rows = columns(text, &["norm1", "norm2"]);
        let speeds = rows.iter().flatten().map(|text| text.parse::<f64>().unwrap());
        // A speed of 0 is a pair that did not fit the memory.
        let measured = median(speeds.filter(|speed| *speed > 0.0).collect());
        assert!((shared(2) - measured).abs() < 0.005, "{} for {measured}", shared(2));
    }

    #[test]
    fn more_sharers_get_less_each_and_a_larger_slice_more() {
        assert!([1, 2, 3, 4].map(shared).is_sorted_by(|few, many| few > many));
        let a30 = kind("A30-24GB").unwrap();
        let speeds: Vec<f64> = ["1g.6gb", "2g.12gb", "4g.24gb"]
            .iter()
            .map(|name| speed(a30, a30.profile(name).unwrap()))
            .collect();
        assert!(speeds.is_sorted() && speeds[2] == 1.0, "{speeds:?}");
        assert!((slowdown_beside(1) - 1.0 / 0.68).abs() < 1e-9);
    }
}
