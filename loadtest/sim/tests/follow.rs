//! Placement that follows a load that doubles.

use std::{path::Path, time::Duration};

use sim::{simulate::simulate, study::Study};

/// The load of `doubling.toml` has doubled by then.
const DOUBLED_S: f64 = 610.0;

#[test]
fn load_that_doubles_in_10_s_is_in_time_again_5_s_later() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim/doubling.toml");
    let mut study = Study::load(&file).unwrap_or_else(|error| panic!("{error}"));
    study.terms.duration = Duration::from_secs(660);
    study.models.truncate(1);
    study.streams.truncate(1);
    let summary = simulate(&study, 1).unwrap_or_else(|error| panic!("{error}"));
    for point in &summary.timeline {
        let quiet = point.at_s < DOUBLED_S - 10.0 || point.at_s > DOUBLED_S + 5.0;
        assert!(!quiet || point.in_time_rps >= 0.99 * point.offered_rps, "{point:?}");
    }
    let ends = summary.ends;
    let lost = ends.offered - ends.in_time;
    assert!(lost < ends.offered / 50, "{ends:?}");
    let followed = summary.following.expect("it followed");
    assert!(followed.gpu_hours < 0.9 * followed.static_peak_gpu_hours, "{followed:?}");
}
