use std::path::Path;

use policy::interference::{Draw, Runner, Scene, Times};
use protocol::{
    GpuReport, ReadyReplica, ReplicaReport, ReplicaState, Report, Shapes, SliceReport, WarmPoint,
};

use super::*;
use crate::learned::Asked;

fn config(source: &str) -> Config {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let model = |name: &str, path: &str| {
        format!("[[model]]\nname = \"{name}\"\nengine = \"onnx\"\npath = \"{path}\"\nslo_ms = 50\n")
    };
    let text = model("langid", "models/langid.onnx") + &model("digits", source);
    config::parse(Path::new("r.toml"), &text, &folder).unwrap().0
}

fn report(model: &str) -> Report {
    let point = |batch: u32, micros: u64| WarmPoint { batch, compute_us: vec![micros; 3] };
    let ready = ReadyReplica {
        address: String::new(),
        token: String::new(),
        signature: Shapes { inputs: Vec::new(), outputs: Vec::new() },
        platform: String::new(),
        max_batch: 32,
        warmup: vec![point(1, 1_500), point(32, 9_000)],
        load_us: 1,
        memory_bytes: 1,
    };
    let replica = ReplicaReport {
        replica: 1,
        model: model.to_owned(),
        version: "1".to_owned(),
        digest: 1,
        lane: 0,
        serves: true,
        state: ReplicaState::Ready(Box::new(ready)),
    };
    let slice = SliceReport {
        slice: "gpu0:3g@4".to_owned(),
        position: "3g.40gb@4".to_owned(),
        profile: "3g.40gb".to_owned(),
        uuid: None,
        memory_bytes: None,
        lanes: Vec::new(),
        replicas: vec![replica],
        rank: None,
    };
    let kind = Some("A100-80GB".to_owned());
    let gpu = GpuReport { kind, slices: vec![slice], ..GpuReport::default() };
    Report { gpus: vec![gpu], ..Report::default() }
}

fn clocks(seconds: u64) -> Clocks {
    let now = Moment::default() + Duration::from_secs(seconds);
    Clocks { now, wall_ms: 1_794_816_000_000 + seconds * 1_000 }
}

/// What one process knows of both models, digits beside langid.
fn taught(config: &Config) -> Memory {
    let mut placer = Placer::default();
    placer.lessons.learn(&report("digits"));
    let runner = |model| Runner { model, compute: 3.0 / 7.0, busy: 1.0, load: Draw::default() };
    let scene = Scene { own: runner(1), others: &[runner(0)] };
    let alone = Duration::from_millis(10);
    for second in 0..60 {
        let times = Times { took: alone * 2, alone };
        placer.neighbours.observe(&scene, times, clocks(second).now);
    }
    let asked = Asked { minutes: vec![40.0, 50.0], load_ms: Some(700), ..Asked::default() };
    placer.demands.recall("digits", &asked, (Duration::ZERO, clocks(60).day()));
    placer.memory(config, clocks(60))
}

#[test]
fn the_next_process_knows_of_models_it_has_no_replica_of() {
    let config = config("models/digits.onnx");
    let memory = taught(&config);
    let mut placer = Placer::default();
    assert!(placer.models(&config).iter().all(|model| model.measured.is_empty()));
    placer.recall(&memory, &config, clocks(60));
    let models = placer.models(&config);
    let measured = &models[1].measured[0];
    assert_eq!(measured.kind.as_deref(), Some("A100-80GB"));
    let rows: Vec<_> = measured.rows.iter().map(|row| (row.batch, row.throughput_rps)).collect();
    assert_eq!(rows, [(1, 1.0 / 0.0015), (32, 32.0 / 0.009)]);
    assert!(models[0].measured.is_empty(), "nothing was learned of langid");
    assert_eq!(placer.memory(&config, clocks(60)), memory, "what is recalled is kept");
    assert_eq!(memory.models["digits"].beside.len(), 2);
}

#[test]
fn a_model_that_is_something_else_now_keeps_its_callers_and_not_its_speed() {
    let memory = taught(&config("models/digits.onnx"));
    let other = config("models/langid.onnx");
    let mut placer = Placer::default();
    placer.recall(&memory, &other, clocks(60));
    assert!(placer.models(&other).iter().all(|model| model.measured.is_empty()));
    let again = placer.memory(&other, clocks(60));
    assert_eq!(again.models["digits"].demand, memory.models["digits"].demand);
    assert_eq!(again.models["digits"].beside, []);
}

#[test]
fn numbers_that_make_no_sense_are_not_taken_up() {
    let config = config("models/digits.onnx");
    let mut memory = taught(&config);
    let digits = memory.models.get_mut("digits").unwrap();
    for profiles in digits.warmups.iter_mut().map(|one| &mut one.profiles) {
        profiles.insert("1g.10gb".to_owned(), vec![(1, 0.0)]);
        profiles.insert("2g.20gb".to_owned(), vec![(0, 0.1)]);
    }
    let mut placer = Placer::default();
    placer.recall(&memory, &config, clocks(60));
    let models = placer.models(&config);
    let profiles: Vec<_> =
        models[1].measured[0].rows.iter().map(|row| row.profile.as_str()).collect();
    assert_eq!(profiles, ["3g.40gb", "3g.40gb"]);
}
