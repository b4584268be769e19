use policy::place::{Pin, Target, place};

use super::*;

fn snapshot() -> Snapshot {
    let kind = mig::kind("A100-80GB").unwrap();
    let rows = [("1g.10gb", 100.0), ("7g.80gb", 650.0)].map(|(profile, throughput_rps)| Row {
        profile: profile.to_owned(),
        batch: 4,
        processes: 1,
        throughput_rps,
    });
    let model = Model {
        name: "digits".to_owned(),
        demand_rps: 250.0,
        slo_ms: 500.0,
        measured: vec![Measured { kind: None, rows: rows.to_vec() }],
        max_batch: Some(8),
        memory_mib: None,
        replicas_min: 1,
        replicas_max: 4,
        load: Draw { power: 0.8, bandwidth: 0.5, pcie: 0.01 },
        home: Home::Cores,
        slowdown: 1.1,
    };
    let replica = Replica {
        id: 7,
        model: Some(0),
        current: true,
        processes: 1,
        state: State::Ready,
        busy: 0.25,
    };
    let slice = Slice {
        position: kind.position("1g.10gb@3").unwrap(),
        loaned: false,
        doomed: false,
        replicas: vec![replica],
    };
    let gpu = Gpu { kind, healthy: true, cuttable: true, slices: vec![slice] };
    Snapshot {
        models: vec![model],
        gpus: vec![gpu.clone(), Gpu { slices: Vec::new(), ..gpu }],
        rules: Rules::default(),
        pins: vec![Pin {
            model: 0,
            gpu: 1,
            position: kind.position("7g.80gb@0").unwrap(),
            from: Some((0, kind.position("1g.10gb@3").unwrap())),
            by: "ada".to_owned(),
        }],
        consolidate: true,
        last: Target::default(),
    }
}

#[test]
fn a_dump_is_decided_as_the_router_decided() {
    let mut original = snapshot();
    original.last = place(&original).target;
    let text = dump(&original);
    assert_eq!(text.lines().count(), 1);
    let read = load(&text).unwrap();
    assert_eq!(dump(&read), text);
    assert_eq!(place(&read), place(&original));
    assert!(!place(&read).steps.is_empty());
}

#[test]
fn a_dump_that_cannot_be_is_refused_with_what_is_wrong() {
    let mut snapshot = snapshot();
    snapshot.last = place(&snapshot).target;
    let text = dump(&snapshot);
    let refusal = |from: &str, to: &str| {
        let error = load(&text.replace(from, to)).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    assert!(refusal("1g.10gb@3", "1g.10gb@9").starts_with("GPU 0 of the dump cannot be: 1g.10gb"));
    assert!(refusal("A100-80GB", "A99").contains("no GPU kind named \"A99\""));
    assert_eq!(
        refusal("\"model\":0", "\"model\":3"),
        "replica 7 is of model 3, and there are only 1: "
    );
    assert_eq!(
        refusal("\"gpu\":1", "\"gpu\":2"),
        "something is placed on GPU 2, and there are only 2: "
    );
    assert!(refusal("\"healthy\"", "\"wealthy\"").contains("unknown field `wealthy`"));
}
