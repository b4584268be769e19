//! Models and fleets made from the measured profiles.

use std::path::PathBuf;

use policy::{
    interference::Draw,
    plan::{Gpus, Measured, Model, Problem, Row, Rules},
};
use simgpu::random::Random;

pub(crate) const NAMES: [&str; 11] = [
    "bert",
    "densenet121",
    "densenet169",
    "densenet201",
    "inceptionv3",
    "mobilenetv2",
    "resnet101",
    "resnet152",
    "resnet50",
    "vgg16",
    "vgg19",
];

pub(crate) fn between(random: &mut Random, least: f64, most: f64) -> f64 {
    least + (most - least) * random.unit()
}

/// Every order of magnitude equally likely.
fn magnitude(random: &mut Random, least: f64, most: f64) -> f64 {
    between(random, least.ln(), most.ln()).exp()
}

pub(crate) fn configs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

pub(crate) fn rows(name: &str) -> Vec<Row> {
    let path = configs().join(format!("profiles/{name}.csv"));
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Row {
            profile: fields[0].to_owned(),
            batch: fields[1].parse().unwrap(),
            processes: fields[2].parse().unwrap(),
            throughput_rps: fields[3].parse().unwrap(),
        }
    };
    text.lines().skip(1).map(row).collect()
}

/// The rows as another GPU might give them: all faster, or slower, under its own names.
fn scaled(rows: &[Row], by: f64, name: impl Fn(&str) -> Option<String>) -> Vec<Row> {
    let each = rows.iter().filter_map(|row| {
        let throughput_rps = row.throughput_rps * by;
        name(&row.profile).map(|profile| Row { profile, throughput_rps, ..row.clone() })
    });
    each.collect()
}

fn model(index: usize, gpus: f64, random: &mut Random) -> Model {
    let name = NAMES[random.below(NAMES.len() as u64) as usize];
    let rows = rows(name);
    let of_a30 = |profile: &str| match profile {
        "1g.10gb" => Some("1g.6gb".to_owned()),
        "2g.20gb" => Some("2g.12gb".to_owned()),
        "4g.40gb" => Some("4g.24gb".to_owned()),
        _ => None,
    };
    let mut on_a30 = scaled(&rows, 0.95, of_a30);
    on_a30.retain(|row| row.processes * row.batch <= 32);
    let faster = between(random, 1.4, 2.2);
    let measured = vec![
        Measured {
            kind: Some("H100-80GB".to_owned()),
            rows: scaled(&rows, faster, |profile| Some(profile.to_owned())),
        },
        Measured { kind: Some("A30-24GB".to_owned()), rows: on_a30 },
        Measured { kind: Some("A100-80GB".to_owned()), rows: rows.clone() },
    ];
    let whole = rows.iter().filter(|row| row.profile == "7g.80gb");
    let peak_rps = whole.clone().map(|row| row.throughput_rps).fold(0.0, f64::max);
    let latency = |row: &Row| f64::from(row.batch * row.processes) / row.throughput_rps * 1000.0;
    let least_ms = rows.iter().map(latency).fold(f64::INFINITY, f64::min);
    Model {
        name: format!("{name}-{index}"),
        demand_rps: peak_rps * gpus * magnitude(random, 0.1, 2.0),
        slo_ms: least_ms * between(random, 20.0, 60.0),
        measured,
        max_batch: None,
        memory_mib: (random.below(2) == 0).then(|| 400 + random.below(1_600)),
        replicas_min: 1 + u32::from(random.below(8) == 0),
        replicas_max: u32::MAX,
        load: Draw::default(),
        home: policy::fleet::Home::Any,
        slowdown: 1.0,
    }
}

/// 3 to 40 models that need about 1 to 2,000 GPUs, on a mix of A30, A100 and H100.
pub(crate) fn problem(seed: u64, share_slices: bool) -> Problem {
    let mut random = Random::new(seed);
    let models = 3 + random.below(38) as usize;
    let gpus = magnitude(&mut random, 1.0, 1_500.0);
    let kind = |name: &str| mig::kind(name).unwrap();
    let mut part = |least: f64, most: f64| (gpus * between(&mut random, least, most)).ceil() as u32;
    let fleet = vec![
        Gpus { kind: kind("A30-24GB"), count: part(0.0, 1.0) + 1 },
        Gpus { kind: kind("A100-80GB"), count: part(2.0, 4.0) + 10 },
        Gpus { kind: kind("H100-80GB"), count: part(0.0, 1.0) + 1 },
    ];
    Problem {
        models: (0..models).map(|index| model(index, gpus / models as f64, &mut random)).collect(),
        fleet,
        rules: Rules { share_slices, ..Rules::default() },
    }
}
