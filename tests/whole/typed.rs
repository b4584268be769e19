//! Command lines as people type them.

use std::{net::TcpListener, process::Output};

use serde_json::Value;

use crate::{
    client::{Body, Client},
    folder::Folder,
    program::{Program, sluice},
    setup::{ONE_GPU, Setup},
    training::lender,
};

const FREE: &str = "127.0.0.1:0";

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(text).unwrap()
}

/// One model, and addresses that no test may use.
fn fixed(setup: Setup) -> (Folder, String) {
    let text = setup.sleeper("echo", 2, "slo_ms = 2000").tables(ONE_GPU).text();
    let text = text.replacen("127.0.0.1:0", "127.0.0.1:1", 1).replacen(FREE, "127.0.0.1:2", 1);
    let folder = Folder::new();
    folder.write(
        "echo.csv",
        "profile,batch,processes,throughput_rps,latency_ms\n7g.80gb,1,1,500,2\n",
    );
    let file = folder.write("sluice.toml", text).to_str().unwrap().to_owned();
    (folder, file)
}

#[test]
fn up_takes_its_file_as_a_word_and_addresses_as_flags() {
    let (folder, file) = fixed(Setup::new());
    let flags = ["up", &file, "--listen", FREE, "--admin-listen", FREE];
    let mut program = Program::launch(folder, &flags, &[]);
    program.wait_ready();
    assert_eq!(program.client().infer("echo", &Body::row()).status, 200);
    // What the command line says holds for a reload too, which else would want a restart.
    let reload = program.reload();
    assert_eq!((reload.status, &reload.json()["changes"]), (200, &serde_json::json!([])));
    let config = program.ask_admin("/admin/v1/config").text();
    assert!(config.contains("\"--listen\""), "{config}");
    let wrong = sluice(&["up", &file, "--listen", "8000"]);
    assert_eq!(wrong.status.code(), Some(78));
    let told =
        "--listen: listen is \"8000\"; give an IP address and port, such as 127.0.0.1:8000\n";
    assert_eq!(said(&wrong), told);
}

#[test]
fn router_and_worker_take_their_file_as_a_word() {
    for command in ["router", "worker"] {
        let output = sluice(&[command, "nowhere/such.toml"]);
        assert_eq!(output.status.code(), Some(78), "{command}");
        assert_eq!(said(&output), "nowhere/such.toml: no such file\n", "{command}");
    }
}

