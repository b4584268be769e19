//! The simulated GPU against the measurements it is made from, and against those it was not shown.

use std::{collections::BTreeSet, fs, path::Path};

use mig::{
    kind,
    measured::{Row, parse},
};
use simgpu::{Measured, Models, SimError};

const MODELS: [&str; 11] = [
    "bert",
    "densenet121",
    "densenet169",
    "densenet201",
    "inceptionv3",
    "mobilenetv2",
    "resnet50",
    "resnet101",
    "resnet152",
    "vgg16",
    "vgg19",
];

fn rows(model: &str) -> Vec<Row> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/profiles");
    let text = fs::read_to_string(folder.join(format!("{model}.csv")))
        .expect("the profiles shipped are good");
    parse(&text).expect("the profiles shipped are good")
}

/// The part by which the throughput of `rows` differs from what `known` predicts.
fn errors(known: &[Row], rows: &[Row]) -> Vec<f64> {
    let a100 = kind("A100-80GB").expect("the profiles shipped are good");
    let measured = Measured::new(Some(a100), known).expect("the profiles shipped are good");
    let error = |row: &Row| {
        let speed = measured.on(a100, &row.profile).expect("the profiles shipped are good");
        let ms = speed.batch_ms(row.batch, row.processes).expect("the profiles shipped are good");
        let rps = 1e3 * f64::from(row.batch * row.processes) / ms;
        (rps / row.throughput_rps - 1.0).abs()
    };
    rows.iter().map(error).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn every_measured_row_is_within_a_tenth() {
    let mut checked = 0;
    for model in MODELS {
        let rows = rows(model);
        let worst = errors(&rows, &rows).into_iter().fold(0.0, f64::max);
        assert!(worst < 0.1, "{model}: {worst}");
        checked += rows.len();
    }
    assert!(checked > 1_700, "only {checked} rows");
}

#[test]
fn median_error_of_an_unmeasured_profile_is_under_an_eighth() {
    for hidden in ["2g.20gb", "3g.40gb", "4g.40gb"] {
        let mut found = Vec::new();
        for model in MODELS {
            let (unseen, known): (Vec<Row>, Vec<Row>) =
                rows(model).into_iter().partition(|row| row.profile == hidden);
            found.extend(errors(&known, &unseen));
        }
        let middle = median(found);
        assert!(middle < 0.125, "{hidden}: {middle}");
    }
}

#[test]
fn median_error_of_unmeasured_sizes_is_under_a_twentieth() {
    let mut found = Vec::new();
    for model in MODELS {
        let rows = rows(model);
        for hidden in [4, 16, 32] {
            let (unseen, known): (Vec<Row>, Vec<Row>) =
                rows.iter().cloned().partition(|row| row.batch == hidden);
            found.extend(errors(&known, &unseen));
        }
    }
    let middle = median(found);
    assert!(middle < 0.05, "{middle}");
}

#[test]
fn whole_gpu_predicts_a_small_slice_to_half_in_the_median() {
    let mut found = Vec::new();
    for model in MODELS {
        let (known, rest): (Vec<Row>, Vec<Row>) =
            rows(model).into_iter().partition(|row| row.profile == "7g.80gb");
        let unseen: Vec<Row> = rest.into_iter().filter(|row| row.processes == 1).collect();
        found.extend(errors(&known, &unseen));
    }
    let middle = median(found);
    assert!(middle < 0.5, "{middle}");
}

#[test]
fn another_gpu_scales_by_bandwidth_and_media_slices_do_not() {
    let (a100, h100) = (kind("A100-80GB").unwrap(), kind("H100-80GB").unwrap());
    let measured = Measured::new(Some(a100), &rows("resnet50")).unwrap();
    let ms = |kind, profile| measured.on(kind, profile).unwrap().batch_ms(8, 1).unwrap();
    let ratio = ms(a100, "3g.40gb") / ms(h100, "3g.40gb");
    assert!((ratio - 3_350.0 / 2_039.0).abs() < 1e-9, "{ratio}");
    assert_eq!(ms(a100, "1g.10gb"), ms(a100, "1g.10gb+me"));
    assert_eq!(ms(a100, "1g.10gb"), ms(a100, "1g.20gb"));
    let anywhere = Measured::new(None, &rows("resnet50")).unwrap();
    assert_eq!(anywhere.on(h100, "3g.40gb"), measured.on(a100, "3g.40gb"));
}

#[test]
fn batch_time_grows_with_rows_on_every_profile_of_every_gpu() {
    let measured = Measured::new(None, &rows("vgg16")).unwrap();
    for kind in mig::kinds() {
        for profile in &kind.profiles {
            let speed = measured.on(kind, &profile.name).unwrap();
            let times: Vec<f64> = [1, 2, 8, 32, 128, 512]
                .iter()
                .map(|batch| speed.batch_ms(*batch, 1).unwrap())
                .collect();
            assert!(
                times.is_sorted() && times[0] > 0.0,
                "{} {}: {times:?}",
                kind.name,
                profile.name
            );
        }
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let a100 = kind("A100-80GB").unwrap();
    let mut models = Models::default();
    models.insert("vgg16", Measured::new(None, &rows("vgg16")).unwrap());
    let refusal = models.get("vgg61").unwrap_err().to_string();
    assert_eq!(refusal, "no measurements of a model named \"vgg61\"; there are vgg16");
    let refusal = models.get("vgg16").unwrap().on(a100, "3g.20gb").unwrap_err();
    assert!(matches!(refusal, SimError::Mig(_)), "{refusal}");
    assert_eq!(Measured::new(None, &[]).unwrap_err(), SimError::Unmeasured);
}

#[test]
fn processes_in_a_slice_slow_each_other_as_measured() {
    let a100 = kind("A100-80GB").unwrap();
    let speed = Measured::new(None, &rows("resnet50")).unwrap().on(a100, "1g.10gb").unwrap();
    let counts: BTreeSet<u32> = rows("resnet50").iter().map(|row| row.processes).collect();
    let times: Vec<f64> = counts.iter().map(|count| speed.batch_ms(8, *count).unwrap()).collect();
    assert!(times.is_sorted_by(|few, many| few < many), "{times:?}");
    assert!((times[1] - 43.17).abs() < 0.01, "two processes: {times:?}");
}
