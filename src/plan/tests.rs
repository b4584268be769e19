use std::path::Path;

use super::*;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn args(format: Format) -> Args {
    Args {
        file: None,
        format,
        explain: false,
        compare: false,
        replay: None,
        dump: false,
        instead: Instead::default(),
        admin: Admin::default(),
    }
}

fn scenario(number: u32) -> Problem {
    let path = format!("{ROOT}/configs/plans/scenario-{number}.toml");
    planfile::load(Path::new(&path)).unwrap().0
}

#[test]
fn json_keys_keep_their_order() {
    let problem = scenario(1);
    let verdict = judge(&args(Format::Json), &problem);
    assert_eq!((verdict.code, verdict.stderr.as_str()), (0, ""));
    assert_eq!(verdict.stdout.lines().count(), 1);
    let keys = [
        "{\"gpus_used\":1,\"slices\":[{\"gpu\":0,\"profile\":\"",
        "\"start\":",
        "\"replicas\":[{\"model\":\"",
        "\"batch\":",
        "\"processes\":",
        "\"capacity_rps\":",
        "\"predicted_latency_ms\":",
        "\"models\":[{\"model\":\"bert\",\"demand_rps\":19.0,\"capacity_rps\":",
        "\"lower_bound_gpus\":0.834,\"seconds\":",
    ];
    let mut rest = verdict.stdout.as_str();
    for key in keys {
        let at = rest.find(key).unwrap_or_else(|| panic!("no {key} in {rest}"));
        rest = &rest[at + key.len()..];
    }
    assert!(!verdict.stdout.contains("why"));
    let explained = judge(&Args { explain: true, ..args(Format::Json) }, &problem);
    assert!(explained.stdout.contains("\"why\":\""));
    assert!(explained.stdout.contains("\"proven_gpus\":1"));
}

#[test]
fn the_table_draws_every_gpu_and_lists_every_model() {
    let problem = scenario(2);
    let verdict = judge(&args(Format::Table), &problem);
    let text = &verdict.stdout;
    assert!(text.starts_with("2 of 11 GPUs, which is the fewest possible"), "{text}");
    assert!(text.contains("gpu 0, A100-80GB\n  | "), "{text}");
    assert!(text.contains("gpu 1, A100-80GB\n  | "), "{text}");
    for bar in text.lines().filter(|line| line.starts_with("  |")) {
        assert_eq!(bar.len(), 2 + 1 + 8 * 9, "{bar}");
    }
    for model in &problem.models {
        assert!(text.lines().any(|line| line.starts_with(&model.name)), "{}\n{text}", model.name);
    }
}

#[test]
fn a_fleet_too_small_is_an_error_with_what_is_missing() {
    let mut problem = scenario(3);
    problem.fleet[0].count = 3;
    let verdict = judge(&args(Format::Json), &problem);
    assert_eq!((verdict.code, verdict.stdout.as_str()), (1, ""));
    assert!(verdict.stderr.starts_with("error: the fleet of 3 GPUs is too small"));
    assert!(
        verdict.stderr.ends_with("\n  1 more A100-80GB would be enough\n"),
        "{}",
        verdict.stderr
    );
}

#[test]
fn the_comparison_has_a_line_for_every_planner() {
    let verdict = judge(&Args { compare: true, ..args(Format::Table) }, &scenario(1));
    for planner in Planner::ALL {
        assert!(
            verdict.stdout.lines().any(|line| line.starts_with(planner.name())),
            "{}",
            verdict.stdout
        );
    }
}

#[test]
fn replay_repeats_a_decision_with_every_reason() {
    let path = std::env::temp_dir().join(format!("sluice-dump-{}.json", std::process::id()));
    let dump = r#"{"models":[{"name":"digits","demand_rps":150.0,"slo_ms":500.0,"measured":[
        {"kind":null,"rows":[["1g.10gb",4,1,100.0]]}],"max_batch":null,"memory_mib":null,
        "replicas_min":1,"replicas_max":4,"draws":{"power":0.0,"bandwidth":0.0,"pcie":0.0},
        "slowdown":1.0}],"gpus":[{"kind":"A100-80GB","healthy":true,"cuttable":true,"slices":[
        {"position":"1g.10gb@0","loaned":false,"doomed":false,"replicas":[{"id":3,
        "model":0,"current":true,"processes":1,"state":"ready","busy":0.5}]}]}],"rules":{"latency_share":0.45,
        "max_processes":5,"share_slices":true,"gain_power":0.5,"gain_pcie":0.1,"gain_tlb":0.015,
        "spare_gpus":0,"work":100000},"pins":[],"consolidate":false,"last":{"placed":[],"leaving":[]}}"#;
    std::fs::write(&path, dump).unwrap();
    let replay = |format| run_replay(format, &path);
    let table = replay(Format::Table);
    assert_eq!(table.code, 0, "{}", table.stderr);
    assert!(table.stdout.contains("reshape gpu 0"), "{}", table.stdout);
    assert!(table.stdout.contains("digits needs 150.0 rows/s and has 100.0"), "{}", table.stdout);
    let json: serde_json::Value = serde_json::from_str(&replay(Format::Json).stdout).unwrap();
    assert_eq!(json["target"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["steps"][1]["start"]["model"], "digits", "{json}");
    std::fs::write(&path, "{}").unwrap();
    let refused = replay(Format::Table);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(refused.code, 78);
    assert!(refused.stderr.contains("not a dump of a router's placement: missing field `models`"));
}

fn run_replay(format: Format, path: &Path) -> Verdict {
    replayed(&args(format), path)
}
