//! Placement that follows what is asked for, with real processes on simulated GPUs.

use std::{fs, thread};

use serde_json::Value;

use crate::{
    program::{Program, sluice},
    setup::Setup,
    wait::eventually,
};

/// Ten requests a second on a seventh of a GPU, nearly seven times that on all of it.
const CSV: &str = "profile,batch,processes,throughput_rps,latency_ms\n\
                   1g.10gb,1,1,10,100\n\
                   2g.20gb,1,1,19,52.6\n\
                   3g.40gb,1,1,28,35.7\n\
                   7g.80gb,1,1,65,15.4\n";

fn two_models(gpus: usize) -> Setup {
    let model = |name: &str| {
        format!(
            "[[model]]\nname = \"{name}\"\nengine = \"synthetic\"\nprofile_csv = \"curve.csv\"\n\
             slo_ms = 20000\nmax_batch = 1\nmemory_mib = 512\nreplicas = {{ min = 1, max = 20 }}\n\
             inputs = [{{ name = \"x\", datatype = \"FP32\", shape = [-1, 4] }}]\n\
             outputs = [{{ name = \"y\", datatype = \"FP32\", shape = [-1, 4] }}]\n"
        )
    };
    let setup = Setup::new().tables(&model("rises")).tables(&model("rests")).gpus(gpus);
    setup.replace("curve.csv", CSV.as_bytes());
    setup
}

fn plan(program: &Program) -> Value {
    program.ask_admin("/admin/v1/plan").json()
}

fn replicas(plan: &Value, model: &str) -> usize {
    let all = plan["replicas"].as_array().unwrap();
    all.iter().filter(|one| one["model"] == model).count()
}

/// Sends requests as an operator would; the generator says whether the objective was kept.
fn load(url: &str, model: &str, rate: u32, seconds: u32) {
    let (rate, seconds) = (rate.to_string(), seconds.to_string());
    let output =
        sluice(&["load", "--url", url, "--model", model, "--rate", &rate, "--duration", &seconds]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn idle_models_use_the_least_and_every_replica_has_a_reason() {
    let program = two_models(4).start();
    let plan = plan(&program);
    assert_eq!(plan["gpus_used"], 1, "{plan:#}");
    assert_eq!((replicas(&plan, "rises"), replicas(&plan, "rests")), (1, 1), "{plan:#}");
    for one in plan["replicas"].as_array().unwrap() {
        assert!(!one["why"].as_str().unwrap().is_empty(), "{one}");
    }
}

#[test]
fn rising_load_gets_new_slices_while_serving() {
    let program = two_models(4).start();
    let before = program.slices().len();
    let url = format!("http://{}", program.inference());
    thread::scope(|scope| {
        let rising = scope.spawn(|| load(&url, "rises", 40, 12));
        eventually("the model that is asked for has more replicas", || {
            (replicas(&plan(&program), "rises") > 1).then_some(())
        });
        rising.join().unwrap();
    });
    eventually("a slice was cut", || (program.slices().len() > before).then_some(()));
    let plan = plan(&program);
    assert_eq!(replicas(&plan, "rests"), 1, "the model that nobody asks for has moved: {plan:#}");
    let whys: Vec<&str> =
        plan["moves"].as_array().unwrap().iter().filter_map(|one| one["why"].as_str()).collect();
    assert!(whys.iter().any(|why| why.contains("rises needs")), "{whys:#?}");
    let metrics = program.metrics();
    assert_eq!(metrics.ended_in_all("rises"), metrics.ended("rises", "served"));
}

/// The first file of the README, of a model that is as fast as measured, on a simulated GPU.
fn readme_file() -> String {
    let readme = fs::read_to_string("README.md").unwrap();
    let file = readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let (model, worker) = file.split_once("[[worker]]").unwrap();
    assert!(worker.contains("cpu = \"auto\""), "{worker}");
    let measured = "engine = \"synthetic\"\nprofile_csv = \"curve.csv\"\n\
                    inputs = [{ name = \"x\", datatype = \"FP32\", shape = [-1, 4] }]\n\
                    outputs = [{ name = \"y\", datatype = \"FP32\", shape = [-1, 4] }]";
    let model = model.replace("engine = \"onnx\"\npath = \"model.onnx\"", measured);
    assert!(model.contains("synthetic"), "{model}");
    model.replace("max_batch = 16", "max_batch = 1")
}

#[test]
fn the_file_of_the_readme_scales() {
    let setup = Setup::new().tables(&readme_file()).gpus(1);
    let curve = "profile,batch,processes,throughput_rps,latency_ms\n1g.10gb,1,1,50,20\n";
    setup.replace("curve.csv", curve.as_bytes());
    let program = setup.start();
    assert_eq!(replicas(&plan(&program), "mine"), 1);
    let url = format!("http://{}", program.inference());
    thread::scope(|scope| {
        let args = ["load", "--url", &url, "--model", "mine", "--rate", "120", "--duration", "12"];
        scope.spawn(move || sluice(&args));
        eventually("the model has more replicas", || {
            (replicas(&plan(&program), "mine") > 1).then_some(())
        });
    });
}
