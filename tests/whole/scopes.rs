//! Who may what: every endpoint asked with every kind of key, held against the docs.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
};

use protocol::{FromExecutor, JOIN_VERSION, PRELUDE_LEN, Peer, Prelude, ToExecutor, VERSION};

use crate::{
    client::{Body, Client},
    endpoints::{self, Endpoint},
    program::{Program, ROOT},
    secrets::hash,
    setup::{ONE_GPU, Setup},
    split::{self, Split, TOKEN},
    wait::{PATIENCE, eventually},
};

/// Every kind of key; the first is none.
const KEYS: [&str; 6] = ["", "the tenant's", "the infer", "the jobs", TOKEN, "the admin"];
const HEADER: &str =
    "| verb | path | no key | a tenant's | `infer` | `jobs` | join token | `admin` |";
const PAGE: &str = "docs/api.md";
const BEGIN: &str = "<!-- begin scopes -->\n";
const END: &str = "<!-- end scopes -->";

#[test]
fn who_may_what_is_as_the_docs_say() {
    let split = split();
    let mut rows = vec![HEADER.to_owned(), format!("|{}", " --- |".repeat(8))];
    for endpoint in endpoints::of_inference() {
        rows.push(row(split.router.inference(), &endpoint));
    }
    rows.push(told("join", "a worker's, at `join_listen`", |key| joins(&split.door, key)));
    rows.push(told("hello", "a router's, to an executor", |key| greets(&split.worker, key)));
    for endpoint in endpoints::of_admin() {
        rows.push(row(split.router.admin(), &endpoint));
    }
    let measured = format!("\n{}\n\n", rows.join("\n"));
    let page = Path::new(ROOT).join(PAGE);
    let text = fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the table's beginning");
    let (table, after) = rest.split_once(END).expect("the page has the table's end");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(page, format!("{before}{BEGIN}{measured}{END}{after}")).unwrap();
        return;
    }
    let again = "UPDATE_DOCS=1 cargo nextest run --cargo-profile release -p sluice -E 'test(=scopes::who_may_what_is_as_the_docs_say)'";
    assert_eq!(
        table, measured,
        "{PAGE} tells otherwise; if it is the docs that are wrong: {again}"
    );
}

#[test]
fn every_administrative_act_is_in_the_audit_log_with_who_did_it() {
    let split = split();
    let on_inference = endpoints::of_inference().into_iter();
    let on_inference = on_inference.map(|endpoint| (split.router.inference(), endpoint));
    let on_admin = endpoints::of_admin().into_iter();
    let on_admin = on_admin.map(|endpoint| (split.router.admin(), endpoint));
    let acts: Vec<(SocketAddr, Endpoint)> =
        on_inference.chain(on_admin).filter(|(_, endpoint)| endpoint.audited).collect();
    for (address, act) in &acts {
        for key in KEYS {
            status(*address, act, key);
        }
    }
    let written = |log: &str, act: &Endpoint, who: &str| {
        let (path, verb) = (act.example(), act.verb);
        let wanted = [
            "\"target\":\"audit\"".to_owned(),
            format!("\"who\":\"{who}\""),
            format!("\"path\":\"{path}\""),
            format!("\"method\":\"{verb}\""),
        ];
        log.lines().any(|line| wanted.iter().all(|wanted| line.contains(wanted)))
    };
    for (_, act) in &acts {
        // What was said last may still be on its way to whoever reads the log.
        let log = eventually("it is in the audit log", || {
            Some(split.router.log()).filter(|log| written(log, act, "key root"))
        });
        for nobody in ["nobody known", "an unknown key", "tenant shop", "key prober"] {
            assert!(!written(&log, act, nobody), "{act:?} by {nobody} did nothing and is in {log}");
        }
    }
}

fn split() -> Split {
    let key = |name: &str, secret: &str, scope: &str| {
        let hash = hash(secret);
        format!("[[key]]\nname = \"{name}\"\nkey_sha256 = \"{hash}\"\nscopes = [\"{scope}\"]\n")
    };
    let [_, tenant, infer, jobs, _, admin] = KEYS;
    let setup = Setup::new()
        .sleeper("echo", 1, "slo_ms = 20000")
        .tables(&format!("[[tenant]]\nname = \"shop\"\nkey_sha256 = \"{}\"", hash(tenant)))
        .tables(&key("prober", infer, "infer"))
        .tables(&key("trainer", jobs, "jobs"))
        .tables(&key("root", admin, "admin"))
        .tables("[loans]\nallow = [\"/bin/true\"]");
    Split::start(setup, ONE_GPU)
}

fn row(address: SocketAddr, endpoint: &Endpoint) -> String {
    told(endpoint.verb, &format!("`{}`", endpoint.path), |key| {
        status(address, endpoint, key).to_string()
    })
}

fn told(verb: &str, what: &str, ask: impl Fn(&str) -> String) -> String {
    let cells: Vec<String> = KEYS.iter().map(|key| ask(key)).collect();
    format!("| {verb} | {what} | {} |", cells.join(" | "))
}

fn status(address: SocketAddr, endpoint: &Endpoint, key: &str) -> u16 {
    let bearer = format!("Bearer {key}");
    let headers: &[(&str, &str)] = if key.is_empty() { &[] } else { &[("authorization", &bearer)] };
    let body = if endpoint.path.ends_with("/infer") { Body::row().bytes } else { Vec::new() };
    let mut client = Client::connect(address);
    client.send(endpoint.verb, &endpoint.example(), headers, &body);
    client.status()
}

/// What the router says to a worker that comes with `token`.
fn joins(door: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(door).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let line = serde_json::json!({"join": {"version": JOIN_VERSION, "token": token, "worker": "stranger"}});
    writeln!(stream, "{line}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    match answer.as_str() {
        welcome if welcome.starts_with("{\"welcome\"") => "welcome".to_owned(),
        refused if refused.contains("the token is not this fleet's") => "refused".to_owned(),
        other => panic!("{token:?} gets {other:?}"),
    }
}

/// What an executor says to a router that comes with `token`.
fn greets(worker: &Program, token: &str) -> String {
    let run = worker.folder().path().join("run");
    let sockets = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let socket = |path: &std::path::PathBuf| path.extension().is_some_and(|kind| kind == "sock");
    let socket = sockets.filter(socket).min().expect("an executor listens");
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = ToExecutor::Hello { version: VERSION, token: token.to_owned() };
    stream.write_all(&hello.encode().unwrap()).unwrap();
    let mut start = [0; PRELUDE_LEN];
    stream.read_exact(&mut start).unwrap();
    let prelude = Prelude::decode(&start, Peer::Executor).unwrap();
    let mut header = vec![0; prelude.header_len as usize];
    stream.read_exact(&mut header).unwrap();
    match FromExecutor::decode(prelude, &header).unwrap() {
        FromExecutor::Hello { .. } => "welcome".to_owned(),
        FromExecutor::Refused { .. } => "refused".to_owned(),
        FromExecutor::Reply(reply) => panic!("a reply to a hello: {reply:?}"),
        FromExecutor::Pong => panic!("a pong to a hello"),
    }
}

#[test]
fn who_may_nothing_learns_nothing_of_the_join_token() {
    let (router, door) = split::router(Setup::new().sleeper("echo", 1, "slo_ms = 20000"));
    assert_eq!(joins(&door, "another"), "refused");
    assert!(!router.log().contains(TOKEN));
}
