//! What is shipped for Prometheus and Grafana names the metrics there are, all of them, and no other.

use std::collections::BTreeSet;

use router::metrics::{ALL, Kind, Spec};
use serde_json::Value;

use crate::{
    documents::headings,
    tree::{File, files, report},
};

fn under(folder: &str, ending: &str) -> Vec<File> {
    let wanted = |file: &File| file.path.starts_with(folder) && file.path.ends_with(ending);
    let found: Vec<File> = files().into_iter().filter(wanted).collect();
    assert!(!found.is_empty(), "nothing under {folder}");
    found
}

fn rules() -> Vec<File> {
    under("dashboards/prometheus/", ".yaml")
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition"].contains(&key.as_str()) => {
                        found.push(text.to_owned());
                    }
                    Some(_) | None => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The names in `text` that are of a metric, exported or recorded.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(move |c: char| !part(c))
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.contains("sluice_") && !word.starts_with("docs"))
}

/// The metric a series belongs to: a histogram has three.
fn exported(name: &str) -> Option<&'static str> {
    let of = |spec: &&Spec| {
        let part = name.strip_prefix(spec.name);
        let histogram = matches!(spec.kind, Kind::Histogram(_));
        part == Some("")
            || histogram && part.is_some_and(|part| ["_bucket", "_sum", "_count"].contains(&part))
    };
    ALL.iter().find(of).map(|spec| spec.name)
}

fn without_comments(file: &File) -> String {
    let kept = file.lines().filter(|(_, line)| !line.trim_start().starts_with('#'));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// Where each name of every panel and rule stands.
fn used() -> Vec<(String, String)> {
    let mut used = Vec::new();
    for file in under("dashboards/grafana/", ".json") {
        let board: Value = serde_json::from_slice(&file.bytes).expect("a dashboard is JSON");
        let mut found = Vec::new();
        expressions(&board, &mut found);
        assert!(!found.is_empty(), "{} asks nothing", file.path);
        for expression in &found {
            used.extend(names(expression).map(|name| (file.path.clone(), name.to_owned())));
        }
    }
    for file in rules() {
        let text = without_comments(&file);
        used.extend(names(&text).map(|name| (file.path.clone(), name.to_owned())));
    }
    used
}

#[test]
fn every_metric_named_on_a_panel_or_in_a_rule_exists() {
    let recorded: BTreeSet<String> = rules()
        .iter()
        .flat_map(|file| without_comments(file).lines().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|line| Some(line.split_once("record: ")?.1.to_owned()))
        .collect();
    assert!(!recorded.is_empty());
    let known = |name: &str| exported(name).is_some() || recorded.contains(name);
    let unknown = used().into_iter().filter(|(_, name)| !known(name));
    let problems: Vec<String> = unknown.map(|(path, name)| format!("{path}: {name}")).collect();
    report(&problems);
}

#[test]
fn every_metric_is_on_some_panel_or_in_some_rule() {
    let used = used();
    let shown: BTreeSet<&str> = used.iter().filter_map(|(_, name)| exported(name)).collect();
    let problem = |spec: &Spec| match (spec.replaced_by, shown.contains(spec.name)) {
        (None, false) => Some(format!("{}: on no panel", spec.name)),
        (Some(by), true) => Some(format!("{}: use {by}", spec.name)),
        (None, true) | (Some(_), false) => None,
    };
    report(&ALL.iter().filter_map(problem).collect::<Vec<_>>());
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let text: String = rules()
        .iter()
        .filter(|file| !file.path.ends_with(".test.yaml"))
        .map(without_comments)
        .collect();
    let after = |key: &'static str| {
        let lines = text.lines().filter_map(move |line| Some(line.split_once(key)?.1));
        lines.map(str::trim).map(str::to_owned).collect::<Vec<_>>()
    };
    let alerts = after("alert: ");
    let anchors: Vec<String> =
        alerts.iter().map(|alert| format!("docs/runbooks.md#{}", alert.to_lowercase())).collect();
    assert_eq!(after("runbook: "), anchors);
    let docs = files().into_iter().find(|file| file.path == "docs/runbooks.md");
    let docs = docs.expect("it exists");
    let found = headings(docs.text().unwrap_or_default());
    let books: Vec<String> = found.filter(|heading| heading.starts_with("sluice")).collect();
    let wanted: Vec<String> = alerts.iter().map(|alert| alert.to_lowercase()).collect();
    assert_eq!(books, wanted);
}

#[test]
fn a_name_is_found_among_the_rest_of_an_expression() {
    let text = "sum by (le) (rate(sluice_a_bucket{model=~\"$model\"}[5m])) / model:sluice_b:ratio";
    assert_eq!(names(text).collect::<Vec<_>>(), ["sluice_a_bucket", "model:sluice_b:ratio"]);
    assert_eq!(exported("sluice_batch_rows_count"), Some("sluice_batch_rows"));
    assert_eq!(exported("sluice_queue_requests_count"), None);
}
