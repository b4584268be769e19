//! Whole files that are good, what is shown of them and how they differ.

mod etcd;
mod mistakes;
mod objective;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::*;

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

fn read(text: &str) -> Result<(Config, Warnings), Problems> {
    read_in(text, Environment::default())
}

fn read_in(text: &str, environment: Environment) -> Result<(Config, Warnings), Problems> {
    let base_dir = configs();
    parse_source(&Source { path: Path::new("r.toml"), text, base_dir: &base_dir, environment })
}

/// A sound synthetic model and then `more` of its keys.
fn slow(more: &str) -> String {
    format!(
        "[[model]]\nname = \"slow\"\nengine = \"synthetic\"\nprofile_csv = \"profiles/slow.csv\"\n\
         slo_ms = 50\n\
         inputs = [{{ name = \"x\", datatype = \"FP32\", shape = [-1, 16] }}]\n\
         outputs = [{{ name = \"y\", datatype = \"FP32\", shape = [-1, 16] }}]\n{more}\n"
    )
}

#[test]
fn every_sample_configuration_loads_without_a_warning() {
    let mut seen = 0;
    for entry in std::fs::read_dir(configs()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let (config, warnings) = load(&path).unwrap_or_else(|problems| panic!("{problems}"));
            assert!(warnings.is_empty(), "{warnings:?}");
            match config.join {
                Some(_) => drop(config.check_worker().unwrap()),
                None => config.check_up().unwrap(),
            }
            seen += 1;
        }
    }
    assert!(seen >= 2, "{seen} samples");
}

#[test]
fn every_sample_profile_is_read_by_some_model() {
    for entry in std::fs::read_dir(configs().join("profiles")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = slow("").replace("slow.csv", name).replace("= 50", "= 5000");
            read(&text).unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
}

#[test]
fn the_demo_is_the_sample_of_that_name() {
    let (demo, warnings) = demo(&configs()).unwrap();
    assert!(warnings.is_empty());
    let names: Vec<_> = demo.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["digits", "langid"]);
    let [worker] = &demo.workers[..] else { panic!("{:?}", demo.workers) };
    assert_eq!(worker.gpu, Gpu::Cores(Cores::Auto));
}

#[test]
fn the_commented_keys_of_the_full_sample_are_known_ones() {
    let text = std::fs::read_to_string(configs().join("router.toml")).unwrap();
    let hash = "0123456789abcdef".repeat(4);
    let mut hashes = 0;
    let mut uncommented = String::new();
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_key = bare.split_once(" = ").is_some_and(|(key, _)| !key.contains([' ', '#']));
        let line = if is_key || bare.starts_with('[') { bare } else { "" };
        if line.starts_with("key_sha256") {
            hashes += 1;
            uncommented += &format!("key_sha256 = \"{}{hashes}\"\n", &hash[1..]);
        } else {
            uncommented += line;
            uncommented.push('\n');
        }
    }
    let uncommented = uncommented
        .replace("\"slo\"", "\"timeout\"")
        .replace("profiles/x.csv", "profiles/fast.csv")
        .replace("tls/", "../tests/certificates/");
    let (config, _) = read(&uncommented).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((config.tenants.len(), config.keys.len()), (1, 1));
    assert!(config.loans.is_some() && config.router.state_dir.is_some());
    for line in uncommented.lines() {
        let Some((key, _)) = line.split_once(" = ") else { continue };
        let shown = |setting: &Setting| setting.key.split('.').next() == Some(key);
        assert!(config.effective.settings.iter().any(shown), "{key} is not shown");
    }
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let (config, warnings) = read(&slow("")).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let router = &config.router;
    assert_eq!(router.listen.to_string(), "127.0.0.1:8000");
    assert_eq!(router.admin_listen.to_string(), "127.0.0.1:8002");
    assert_eq!(router.max_body_bytes, 64 << 20);
    assert_eq!(router.drain_delay, Duration::from_secs(5));
    let model = &config.models[0];
    assert_eq!(model.version, "1");
    assert_eq!((model.slo, model.slo_target), (Duration::from_millis(50), 0.99));
    assert_eq!(model.replicas, Replicas { min: 1, max: None });
    assert_eq!(model.batching, Batching::Slo);
    assert!(config.check_up().unwrap_err().to_string().contains("no [[worker]]"));
}

#[test]
fn the_environment_overrules_the_file_and_is_named_when_wrong() {
    let text = format!("[router]\nlisten = \"127.0.0.1:1\"\n{}", slow(""));
    let set = |listen: &str| Environment { listen: Some(listen.to_owned()), ..Default::default() };
    let (config, _) = read_in(&text, set("127.0.0.1:9")).unwrap();
    assert_eq!(config.router.listen.port(), 9);
    assert!(config.effective.to_string().contains("# environment SLUICE_LISTEN"));
    assert_eq!(
        read_in(&text, set("nine")).unwrap_err().to_string(),
        "environment SLUICE_LISTEN: listen is \"nine\"; give an IP address and port, such as \
         127.0.0.1:8000"
    );
}

