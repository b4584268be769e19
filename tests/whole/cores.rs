//! Cores of the machine as slices: real models on them, one process each by affinity.

use std::{fs, thread};

use rustix::{process::Signal, thread::sched_getaffinity};

use crate::{
    client::Body,
    program::{Program, sluice},
    setup::{ONE_GPU, Setup},
    training::{post, wait_state},
    wait::eventually,
};

const ONE_CORE: &str = "[[worker]]\ncpu = 1\n";

/// The processors a process may run on, as the kernel lists them.
#[track_caller]
fn cores_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

fn environment(pid: u32) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// By label, the models on each slice.
fn served(program: &Program) -> Vec<(String, Vec<String>)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let models = |slice: &serde_json::Value| {
        let replicas = slice["replicas"].as_array().unwrap();
        replicas.iter().map(|one| text(&one["model"])).collect()
    };
    program.slices().iter().map(|slice| (text(&slice["slice"]), models(slice))).collect()
}

#[test]
fn real_model_runs_on_one_core_alone_and_is_adopted() {
    let setup = Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .digits("slo_ms = 500\nmax_batch = 2")
        .sleeper("sleeps", 5, "slo_ms = 500")
        .tables(ONE_GPU)
        .tables(ONE_CORE);
    let mut program = setup.start();
    let by_slice = served(&program);
    let on = |model: &str| {
        let mut found = by_slice.iter().filter(|(_, models)| models.iter().any(|one| one == model));
        found.next().unwrap_or_else(|| panic!("{model} is nowhere: {by_slice:?}")).0.clone()
    };
    assert_eq!(on("digits"), "cpu1:1@0");
    assert!(on("sleeps").starts_with("gpu0:"), "{by_slice:?}");
    let of_core = |program: &Program| {
        let slices = program.slices();
        let slice = slices.iter().find(|slice| slice["slice"] == "cpu1:1@0").unwrap();
        u32::try_from(slice["lanes"][0]["pid"].as_u64().unwrap()).unwrap()
    };
    let executor = of_core(&program);
    let core: usize = cores_of(executor).parse().expect("one core alone");
    assert!(sched_getaffinity(None).unwrap().is_set(core));
    assert!(environment(executor).contains(&"CUDA_VISIBLE_DEVICES=".to_owned()));
    let others: Vec<u32> = program.executors().into_iter().filter(|pid| *pid != executor).collect();
    assert_eq!(cores_of(others[0]), cores_of(program.pid()), "a simulated slice is not pinned");
    let three = fs::read("configs/models/three.json").unwrap();
    let ask = Body { headers: vec![("content-type", "application/json".to_owned())], bytes: three };
    assert_eq!(program.client().infer("digits", &ask).status, 200);
    program.signal(Signal::KILL);
    program.wait_end();
    let config = program.folder().path().join("sluice.toml");
    let mut program = program.again(&["up", "--config", config.to_str().unwrap()]);
    program.wait_ready();
    assert_eq!(of_core(&program), executor, "the executor on the core was not adopted");
    assert_eq!(program.client().infer("digits", &ask).status, 200);
}

#[test]
fn more_cores_than_there_are_are_refused_by_name() {
    let setup = Setup::new().digits("slo_ms = 500").tables("[[worker]]\ncpu = 1024\n");
    let there = sched_getaffinity(None).unwrap().count();
    let mut program = setup.launch();
    let (code, log) = program.wait_end();
    assert_eq!(code, Some(78), "{log}");
    assert!(log.contains("cpu is 1024 in all, but this process may use "), "{log}");
    assert!(log.contains(&format!("give at most {there}")) || log.contains("cpu.max"), "{log}");
    let config = program.folder().path().join("sluice.toml");
    let checked = sluice(&["check", config.to_str().unwrap()]);
    let warned = String::from_utf8(checked.stderr).unwrap();
    assert!(warned.contains("warning: ") && warned.contains("cpu is 1024 in all"), "{warned}");
}

