//! What the tree offers to be used or read as it is: configurations and models.

use std::{fs, path::Path};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::tree::{ROOT, files_of, report};

const MODELS: &str = "configs/models";

#[test]
fn every_sample_configuration_loads_without_a_warning() {
    let mut problems = Vec::new();
    let sample = |path: &Path| {
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        ["configs", "configs/ha", "tests/clients", "tests/seeing"]
            .iter()
            .any(|kept| folder == Path::new(kept))
    };
    let files: Vec<_> =
        files_of("toml").into_iter().filter(|file| sample(Path::new(&file.path))).collect();
    assert!(!files.is_empty());
    for file in files {
        match config::load(&Path::new(ROOT).join(&file.path)) {
            Ok((_, warnings)) => {
                // Jobs of a test need not outlive it.
                let meant = |told: &String| !told.contains("without state_dir");
                problems.extend(warnings.iter().map(ToString::to_string).filter(meant));
            }
            Err(found) => problems.push(found.to_string()),
        }
    }
    report(&problems);
}

#[test]
fn the_configuration_in_the_readme_loads_beside_a_model() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    fs::create_dir_all(&folder).expect("cargo gives tests a folder to write in");
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).expect("there is a README");
    let text = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let text = text.expect("the README shows a configuration");
    fs::copy(Path::new(ROOT).join(MODELS).join("digits.onnx"), folder.join("model.onnx"))
        .expect("the demo's model can be copied");
    if let Err(problems) = config::parse(Path::new("README.md"), text, &folder) {
        report(&[problems.to_string()]);
    }
}

#[test]
fn the_demo_models_are_those_of_the_manifest_and_small() {
    let folder = Path::new(ROOT).join(MODELS);
    let manifest = fs::read(folder.join("manifest.json")).expect("the manifest exists");
    let manifest: Value = serde_json::from_slice(&manifest).expect("the manifest is JSON");
    let mut total = 0;
    for (model, facts) in manifest.as_object().expect("the manifest is an object") {
        let file = facts["file"].as_str().expect("a model names its file");
        let bytes = fs::read(folder.join(file)).expect("the file of the manifest exists");
        let found: String =
            Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(facts["sha256"], found, "{model} is not the file that was measured");
        total += bytes.len();
    }
    assert!(total < 200_000, "{total} bytes of models");
}
