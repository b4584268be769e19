use super::*;

const CSV: &str = "profile,batch,processes,throughput_rps,latency_ms\n1g.10gb,1,1,100,10\n";

fn parse_with(name: &str, text: &str) -> Result<Problem, String> {
    let folder =
        std::env::temp_dir().join(format!("sluice-planfile-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.csv"), CSV).unwrap();
    let parsed = parse(Path::new("plan.toml"), text, &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    parsed.map(|(problem, _)| problem).map_err(|problems| problems.to_string())
}

const MODEL: &str =
    "[[model]]\nname = \"a\"\ndemand_rps = 10\nslo_ms = 50\nprofile_csv = \"p.csv\"\n";
const GPU: &str = "[[gpu]]\nkind = \"A100-80GB\"\ncount = 2\n";

#[test]
fn defaults_are_those_of_the_design() {
    let problem = parse_with("defaults", &format!("{MODEL}{GPU}")).unwrap();
    assert_eq!(problem.rules.latency_share, 0.45);
    assert_eq!(problem.rules.max_processes, 5);
    assert!(problem.rules.share_slices);
    assert_eq!((problem.fleet[0].kind.name.as_str(), problem.fleet[0].count), ("A100-80GB", 2));
    let model = &problem.models[0];
    assert_eq!((model.replicas_min, model.replicas_max), (1, u32::MAX));
    assert_eq!((model.max_batch, model.memory_mib), (None, None));
    assert_eq!(model.measured[0].kind, None);
}

#[test]
fn a_routers_model_table_is_taken_with_its_demand() {
    let text = format!(
        "{MODEL}engine = \"onnx\"\npath = \"no-such.onnx\"\nslo_target = 0.99\nmax_batch = 8\n\
         memory_mib = 900\nreplicas = {{ min = 2, max = 3 }}\nbatching = \"slo\"\n{GPU}"
    );
    let problem = parse_with("router", &text).unwrap();
    let model = &problem.models[0];
    assert_eq!((model.max_batch, model.memory_mib), (Some(8), Some(900)));
    assert_eq!((model.replicas_min, model.replicas_max), (2, 3));
}

#[test]
fn what_a_model_draws_and_what_is_kept_free_are_taken() {
    let text =
        format!("{MODEL}draws = {{ power = 1.2, pcie = 0.3 }}\n{GPU}[planner]\nspare_gpus = 1\n");
    let problem = parse_with("draws", &text).unwrap();
    let load = problem.models[0].load;
    assert_eq!((load.power, load.bandwidth, load.pcie), (1.2, 0.0, 0.3));
    assert_eq!(problem.rules.spare_gpus, 1);
    let wrong = text.replace("1.2", "-1").replace("pcie", "pci");
    let problems = parse_with("wrong-draws", &wrong).unwrap_err();
    assert!(problems.starts_with("plan.toml:6:19: draws.power is -1; give 0 to 4\n"), "{problems}");
    assert!(problems.contains(": unknown key `pci`; "), "{problems}");
}

#[test]
fn measurements_may_be_given_by_kind_of_gpu() {
    let text =
        MODEL.replace("\"p.csv\"", "{ \"A100-80GB\" = \"p.csv\", \"A30-24GB\" = \"p.csv\" }");
    let problem = parse_with("kinds", &format!("{text}{GPU}")).unwrap();
    let kinds: Vec<_> =
        problem.models[0].measured.iter().map(|measured| measured.kind.as_deref()).collect();
    assert_eq!(kinds, [Some("A100-80GB"), Some("A30-24GB")]);
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let text = "[[model]]\nname = \"a\"\ndemand_rps = -1\nslo_ms = 0\nprofile_csv = 3\n\
                replicas = { min = 5, max = 2 }\nspeed = 1\n\
                [[gpu]]\nkind = \"A100\"\n[planner]\nlatency_share = 0.9\nshare_slices = 1\n";
    let problems = parse_with("problems", text).unwrap_err();
    let lines: Vec<_> = problems.lines().collect();
    assert_eq!(lines.len(), 8, "{problems}");
    for (line, begins) in lines.iter().zip([
        "plan.toml:3:14: demand_rps is -1; give 0 to ",
        "plan.toml:4:10: slo_ms is 0; give 1 to ",
        "plan.toml:5:15: profile_csv is 3; give a path, or a table of paths by kind of GPU",
        "plan.toml:6:20: replicas.min is 5 but replicas.max is 2",
        "plan.toml:7:1: unknown key `speed`; ",
        "plan.toml:9:8: kind: no GPU kind named \"A100\"; known are ",
        "plan.toml:11:17: latency_share is 0.9; give more than 0 and at most 0.5",
        "plan.toml:12:16: share_slices is 1; give true or false",
    ]) {
        assert!(line.starts_with(begins), "{line}\n{begins}");
    }
}

#[test]
fn nothing_to_plan_for_or_on_is_a_problem() {
    let problems = parse_with("empty", "").unwrap_err();
    assert_eq!(
        problems,
        "plan.toml:1:1: no [[model]]: nothing to plan for\n\
         plan.toml:1:1: no [[gpu]]: nothing to plan on"
    );
}
