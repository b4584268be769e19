//! What the program logs, and that no line of it waits for a reader.

use rustix::process::Signal;
use serde_json::Value;

use crate::{
    client::{Body, Client},
    program::Program,
    setup::Setup,
    wait::eventually,
};

fn sleeper() -> Setup {
    Setup::new().sleeper("fast", 1, "slo_ms = 2000\nmax_batch = 8\nreplicas = { min = 1, max = 1 }")
}

/// Every line of `log`, as JSON.
#[track_caller]
fn lines(log: &str) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    log.lines().map(line).collect()
}

#[track_caller]
fn access_lines(program: &Program) -> Vec<Value> {
    let log = program.log();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let on_inference = |line: &Value| !line["path"].as_str().unwrap().starts_with("/admin/");
    let access = lines(whole).into_iter().filter(|line| line["target"] == "access");
    access.filter(on_inference).collect()
}

fn path(index: usize) -> String {
    format!("/nowhere/{index}/{}", "x".repeat(4096))
}

#[test]
fn a_stderr_nobody_reads_delays_nothing() {
    let setup = sleeper().router("access_log = \"all\"\ndrain_delay_s = 0").gpus(1);
    let config = setup.folder().write("sluice.toml", setup.text());
    let args = ["up", "--config", config.to_str().unwrap()];
    let mut program = Program::launch_unread(setup.into_folder(), &args, &[]);
    program.wait_ready();
    let dropped = || program.metrics().value("sluice_log_lines_dropped_total");
    let mut client = program.client();
    let mut asked = 0;
    // Far more than a pipe and the queue hold together.
    while dropped() < 100.0 {
        for index in 0..250 {
            assert_eq!(client.get(&path(asked + index)).status, 404);
        }
        asked += 250;
        assert!(asked < 10_000, "no line was dropped");
        for _ in 0..20 {
            assert_eq!(client.infer("fast", &Body::row()).status, 200);
        }
        assert_eq!(program.ask_admin("/livez").status, 200);
    }
    assert!(asked >= 2000, "{asked} lines of 4 KiB overflow 8 MiB");
    let served = (asked / 250 * 20) as u64;
    assert_eq!(program.state("fast")["totals"]["within_objective"], served);
    let told = program.ask_admin("/admin/v1/state").json()["log"]["dropped"].as_f64().unwrap();
    assert!(told >= 100.0 && told <= dropped(), "{told}");
    program.signal(Signal::TERM);
    assert_eq!(program.wait_end().0, Some(0), "it does not wait for its reader at the end either");
}

#[test]
fn all_requests_have_a_line_whatever_the_level() {
    let tenant = "[[tenant]]\nname = \"search\"\nkey_sha256 = \
                  \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n";
    let mut program = sleeper()
        .router("access_log = \"all\"")
        .tables(tenant)
        .gpus(1)
        .launch_with("up", &[("SLUICE_LOG", "error")]);
    program.wait_ready();
    let mut client = program.client();
    let key = ("authorization", "Bearer test");
    let ask = |client: &mut Client, path: &str, id: String| {
        let body = Body::row();
        client.post(path, &[key, ("x-request-id", &id)], &body.bytes).status
    };
    for index in 0..300 {
        assert_eq!(ask(&mut client, "/v2/models/fast/infer", format!("id-{index}")), 200);
    }
    assert_eq!(ask(&mut client, "/v2/models/none/infer", "unknown".to_owned()), 404);
    assert_eq!(client.infer("fast", &Body::row()).status, 401);
    let lines = eventually("every line is written", || {
        Some(access_lines(&program)).filter(|lines| lines.len() >= 302)
    });
    assert_eq!(lines.len(), 302);
    for (index, line) in lines.iter().take(300).enumerate() {
        assert_eq!(line["id"], format!("id-{index}"));
        assert_eq!((&line["model"], &line["tenant"]), (&"fast".into(), &"search".into()), "{line}");
        assert_eq!((&line["status"], &line["method"]), (&200.into(), &"POST".into()), "{line}");
        let time = |key: &str| line[key].as_u64().unwrap_or_else(|| panic!("no {key} in {line}"));
        assert!(time("queue_us") + time("run_us") <= time("took_us"), "{line}");
        assert!(time("run_us") >= 1000 && line.get("reason").is_none(), "{line}");
    }
    let [.., unknown, stranger] = &lines[..] else { unreachable!("there are 302") };
    assert_eq!((&unknown["status"], &unknown["reason"]), (&404.into(), &"unknown_model".into()));
    assert_eq!((&unknown["model"], &unknown["id"]), (&"none".into(), &"unknown".into()));
    assert_eq!((&stranger["status"], &stranger["reason"]), (&401.into(), &"unauthorized".into()));
}

