//! GPUs that are cut anew while they serve: only what vanishes is drained.

use std::{env, fs, path::PathBuf};

use fakenvml::{Mig, STATE_FILE, State};

use crate::{
    client::{Body, Client, count_from},
    setup::Setup,
    split::Split,
    wait::eventually,
};

const BEFORE: &str = "geometry = [\"3g.40gb@0\", \"3g.40gb@4\"]\n";
const AFTER: &str = "geometry = [\"2g.20gb@0\", \"1g.10gb@2\", \"3g.40gb@4\"]\n";

fn two_models() -> Setup {
    let settings = "slo_ms = 20000\nmax_batch = 2";
    Setup::new().sleeper("moves", 10, settings).sleeper("stays", 10, settings)
}

#[track_caller]
fn both_served(clients: &mut [Client; 2], seed: f32) {
    let models = ["moves", "stays"];
    for (client, model) in clients.iter_mut().zip(models) {
        client.send_infer(model, &Body::json(&count_from(seed, 1)));
    }
    for (client, model) in clients.iter_mut().zip(models) {
        assert_eq!(client.receive().numbers(), count_from(seed, 1), "{model}");
    }
}

/// Cuts the GPU anew under load, and expects that the slice that stays is not touched.
fn recut(gpu: &str) -> Split {
    let mut fleet = Split::start(two_models(), &format!("{gpu}{BEFORE}"));
    let stays = fleet.ready_slice("alpha:gpu0:3g@4");
    assert_eq!(stays["replicas"][0]["model"], "stays");
    fleet = fleet.replace_worker(&format!("{gpu}{AFTER}"));
    let mut asking = [fleet.router.client(), fleet.router.client()];
    let mut seed = 0.0;
    eventually("it is reshaped, and all are served meanwhile", || {
        seed += 1.0;
        both_served(&mut asking, seed);
        let labels = ["alpha:gpu0:2g@0", "alpha:gpu0:1g@2", "alpha:gpu0:3g@4"];
        let slices = fleet.router.slices();
        let found: Vec<&str> = slices.iter().filter_map(|slice| slice["slice"].as_str()).collect();
        (found == labels).then_some(())
    });
    both_served(&mut asking, 0.5);
    let now = fleet.ready_slice("alpha:gpu0:3g@4");
    assert_eq!(
        now["lanes"][0]["pid"], stays["lanes"][0]["pid"],
        "the slice that stays was touched"
    );
    assert_eq!(now["uuid"], stays["uuid"]);
    let metrics = fleet.router.metrics();
    for model in ["moves", "stays"] {
        assert_eq!(metrics.ended_in_all(model), metrics.ended(model, "served"), "{model}");
    }
    fleet
}

#[test]
fn simulated_gpu_is_reshaped_while_it_serves() {
    let fleet = recut("[[worker]]\ngpu = \"simulated:A100-80GB\"\n");
    let ever = fleet.router.executors();
    fleet.stop(&ever);
}

/// The driver's stand-in that cargo built because this package's tests depend on it.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    let path = test.parent().unwrap().join("libfakenvml.so");
    assert!(path.exists(), "no {}: run cargo build -p fakenvml", path.display());
    path
}

#[test]
fn nvml_gpu_is_reshaped_while_it_serves() {
    let folder = crate::folder::Folder::new();
    let copy = folder.path().join("libnvidia-ml.so.1");
    fs::copy(library(), &copy).unwrap();
    let state_file = folder.path().join(STATE_FILE);
    State::new(&[("A100-80GB", Mig::On)]).write(&state_file).unwrap();
    let gpu = format!("[[worker]]\ngpu = \"nvml:0\"\nnvml_library = \"{}\"\n", copy.display());
    let fleet = recut(&gpu);
    let truth = State::read(&state_file).unwrap();
    assert_eq!(truth.attacks, 0, "someone tried to destroy a slice in use");
    let device = &truth.devices[0];
    let mut found: Vec<_> =
        device.instances.iter().filter_map(|one| device.position(one)).collect();
    found.sort_unstable();
    assert_eq!(found, ["1g.10gb@2", "2g.20gb@0", "3g.40gb@4"]);
    let ever = fleet.router.executors();
    fleet.stop(&ever);
}

#[test]
fn gpu_without_mig_serves_whole_and_missing_driver_is_shown() {
    let folder = crate::folder::Folder::new();
    let copy = folder.path().join("libnvidia-ml.so.1");
    fs::copy(library(), &copy).unwrap();
    let state_file = folder.path().join(STATE_FILE);
    State::new(&[("A100-80GB", Mig::Off)]).write(&state_file).unwrap();
    let gpus = format!(
        "[[worker]]\ngpu = \"nvml:0\"\nnvml_library = \"{}\"\n{BEFORE}\
         [[worker]]\ngpu = \"nvml:0\"\nnvml_library = \"nowhere.so\"\n",
        copy.display()
    );
    let fleet = Split::start(two_models(), &gpus);
    let workers = fleet.router.workers();
    let gpus = workers[0]["gpus"].as_array().unwrap();
    assert_eq!(gpus[0]["mode"], "off");
    assert_eq!(gpus[0]["slices"][0]["position"], "whole");
    let told = gpus[0]["problem"].as_str().unwrap();
    assert!(told.starts_with("MIG is off on GPU-"), "{told}");
    let told = gpus[1]["problem"].as_str().unwrap();
    assert!(told.contains("no NVML at ") && told.contains("nowhere.so"), "{told}");
    let mut asking = [fleet.router.client(), fleet.router.client()];
    both_served(&mut asking, 1.0);
    let ever = fleet.router.executors();
    fleet.stop(&ever);
}