#[test]
fn a_taken_port_names_the_key_the_flag_and_the_process() {
    let taken = TcpListener::bind(FREE).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_folder, file) = fixed(Setup::new());
    let free = ["--listen", FREE, "--admin-listen", FREE];
    for (flag, key, variable) in
        [(1, "listen", "SLUICE_LISTEN"), (3, "admin_listen", "SLUICE_ADMIN_LISTEN")]
    {
        let mut flags = free;
        flags[flag] = &address;
        let output = sluice(&[&["up", &file], &flags[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let (pid, name) = (std::process::id(), flags[flag - 1]);
        let who = format!("(pid {pid}); give another address in {key} of [router], ");
        let told = said(&output);
        let begins = format!("cannot listen on {address}: the port is in use by ");
        assert!(told.contains(&begins), "{told}");
        assert!(told.ends_with(&format!("{who}{variable} or {name}\n")), "{told}");
    }
}

#[test]
fn unknown_commands_and_flags_are_told_what_was_meant() {
    let meant: &[(&[&str], &str)] = &[
        (&["serve"], "'up'"),
        (&["run", "sluice.toml"], "'up'"),
        (&["validate", "sluice.toml"], "'check'"),
        (&["statsu"], "'status'"),
        (&["ps"], "'status'"),
        (&["bench"], "'load'"),
        (&["keygen"], "'key new'"),
        (&["job", "sumbit"], "'submit'"),
        (&["up", "--confg", "sluice.toml"], "'--config'"),
        (&["load", "--modle", "digits"], "'--model'"),
    ];
    for (args, word) in meant {
        let output = sluice(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let told = said(&output);
        let tip = told.lines().find(|line| line.trim_start().starts_with("tip: "));
        assert!(tip.is_some_and(|tip| tip.contains(word)), "{args:?}: {told}");
    }
    for args in [&["rnak"][..], &["execute"], &["zebra"]] {
        let told = said(&sluice(args));
        assert!(!told.contains("tip:"), "an internal command is none to suggest: {told}");
    }
}

#[test]
fn a_new_key_opens_what_its_line_admits() {
    let output = sluice(&["key", "new", "--format", "json"]);
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let other = said(&sluice(&["key", "new"]));
    let (first, line) = other.trim_end().split_once('\n').unwrap();
    let key = first.strip_prefix("key = ").unwrap();
    assert!(key.len() >= 32, "128 bits in hexadecimal digits, at least: {key}");
    assert_ne!(made["key"], key, "no two are the same");
    let setup = Setup::new().sleeper("echo", 2, "slo_ms = 2000").tables(ONE_GPU);
    let tenant = format!("[[tenant]]\nname = \"search\"\n{line}");
    let program = setup.tables(&tenant).start();
    let infer = |key: &str| {
        let bearer = format!("Bearer {key}");
        program.client().infer("echo", &Body::row().with("authorization", &bearer)).status
    };
    assert_eq!((infer(key), infer(made["key"].as_str().unwrap())), (200, 401));
}

#[test]
fn a_followed_submission_prints_the_output_and_ends_as_the_job() {
    let program = lender("").start();
    let url = format!("http://{}", program.admin());
    let submit = |line: &str| {
        let job = ["job", "submit", "--follow", "--url", &url, "--retries", "0", "--"];
        sluice(&[&job[..], &["/bin/sh", "-c", line]].concat())
    };
    let done = submit("echo one; echo two");
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "one\ntwo\n");
    let failed = submit("echo epoch 1; echo Traceback >&2; echo 'ValueError: no data' >&2; exit 3");
    assert_eq!(failed.status.code(), Some(1));
    let told = String::from_utf8_lossy(&failed.stderr).into_owned();
    let reason = "is failed: rank 0 exited with 3: ValueError: no data\n";
    assert!(told.ends_with(reason), "{told}");
    let list = said(&sluice(&["job", "list", "--url", &url]));
    let line = list.lines().find(|line| line.contains("failed")).unwrap();
    assert!(line.ends_with("rank 0 exited with 3: ValueError: no data"), "{list}");
}

#[test]
fn inference_port_says_where_things_are() {
    let program = Setup::new()
        .sleeper("digits", 2, "slo_ms = 2000")
        .sleeper("langid", 2, "slo_ms = 2000")
        .tables(ONE_GPU)
        .start();
    let mut client = program.client();
    assert_eq!(client.get("/v2/models").text(), "{\"models\":[\"digits\",\"langid\"]}");
    let text = client.get("/").text();
    assert!(text.contains("GET  /v2/models ") && text.contains("/v2/health/ready"), "{text}");
    client.send("GET", "/", &[("accept", "application/json")], b"");
    let places = client.receive().json();
    assert_eq!((&places["name"], &places["models"]), (&"sluice".into(), &"/v2/models".into()));
    for (name, told) in [
        ("digit", "no model named \"digit\"; did you mean \"digits\"?"),
        ("resnet50", "no model named \"resnet50\"; known are digits, langid"),
    ] {
        let reply = client.infer(name, &Body::row());
        assert_eq!((reply.status, &reply.json()["error"]), (404, &told.into()));
        let asked = format!("{{\"model\": \"{name}\", \"slo_ms\": 50}}");
        let mut admin = Client::connect(program.admin());
        let reply = admin.post("/admin/v1/objective", &[], asked.as_bytes());
        assert_eq!((reply.status, &reply.json()["error"]), (404, &told.into()));
    }
}

#[test]
fn plan_reads_models_and_fleet_of_a_running_router() {
    let program = Setup::new()
        .sleeper("echo", 2, "slo_ms = 50\nmax_batch = 1024\nreplicas = { min = 1, max = 4 }")
        .gpus(2)
        .start();
    let url = format!("http://{}", program.admin());
    let plan =
        |more: &[&str]| sluice(&[&["plan", "--url", &url, "--format", "json"], more].concat());
    let planned = |more: &[&str]| -> Value {
        let output = plan(more);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let here = planned(&[]);
    assert_eq!((&here["gpus_used"], &here["models"][0]["model"]), (&1.into(), &"echo".into()));
    let asked = planned(&["--demand", "echo=30000", "--gpu", "A100-80GB=8"]);
    assert_eq!(asked["models"][0]["demand_rps"], 30_000.0);
    let told = |more: &[&str]| {
        let output = plan(more);
        assert_ne!(output.status.code(), Some(0));
        said(&output)
    };
    assert!(told(&["--demand", "ecko=5"]).contains("did you mean \"echo\"?"));
    assert!(told(&["--gpu", "A100=4"]).contains("no GPU kind named \"A100\""));
    assert!(told(&["--demand", "echo=1e9"]).contains("the fleet of 2 GPUs is too small"));
    drop(program);
    let gone = said(&sluice(&["plan", "--url", &url]));
    assert!(gone.contains("give a plan FILE to plan without a router"), "{gone}");
}

#[test]
fn files_given_twice_are_a_mistake_of_usage() {
    let output = sluice(&["up", "a.toml", "--config", "b.toml"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