#[test]
fn every_value_is_shown_with_its_origin_and_no_secret_is() {
    let hash = "ab".repeat(32);
    let text = format!(
        "{}[[tenant]]\nname = \"t\"\nkey_sha256 = \"{hash}\"\n\
                        max_in_flight = 8\n",
        slow("")
    );
    let (config, _) = read(&text).unwrap();
    let shown = config.effective.to_string();
    let lines: Vec<_> =
        shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "[[model]]",
        "slo_ms = 50 # r.toml:5",
        "max_batch = 32 # default",
        "# path is not set # default",
        "inputs = [{ datatype = \"FP32\", name = \"x\", shape = [-1, 16] }] # r.toml:6",
        "key_sha256 = \"<hidden>\" # r.toml:11",
        "max_in_flight = 8 # r.toml:12",
        "share = 1 # default",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
    let json = serde_json::to_string(&config.effective).unwrap();
    assert!(json.contains("\"origin\":\"r.toml:5\""), "{json}");
    for text in [shown, json, format!("{config:?}")] {
        assert!(!text.contains(&hash), "{text}");
    }
}

#[test]
fn what_is_shown_is_itself_a_configuration() {
    let (config, _) = load(&configs().join("router.toml")).unwrap();
    let (again, _) = read(&config.effective.to_string()).unwrap();
    assert_eq!(diff(&config, &again), []);
}

#[test]
fn a_difference_says_what_it_takes() {
    let (old, _) = read(&slow("")).unwrap();
    let hash = "ab".repeat(32);
    let model = slow("max_batch = 8\ncache_mib = 64").replace("= 50", "= 60");
    let text = format!(
        "{model}[[tenant]]\nname = \"t\"\nkey_sha256 = \"{hash}\"\n\
         [router]\nlisten = \"127.0.0.1:1\"\n"
    );
    let (new, _) = read(&text).unwrap();
    let told = |changes: Vec<Change>| -> Vec<String> {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let line = |change: Change| {
            let Change { path, old, new, effect } = change;
            format!("{path} {} {} {effect:?}", shown(old), shown(new))
        };
        changes.into_iter().map(line).collect()
    };
    assert_eq!(
        told(diff(&old, &new)),
        [
            "model.slow.cache_mib 0 64 Live",
            "model.slow.max_batch 32 8 Live",
            "model.slow.slo_ms 50 60 Live",
            "router.listen \"127.0.0.1:8000\" \"127.0.0.1:1\" Restart",
            "tenant.t - added Live",
        ]
    );
    let (rotated, _) = read(&text.replace(&hash, &"cd".repeat(32))).unwrap();
    assert_eq!(told(diff(&new, &rotated)), ["tenant.t.key_sha256 \"<hidden>\" \"<hidden>\" Live"]);
    let (narrow, _) = read(&text.replace("[router]", "max_in_flight = 8\n[router]")).unwrap();
    assert_eq!(told(diff(&new, &narrow)), ["tenant.t.max_in_flight none 8 Live"]);
    let (renamed, _) = read(&slow("").replace("\"slow\"", "\"slower\"")).unwrap();
    assert_eq!(
        told(diff(&old, &renamed)),
        ["model.slow removed - Live", "model.slower - added Live"]
    );
    assert_eq!(diff(&old, &old), []);
}

#[test]
fn a_profile_of_new_content_is_a_difference() {
    let (old, _) = read(&slow("")).unwrap();
    let mut new = old.clone();
    let (fast, _) = read(&slow("").replace("slow.csv", "fast.csv")).unwrap();
    new.models[0].profile = fast.models[0].profile.clone();
    let changes = diff(&old, &new);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].effect, Effect::Live);
}

#[test]
fn server_runs_beside_the_file_and_hides_its_environment() {
    let text = |secret: &str| {
        format!(
            "[[model]]\nname = \"a\"\nengine = \"server\"\nslo_ms = 50\n\
             command = [\"serve\", \"--port\", \"{{port}}\"]\nenvironment = {{ KEY = \"{secret}\" }}\n"
        )
    };
    let (config, _) = read(&text("opensesame")).unwrap();
    let Engine::Server(server) = &config.models[0].engine else { panic!("{config:?}") };
    assert_eq!(server.command, ["serve", "--port", "{port}"]);
    assert_eq!(server.served_name, "a");
    assert_eq!(server.directory, configs());
    assert_eq!(server.ready_timeout, Duration::from_secs(300));
    let shown = config.effective.to_string();
    assert!(shown.contains("KEY") && !shown.contains("opensesame"), "{shown}");
    let (other, _) = read(&text("closesesame")).unwrap();
    let changes = diff(&config, &other);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(changes[0].path, "model.a.environment");
}
