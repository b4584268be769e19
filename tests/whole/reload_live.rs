//! What a reload takes while everything runs, and what it says beforehand.

use std::{io::Read, net::TcpStream};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    client::{Body, Client},
    program::{Program, sluice},
    setup::{ONE_GPU, Setup},
    split::Split,
    wait::eventually,
};

const TRUE: &str = "/bin/true";

fn setup() -> Setup {
    let settings = "slo_ms = 1000\nmax_batch = 8\nreplicas = { min = 1, max = 1 }";
    Setup::new().sleeper("slow", 5, settings)
}

/// What a command of the running program's operator does and says.
fn operate(program: &Program, args: &[&str]) -> (Option<i32>, String) {
    let url = format!("http://{}", program.admin());
    let (target, rest) = match args {
        ["check", file] => ("--against", vec!["check", file]),
        other => ("--url", other.to_vec()),
    };
    let output = sluice(&[&rest[..], &[target, &url]].concat());
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

fn submit(program: &Program) -> (u16, Value) {
    let body = json!({"argv": [TRUE]}).to_string();
    let reply = Client::connect(program.admin()).post("/admin/v1/jobs", &[], body.as_bytes());
    (reply.status, reply.json())
}

/// Waits until a job that was submitted is done.
fn wait_done(program: &Program, job: &Value) {
    let path = format!("/admin/v1/jobs/{}", job["id"]);
    eventually("the job is done", || {
        (program.ask_admin(&path).json()["state"] == "done").then_some(())
    });
}

#[test]
fn jobs_are_allowed_and_disallowed_by_a_reload() {
    let setup = setup().gpus(2);
    let text = setup.text();
    let program = setup.start();
    assert_eq!(submit(&program).0, 403);
    program.rewrite(&format!("{text}[loans]\nallow = [\"{TRUE}\"]\n"));
    let (code, said) = operate(&program, &["reload"]);
    assert_eq!((code, said.as_str()), (Some(0), "loans: added\nreloaded\n"));
    let (status, job) = submit(&program);
    assert_eq!(status, 201, "{job}");
    wait_done(&program, &job);
    program.rewrite(&format!("{text}[loans]\nallow = [\"/bin/false\"]\nnice = 3\n"));
    let (code, said) = operate(&program, &["reload"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("loans.allow: [\"/bin/true\"] -> [\"/bin/false\"]"), "{said}");
    let (status, told) = submit(&program);
    assert_eq!((status, &told["reason"]), (403, &json!("not_allowed")), "{told}");
    program.rewrite(&text);
    assert_eq!(operate(&program, &["reload"]), (Some(0), "loans: removed\nreloaded\n".to_owned()));
    assert_eq!(submit(&program).1["reason"], "no_loans");
}

#[test]
fn a_worker_takes_its_terms_for_jobs_on_a_hangup() {
    let setup = setup().tables(&format!("[loans]\nallow = [\"{TRUE}\"]"));
    let two = format!("{ONE_GPU}{ONE_GPU}");
    let split = Split::start(setup, &two);
    let file = split.worker.folder().path().join("worker.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let (status, job) = submit(&split.router);
    // It may wait for a worker that lends, or be refused because none does.
    assert!(status == 201 || status == 422, "{job}");
    std::fs::write(&file, text.replace("alpha", "beta")).unwrap();
    split.worker.signal(Signal::HUP);
    split.worker.wait_log("join.name can only change with a restart");
    let lending = format!("{text}[loans]\nallow = [\"{TRUE}\"]\n[log]\nlevel = \"debug\"\n");
    std::fs::write(&file, lending).unwrap();
    split.worker.signal(Signal::HUP);
    split.worker.wait_log("configuration reloaded");
    let job = eventually("the fleet takes the job", || {
        let (status, job) =
            if status == 201 { (status, job.clone()) } else { submit(&split.router) };
        (status == 201).then_some(job)
    });
    wait_done(&split.router, &job);
}

#[test]
fn connection_limits_change_without_a_restart() {
    let setup = setup().gpus(1);
    let text = setup.text();
    let program = setup.start();
    let mut first = program.client();
    assert_eq!(first.infer("slow", &Body::row()).status, 200);
    let with = |lines: &str| text.replace("[[model]]", &format!("{lines}\n[[model]]"));
    program.rewrite(&with("max_connections = 1\nheader_timeout_ms = 2000"));
    assert_eq!(program.reload().status, 200);
    assert_eq!(program.client().get("/v2/health/live").status, 503, "a second connection");
    assert_eq!(first.infer("slow", &Body::row()).status, 200, "the first stays");
    program.rewrite(&with("header_timeout_ms = 10\nidle_timeout_s = 1\nmax_header_bytes = 8192"));
    assert_eq!(program.reload().status, 200);
    let mut silent = TcpStream::connect(program.inference()).unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap(), 0, "no head came, and it was closed");
    let long = "x".repeat(20_000);
    let status = {
        let mut client = program.client();
        client.send("GET", "/v2/health/live", &[("x-long", &long)], b"");
        client.status()
    };
    assert_eq!(status, 431);
}

#[test]
fn a_dry_run_says_what_a_reload_would_do() {
    let setup = setup().gpus(1);
    let text = setup.text();
    let program = setup.start();
    let file = program.folder().path().join("new.toml").display().to_string();
    let slo = || program.state("slow")["slo_ms"].clone();
    let nothing = (Some(0), "nothing would change\n".to_owned());
    assert_eq!(operate(&program, &["reload", "--dry-run"]), nothing);

    let live = text.replace("slo_ms = 1000", "slo_ms = 750");
    program.rewrite(&live);
    let would = "model.slow.slo_ms: 1000 -> 750\na reload would apply this; nothing was changed\n";
    assert_eq!(operate(&program, &["reload", "--dry-run"]), (Some(0), would.to_owned()));
    assert_eq!(slo(), 1000.0);

    let hard = live.replace("127.0.0.1:0\"\nadmin", "127.0.0.1:9\"\nadmin");
    program.folder().write("new.toml", &hard);
    let (code, said) = operate(&program, &["check", &file]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "model.slow.slo_ms: 1000 -> 750\n",
        "router.listen: \"127.0.0.1:0\" -> \"127.0.0.1:9\" (needs a restart)\n",
        "a reload would be rejected as a whole: 1 of the changes need a restart\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    program.folder().write("new.toml", &live);
    assert_eq!(operate(&program, &["check", &file]), (Some(0), would.to_owned()));
    program.rewrite(&hard);
    let (code, said) = operate(&program, &["reload"]);
    assert!(code == Some(1) && said.contains("router.listen can only change with a restart"));
    assert_eq!(slo(), 1000.0);

    program.rewrite(&text.replace("slo_ms = 1000", "slo_ms = \"fast\""));
    for command in [&["reload", "--dry-run"][..], &["reload"]] {
        let (code, said) = operate(&program, command);
        assert!(code == Some(1) && said.contains("sluice.toml:"), "{said}");
    }
    program.folder().write("new.toml", "[router]\nlisten = 3\n");
    assert_eq!(operate(&program, &["check", &file]).0, Some(78));
    program.rewrite(&live);
    assert_eq!(operate(&program, &["reload"]).0, Some(0));
    assert_eq!(slo(), 750.0);
}

#[test]
fn objectives_nobody_can_keep_are_refused_unless_forced() {
    let setup = setup().gpus(1);
    let text = setup.text();
    let program = setup.start();
    let slo = || program.state("slow")["slo_ms"].clone();
    let ask = |more: Value| {
        let mut asked = json!({"model": "slow", "slo_ms": 9});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let body = asked.to_string();
        Client::connect(program.admin()).post("/admin/v1/objective", &[], body.as_bytes())
    };
    let why = "its quickest measured batch takes 5.0 ms and may take 0.45 of the objective";
    let preview = eventually("the planner knows the model", || {
        let told = ask(json!({})).json();
        told["refused"].is_string().then_some(told)
    });
    assert!(preview["refused"].as_str().unwrap().contains(why), "{preview}");
    let after = &preview["effect"]["after"];
    assert_eq!(after["capacity_rps"], 0.0, "{preview}");
    assert_ne!(after["refusals"], json!([]), "{preview}");
    let refused = ask(json!({"apply": true}));
    assert_eq!((refused.status, refused.reason().as_str()), (422, "invalid"), "{}", refused.text());
    assert!(refused.text().contains(why) && refused.text().contains("at least 12"));
    assert_eq!(slo(), 1000.0);

    program.rewrite(&text.replace("slo_ms = 1000", "slo_ms = 9"));
    let (code, said) = operate(&program, &["reload", "--dry-run"]);
    assert!(code == Some(1) && said.contains(why), "{said}");
    let (code, said) = operate(&program, &["reload"]);
    assert!(code == Some(1) && said.contains(why), "{said}");
    assert_eq!(slo(), 1000.0);
    assert_eq!(operate(&program, &["reload", "--force"]).0, Some(0));
    assert_eq!(slo(), 9.0);
    program.rewrite(&text);
    assert_eq!(operate(&program, &["reload"]).0, Some(0));
    assert_eq!(ask(json!({"apply": true, "force": true})).status, 200);
    assert_eq!(slo(), 9.0);
}
