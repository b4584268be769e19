use std::{collections::BTreeMap, path::Path};

use super::*;
use crate::world::model_terms;

fn config(source: &str) -> Config {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let model = |name: &str, path: &str| {
        format!("[[model]]\nname = \"{name}\"\nengine = \"onnx\"\npath = \"{path}\"\nslo_ms = 50\n")
    };
    let text = model("langid", "models/langid.onnx") + &model("digits", source);
    config::parse(Path::new("r.toml"), &text, &folder).unwrap().0
}

fn after(seconds: u64) -> Moment {
    Moment::default() + Duration::from_secs(1_794_816_000 + seconds)
}

fn place() -> PlaceMemory {
    round::Memory::new(after(0), BTreeMap::new()).place
}

fn models(place: &PlaceMemory, config: &Config) -> Vec<policy::plan::Model> {
    let terms: Vec<_> = config.models.iter().map(model_terms).collect();
    place.models(&terms)
}

/// What one process knows of both models, digits beside langid.
fn taught(config: &Config) -> Memory {
    let mut place = place();
    let points = vec![(1, 0.0015), (32, 0.009)];
    let profiles = BTreeMap::from([("3g.40gb".to_owned(), points)]);
    let speeds = KeptSpeeds { kind: Some("A100-80GB".to_owned()), profiles };
    place.recall_speeds("digits", &[speeds]);
    let beside = |others| Corrected { model: 1, compute: 429, others, factor: 1.25, seen: 60 };
    let corrections = [beside(None), beside(Some(vec![(0, 429)]))];
    place.recall_corrections(&corrections, Duration::ZERO, after(60));
    let asked = Asked { minutes: vec![40.0, 50.0], load_ms: Some(700), ..Asked::default() };
    place.recall_demand("digits", kept_demand(&asked), Duration::ZERO, day(after(60)));
    kept(&place, config, after(60))
}

#[test]
fn the_next_process_knows_of_models_it_has_no_replica_of() {
    let config = config("models/digits.onnx");
    let memory = taught(&config);
    let mut place = place();
    assert!(models(&place, &config).iter().all(|model| model.measured.is_empty()));
    recall(&mut place, &memory, &config, after(60));
    let models = models(&place, &config);
    let measured = &models[1].measured[0];
    assert_eq!(measured.kind.as_deref(), Some("A100-80GB"));
    let rows: Vec<_> = measured.rows.iter().map(|row| (row.batch, row.throughput_rps)).collect();
    assert_eq!(rows, [(1, 1.0 / 0.0015), (32, 32.0 / 0.009)]);
    assert!(models[0].measured.is_empty(), "nothing was learned of langid");
    assert_eq!(kept(&place, &config, after(60)), memory, "what is recalled is kept");
    assert_eq!(memory.models["digits"].beside.len(), 2);
}

#[test]
fn a_model_that_is_something_else_now_keeps_its_callers_and_not_its_speed() {
    let memory = taught(&config("models/digits.onnx"));
    let other = config("models/langid.onnx");
    let mut place = place();
    recall(&mut place, &memory, &other, after(60));
    assert!(models(&place, &other).iter().all(|model| model.measured.is_empty()));
    let again = kept(&place, &other, after(60));
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
    let mut place = place();
    recall(&mut place, &memory, &config, after(60));
    let models = models(&place, &config);
    let profiles: Vec<_> =
        models[1].measured[0].rows.iter().map(|row| row.profile.as_str()).collect();
    assert_eq!(profiles, ["3g.40gb", "3g.40gb"]);
}
