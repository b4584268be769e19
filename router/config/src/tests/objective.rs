use super::*;

fn asked(slo_ms: Option<f64>, slo_target: Option<f64>) -> Objective {
    Objective { model: "slow".to_owned(), slo_ms, slo_target, apply: true, force: false }
}

fn problems(text: &str, asked: &Objective) -> Vec<String> {
    let (config, _) = read(text).unwrap();
    match config.with_objective(asked) {
        Err(ObjectiveError::Invalid { problems }) => problems,
        other => panic!("{other:?}"),
    }
}

#[test]
fn objective_override_is_live_and_names_the_file_value() {
    let (before, _) = read(&slow("")).unwrap();
    let first = before.with_objective(&asked(Some(40.5), Some(0.95))).unwrap();
    let told = |change: &Change| {
        assert_eq!(change.effect, Effect::Live);
        format!("{}: {:?} {:?}", change.path, change.old, change.new)
    };
    let changes: Vec<String> = diff(&before, &first).iter().map(told).collect();
    let wanted = [
        r#"model.slow.slo_ms: Some("50") Some("40.5")"#,
        r#"model.slow.slo_target: Some("0.99") Some("0.95")"#,
    ];
    assert_eq!(changes, wanted);
    let then = first.with_objective(&asked(Some(30.0), None)).unwrap();
    assert_eq!(then.models[0].slo, Duration::from_millis(30));
    let kept = ["slo_ms = 50 (r.toml:5)", "slo_target = 0.99 (default)"];
    assert_eq!(then.overruled("slow"), kept);
    assert!(before.overruled("slow").is_empty());
}

#[test]
fn the_rules_of_the_file_hold_for_a_live_objective() {
    let text = slow("");
    let found = problems(&text, &asked(Some(0.2), Some(1.0)));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("slo_ms is 0.2; give 1 to"), "{found:?}");
    assert!(found[1].starts_with("slo_target is 1; give more than 0"), "{found:?}");
    let found = problems(&text, &asked(Some(1.0), None));
    assert!(found[0].starts_with("slo_ms is 1 but a batch of 1 takes"), "{found:?}");
    let found = problems(&text, &asked(None, None));
    assert!(found[0].contains("give slo_ms, slo_target or both"), "{found:?}");
    let timeout = slow("batching = \"timeout\"\nbatch_size = 4\nbatch_delay_ms = 30");
    let found = problems(&timeout, &asked(Some(29.0), None));
    assert!(found[0].starts_with("batch_delay_ms is 30; give 0 to less than slo_ms"), "{found:?}");
    let other = Objective { model: "none".to_owned(), ..asked(Some(40.0), None) };
    let (config, _) = read(&text).unwrap();
    let unknown = ObjectiveError::UnknownModel {
        model: "none".to_owned(),
        hint: "; known are slow".to_owned(),
    };
    assert_eq!(config.with_objective(&other).unwrap_err(), unknown);
}

#[test]
fn timeout_is_the_objective_unless_longer_and_follows_it() {
    let (config, _) = read(&slow("")).unwrap();
    assert_eq!(config.models[0].timeout(), Duration::from_millis(50));
    let raised = config.with_objective(&asked(Some(80.0), None)).unwrap();
    assert_eq!(raised.models[0].timeout(), Duration::from_millis(80));
    let (config, _) = read(&slow("timeout_ms = 60")).unwrap();
    assert_eq!(config.models[0].timeout(), Duration::from_millis(60));
    let raised = config.with_objective(&asked(Some(80.0), None)).unwrap();
    assert_eq!(raised.models[0].timeout(), Duration::from_millis(80));
    let told = read(&slow("timeout_ms = 49")).unwrap_err().to_string();
    assert!(told.contains("timeout_ms is 49; give slo_ms, which is 50, to 3600000"), "{told}");
}

#[test]
fn timeout_change_is_live() {
    let (before, _) = read(&slow("timeout_ms = 60")).unwrap();
    let (after, _) = read(&slow("timeout_ms = 70")).unwrap();
    let changes = diff(&before, &after);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(
        (changes[0].path.as_str(), changes[0].effect),
        ("model.slow.timeout_ms", Effect::Live)
    );
}
