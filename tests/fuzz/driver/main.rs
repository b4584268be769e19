//! The targets, driven by a fuzzer that looks at what they reach; see `scripts/fuzz`.
//!
//! `SLUICE_FUZZ` names the target. With `SLUICE_SEEDS` its seeds are written to that folder and
//! nothing is run.

#![no_main]

#[path = "../targets/mod.rs"]
mod targets;

use std::{fs, path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;

use targets::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("SLUICE_FUZZ").expect("SLUICE_FUZZ names the target");
    let known = TARGETS.into_iter().find(|target| target.name == name);
    known.expect("SLUICE_FUZZ names one of the targets")
});

fuzz_target!(
    init: {
        if let Some(folder) = std::env::var_os("SLUICE_SEEDS") {
            for (index, seed) in (TARGET.seeds)().iter().enumerate() {
                let path = Path::new(&folder).join(format!("seed-{index}"));
                fs::write(path, seed).expect("the folder of seeds can be written");
            }
            std::process::exit(0);
        }
    },
    |input: &[u8]| (TARGET.run)(input)
);
