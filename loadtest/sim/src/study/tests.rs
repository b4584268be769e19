use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/sim")
}

fn problems(text: &str) -> String {
    let path = folder().join("s.toml");
    let told = read::parse(&path, text).unwrap_err().to_string();
    told.replace(&path.display().to_string(), "s.toml")
}

const GOOD: &str = "\
about = \"x.\"
duration_s = 10
[[gpu]]
kind = \"A100-80GB\"
[[model]]
name = \"a\"
profile_csv = \"../../../configs/profiles/resnet50.csv\"
slo_ms = 50
[[stream]]
model = \"a\"
rate_rps = 5
";

#[test]
fn every_bundled_scenario_is_valid_and_described() {
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let study = Study::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(study.about.ends_with('.'), "{}: {:?}", study.name, study.about);
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn a_timeout_is_at_least_the_objective_and_not_seen_by_rates() {
    let short = GOOD.replace("slo_ms = 50", "slo_ms = 50\ntimeout_ms = 49");
    assert_eq!(problems(&short), "s.toml:9:14: timeout_ms is 49; give 50 to 3600000");
    let rates = GOOD
        .replace("duration_s = 10", "duration_s = 10\ndetail = \"rates\"")
        .replace("slo_ms = 50", "slo_ms = 50\ntimeout_ms = 500");
    assert_eq!(
        problems(&rates),
        "s.toml:10:14: timeout_ms is not seen by rates; use detail = \"requests\""
    );
}

#[test]
fn every_problem_is_told_with_its_line() {
    let text = GOOD
        .replace("duration_s = 10", "duration_s = 0\nplacement = \"nowhere\"")
        .replace("slo_ms = 50", "slo_ms = -1\nbatching = \"fast\"")
        .replace("model = \"a\"", "model = \"b\"");
    assert_eq!(
        problems(&text),
        "s.toml:2:14: duration_s is 0; give 0.001 to 1000000000\n\
         s.toml:3:13: placement is one of spread, follow, plan, whole-gpus, first-fit, best-fit, greedy, \
         parva, fragmentation, plan-blind\n\
         s.toml:9:10: slo_ms is -1; give 0.001 to 3600000\n\
         s.toml:10:12: batching is one of slo, aimd, deadline, earlydrop, deferred, timeout\n\
         s.toml:12:9: no [[model]] is named \"b\""
    );
}

#[test]
fn a_misspelt_key_is_an_error() {
    let told = problems(&GOOD.replace("rate_rps", "rate"));
    assert!(told.starts_with("s.toml:11:1: unknown field `rate`"), "{told}");
}

#[test]
fn what_is_not_there_is_told_where_it_is_named() {
    let missing = GOOD.replace("resnet50.csv", "none.csv");
    assert!(problems(&missing).starts_with("s.toml:7:15: ../../../configs/profiles/none.csv: "));
    let odd =
        GOOD.replace("kind = \"A100-80GB\"", "kind = \"A100-80GB\"\ngeometry = [\"3g.40gb@2\"]");
    assert_eq!(problems(&odd), "s.toml:5:12: 3g.40gb cannot start at 2; it starts at [0, 4]");
    let fault = "[[fault]]\nkind = \"dead-gpu\"\nat_s = 1\nfor_s = 1\ngpu = 1\n";
    assert_eq!(problems(&format!("{GOOD}{fault}")), "s.toml:16:7: gpu is 1; give 0 to 0");
}

#[test]
fn a_run_by_rates_refuses_what_it_does_not_see() {
    let fault = "[[fault]]\nkind = \"slow-network\"\nat_s = 1\nfor_s = 1\n";
    let text = format!("detail = \"rates\"\n{GOOD}{fault}");
    let told = "s.toml:14:8: slow-network is not seen by rates; use detail = \"requests\"";
    assert_eq!(problems(&text), told);
}

#[test]
fn copies_of_a_model_are_asked_each_by_the_same_stream() {
    let text = GOOD.replace("slo_ms = 50", "slo_ms = 50\ncopies = 3");
    let study = read::parse(&folder().join("s.toml"), &text).unwrap();
    let names: Vec<&str> = study.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["a-1", "a-2", "a-3"]);
    assert_eq!(study.streams.len(), 3);
}

#[test]
fn what_cannot_be_compared_is_refused_with_what_can() {
    let mut study = read::parse(&folder().join("s.toml"), GOOD).unwrap();
    let refusal = study.set("batching", "quick").unwrap_err().to_string();
    assert!(refusal.starts_with("batching has no \"quick\"; give some of slo, aimd"), "{refusal}");
    let refusal = study.set("colour", "red").unwrap_err().to_string();
    assert_eq!(
        refusal,
        "\"colour\" cannot be compared; these can: batching, placement, order, tenants, loans"
    );
    study.set("batching", "timeout").unwrap();
    assert_eq!(study.models[0].batching.name(), "timeout");
}