#[test]
fn errors_alone_have_lines_by_default() {
    let program = sleeper().gpus(1).start();
    let mut client = program.client();
    for _ in 0..3 {
        assert_eq!(client.infer("fast", &Body::row()).status, 200);
        assert_eq!(client.infer("none", &Body::row()).status, 404);
        assert_eq!(client.infer("fast", &Body::json(&[1.0])).status, 400);
    }
    let lines =
        eventually("six lines", || Some(access_lines(&program)).filter(|lines| lines.len() >= 6));
    let told: Vec<_> =
        lines.iter().map(|line| (line["status"].as_u64(), &line["reason"])).collect();
    let (unknown, invalid) = ((Some(404), &"unknown_model".into()), (Some(400), &"invalid".into()));
    assert_eq!(told, [unknown, invalid].repeat(3));
}

#[test]
fn level_follows_flag_environment_and_reload() {
    let reloads = |program: &Program| program.log().matches("configuration reloaded").count();
    let setup = sleeper().gpus(1);
    let text = setup.text();
    let mut program = setup.launch();
    program.wait_listening();
    let reload = |level: &str| {
        program.rewrite(&format!("{text}[log]\nlevel = \"{level}\"\n"));
        let reply = program.reload();
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["changes"].clone()
    };
    assert_eq!(reload("error")[0]["path"], "log");
    let change = reload("info,control=debug")[0].clone();
    assert_eq!((&change["path"], &change["effect"]), (&"log.level".into(), &"live".into()));
    eventually("the reload that made it louder is logged", || {
        (reloads(&program) > 0).then_some(())
    });
    reload("error");
    program.rewrite(&format!("{text}[log]\nlevel = \"loud\"\n"));
    let reply = program.reload();
    assert_eq!(reply.status, 422);
    assert!(reply.text().contains("is no log level; give off, error"), "{}", reply.text());
    assert_eq!(reloads(&program), 1, "{}", program.log());

    let started = |args: &[&str], environment: &[(&str, &str)]| {
        let setup = sleeper().router("drain_delay_s = 0").gpus(1);
        let config = setup.folder().write("sluice.toml", setup.text());
        let args = [&["up", "--config", config.to_str().unwrap()], args].concat();
        let mut program = Program::launch(setup.into_folder(), &args, environment);
        program.wait_listening();
        program.signal(Signal::TERM);
        program.wait_end().1
    };
    assert!(started(&[], &[]).contains("\"level\":\"INFO\""));
    assert_eq!(started(&["--log", "error"], &[("SLUICE_LOG", "debug")]), "");
    assert_eq!(started(&[], &[("SLUICE_LOG", "error"), ("RUST_LOG", "debug")]), "");
    assert_eq!(started(&[], &[("RUST_LOG", "error")]), "");
}

#[test]
fn lines_of_engines_and_executors_are_our_own() {
    let says = "echo '{\"severity\":\"WARNING\",\"msg\":\"no GPU found\",\"device\":3}'; \
                echo 'ERROR 11-18 20:05:01 out of memory'; echo hello; exit 3";
    let setup = Setup::new().tables(&format!(
        "[[model]]\nname = \"sick\"\nengine = \"server\"\nslo_ms = 1000\nmax_batch = 1\n\
         command = [\"/bin/sh\", \"-c\", {says:?}]\nreplicas = {{ min = 1, max = 1 }}\n"
    ));
    let program = setup.gpus(1).launch();
    let found = |what: &str, is: &dyn Fn(&Value) -> bool| {
        eventually(what, || {
            let log = program.log();
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).find(is)
        })
    };
    let json = found("the JSON line", &|line| line["message"] == "no GPU found");
    assert_eq!((&json["level"], &json["device"]), (&"WARN".into(), &3.into()), "{json}");
    let text = found("the line of text", &|line| {
        line["text"].as_str().is_some_and(|text| text.contains("out of memory"))
    });
    let plain = found("the plain line", &|line| line["text"] == "hello");
    let failed = found("the failure", &|line| {
        line["message"] == "model failed to load or run" && line["level"] == "ERROR"
    });
    assert_eq!((&text["level"], &plain["level"]), (&"ERROR".into(), &"INFO".into()));
    for line in [&json, &text, &plain, &failed] {
        assert_eq!(line["model"], "sick", "{line}");
        assert!(line["slice"].as_str().is_some_and(|slice| slice.starts_with("gpu0:")), "{line}");
    }
}