#[test]
fn a_job_on_cores_runs_there_alone() {
    let program = Setup::new()
        .router("drain_delay_s = 0\nstate_dir = \"state\"")
        .sleeper("m", 5, "slo_ms = 500")
        .tables("[loans]\nallow = [\"/bin/sh\"]\n")
        .tables(ONE_GPU)
        .tables(ONE_CORE)
        .start();
    let line = "grep Cpus_allowed_list /proc/self/status; echo \"omp $OMP_NUM_THREADS, gpu \
                <$CUDA_VISIBLE_DEVICES>\"";
    let on_cores =
        serde_json::json!({"argv": ["/bin/sh", "-c", line], "profile": "cpu:1", "retries": 0});
    let reply = post(&program, &on_cores, &[]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let id = reply.json()["id"].as_u64().unwrap();
    wait_state(&program, id, "done");
    let page = program.ask_admin(&format!("/admin/v1/jobs/{id}/logs")).json();
    let log = page["text"].as_str().unwrap();
    assert!(log.contains("omp 1, gpu <>"), "{log}");
    let cores = log.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    assert!(cores.trim().parse::<usize>().is_ok(), "more than one core: {log}");
}

#[test]
fn a_simulated_gpu_is_marked_wherever_it_is_shown() {
    let program = Setup::new().digits("slo_ms = 500").tables(ONE_GPU).start();
    let url = format!("http://{}", program.admin());
    let status = String::from_utf8(sluice(&["status", "--url", &url]).stdout).unwrap();
    assert!(status.contains("gpu0 A100-80GB (simulated), "), "{status}");
    let state = program.ask_admin("/admin/v1/state").json();
    assert_eq!(state["workers"][0]["gpus"][0]["simulated"], true);
    let metrics = program.ask_admin("/metrics").text();
    let power = "sluice_worker_gpu_power_watts{gpu=\"gpu0\",source=\"simulated\"}";
    assert!(metrics.contains(power), "{metrics}");
    let metadata = program.client().get("/v2/models/digits").json();
    assert_eq!(metadata["parameters"]["source"], "simulated", "{metadata}");
    let settings = program.client().get("/v2/models/digits/config").json();
    assert_eq!(settings["parameters"]["source"]["string_value"], "simulated", "{settings}");
    program.wait_log("real model runs on a simulated GPU");
}

#[test]
fn capacity_shown_is_no_more_than_was_carried() {
    let program = Setup::new()
        .digits("slo_ms = 500\nmax_batch = 32")
        .tables("[[worker]]\ncpu = \"auto\"\n")
        .start();
    let url = format!("http://{}", program.admin());
    let status = || String::from_utf8(sluice(&["status", "--url", &url]).stdout).unwrap();
    let planned = || program.ask_admin("/admin/v1/plan").json()["models"][0].clone();
    let before = eventually("the slices are measured", || {
        let planned = planned();
        planned["slices_rps"].is_number().then_some(planned)
    });
    assert!(before["capacity_rps"].is_null() && before["limit"].is_null(), "{before}");
    assert!(status().contains("not measured end to end"), "{}", status());
    let metadata = program.client().get("/v2/models/digits").json();
    assert!(metadata["parameters"].is_null(), "cores are real: {metadata}");
    let to = format!("http://{}", program.inference());
    thread::scope(|scope| {
        let args =
            ["load", "--url", &to, "--model", "digits", "--rate", "3000", "--duration", "14"];
        scope.spawn(move || sluice(&args));
        let shown = eventually("what was carried is shown", || {
            let planned = planned();
            planned["capacity_rps"].is_number().then_some(planned)
        });
        let [capacity, slices] =
            ["capacity_rps", "slices_rps"].map(|key| shown[key].as_f64().unwrap());
        assert!(capacity < slices, "a model of microseconds is bound by the router: {shown}");
        assert_eq!(shown["limit"], "router", "{shown}");
        assert!(status().contains("the router is the limit"), "{}", status());
        let metrics = program.ask_admin("/metrics").text();
        assert!(metrics.contains("sluice_placement_capacity_requests_per_second"), "{metrics}");
    });
}
