//! TLS on every listener, and everyone who dials one.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
};

use protocol::{ToExecutor, VERSION};
use rustix::process::Signal;
use serde_json::Value;
use tls::{Identity, StreamOwned};
use wire::{Connection, Page, Secure};

use crate::{
    client::{Body, Client},
    process,
    program::{Program, ROOT, sluice, sluice_with},
    setup::{ONE_GPU, Setup},
    split::{self, TOKEN},
    wait::{PATIENCE, eventually},
};

const TLS: &str = "[tls]\ncert = \"router.pem\"\nkey = \"router.key\"\n";

fn made(name: &str) -> PathBuf {
    Path::new(ROOT).join("tests/certificates").join(name)
}

/// A model, and the certificates of `TLS` beside the file.
fn setup(more: &str) -> Setup {
    let setup = Setup::new().sleeper("echo", 1, "slo_ms = 20000").tables(&format!("{TLS}{more}"));
    for name in ["router.pem", "router.key", "ca.pem"] {
        setup.replace(name, &fs::read(made(name)).unwrap());
    }
    setup
}

fn secure(identity: Option<&Identity>) -> Secure {
    let config = tls::client(Some(&made("ca.pem")), identity).unwrap();
    Secure { config, name: tls::name_of("localhost:0").unwrap() }
}

fn ask(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Page {
    let mut connection = Connection::new(address, PATIENCE, 1 << 20).over(Some(secure(None)));
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    connection.send(&[head.as_bytes(), body]).unwrap()
}

/// The certificate the router shows now.
fn shown(address: SocketAddr) -> Vec<u8> {
    let tcp = TcpStream::connect(address).unwrap();
    let mut stream = StreamOwned::new(secure(None).begin().unwrap(), tcp);
    stream.write_all(b"GET /livez HTTP/1.0\r\n\r\n").unwrap();
    stream.flush().unwrap();
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

fn reload(program: &Program) -> Page {
    ask(program.admin(), "POST", "/admin/v1/reload", b"")
}

#[test]
fn every_listener_speaks_tls_and_whoever_speaks_plainly_is_told() {
    let (mut router, door) = split::router(setup(""));
    let ca = format!("ca = {:?}\n{ONE_GPU}", made("ca.pem"));
    let _worker = split::worker(&door, TOKEN, "alpha", &ca);
    router.wait_word("ready");
    let page = ask(router.inference(), "POST", "/v2/models/echo/infer", &Body::row().bytes);
    assert_eq!(page.status, 200, "{}", page.words());
    assert_eq!(ask(router.admin(), "GET", "/readyz", b"").status, 200);
    for address in [router.inference(), router.admin()] {
        let reply = Client::connect(address).get("/v2/health/live");
        assert_eq!(reply.status, 501);
        assert!(reply.text().contains("use https://"), "{}", reply.text());
    }
}

#[test]
fn worker_without_tls_or_with_another_ca_does_not_join() {
    let (router, door) = split::router(setup(""));
    let ca = format!("ca = {:?}\n{ONE_GPU}", made("other-ca.pem"));
    for gpus in [ONE_GPU, &ca] {
        let worker = split::worker(&door, TOKEN, "alpha", gpus);
        eventually("it says that it did not join", || {
            worker.log().contains("failed to join router").then_some(())
        });
        assert!(!router.log().contains("\"worker joined\""), "{}", router.log());
    }
}

#[test]
fn with_client_ca_a_worker_needs_a_certificate_and_the_token() {
    let (mut router, door) = split::router(setup("client_ca = \"ca.pem\"\n"));
    let ca = format!("ca = {:?}\n", made("ca.pem"));
    let nobody = split::worker(&door, TOKEN, "nobody", &format!("{ca}{ONE_GPU}"));
    eventually("it did not join", || nobody.log().contains("failed to join router").then_some(()));
    assert!(!router.log().contains("\"worker joined\""), "{}", router.log());
    drop(nobody);
    let identity = format!("cert = {:?}\nkey = {:?}\n", made("worker.pem"), made("worker.key"));
    let guess =
        split::worker(&door, "another fleet's token", "guess", &format!("{ca}{identity}{ONE_GPU}"));
    eventually("it is refused", || guess.log().contains("refused us").then_some(()));
    drop(guess);
    let _worker = split::worker(&door, TOKEN, "alpha", &format!("{ca}{identity}{ONE_GPU}"));
    router.wait_word("ready");
}

#[test]
fn reload_takes_a_renewed_certificate_and_rejects_a_bad_one() {
    let (router, _door) = split::router(setup(""));
    let before = shown(router.inference());
    let folder = router.folder();
    folder.write("router.pem", fs::read(made("next.pem")).unwrap());
    let refused = reload(&router);
    assert_eq!(refused.status, 422, "{}", refused.words());
    let told = String::from_utf8(refused.body).unwrap();
    assert!(told.contains("does not belong to the private key"), "{told}");
    assert_eq!(shown(router.inference()), before, "the old one stays");
    folder.write("router.key", fs::read(made("next.key")).unwrap());
    let taken = reload(&router);
    assert_eq!(taken.status, 200, "{}", taken.words());
    assert!(String::from_utf8(taken.body).unwrap().contains("tls (content)"));
    for address in [router.inference(), router.admin()] {
        assert_ne!(shown(address), before);
    }
}

#[test]
fn commands_speak_https_to_whom_they_can_trust() {
    let mut program = setup("").gpus(1).launch();
    program.wait_listening();
    program.wait_word("ready");
    let admin = format!("https://localhost:{}", program.admin().port());
    let ca = made("ca.pem");
    let trusted = [("SSL_CERT_FILE", ca.to_str().unwrap())];
    let status = sluice_with(&["status", "--url", &admin, "--format", "json"], &trusted);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let other = made("other-ca.pem");
    let doubted = [("SSL_CERT_FILE", other.to_str().unwrap())];
    let status = sluice_with(&["status", "--url", &admin], &doubted);
    assert_eq!(status.status.code(), Some(1));
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(said.contains("invalid peer certificate"), "{said}");
    let url = format!("https://localhost:{}", program.inference().port());
    let load = ["load", "--url", &url, "--model", "echo", "--rate", "50", "--duration", "0.4"];
    let more = ["--warmup", "0.1", "--slo-ms", "20000", "--format", "json"];
    let load = sluice_with(&[&load[..], &more].concat(), &trusted);
    let said = String::from_utf8_lossy(&load.stderr).into_owned();
    assert!(load.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert!(report["streams"][0]["share_in_time"].as_f64() > Some(0.99), "{report}");
}

#[test]
fn a_bad_certificate_is_told_with_its_line() {
    let setup = setup("");
    setup.replace("router.key", b"not a key\n");
    let file = setup.folder().write("bad.toml", setup.text());
    let checked = sluice(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(78));
    let said = String::from_utf8_lossy(&checked.stderr).into_owned()
        + &String::from_utf8_lossy(&checked.stdout);
    assert!(said.contains("it holds no private key in PEM"), "{said}");
    let line = setup.text().lines().position(|line| line.starts_with("key = ")).unwrap() + 1;
    assert!(said.contains(&format!("bad.toml:{line}:7: private key")), "{said}");
}

#[test]
fn a_handshake_that_does_not_come_is_hung_up_on() {
    let (program, _door) = split::router(setup("").router("header_timeout_ms = 200"));
    for start in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(program.inference()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(start).unwrap();
        let mut said = Vec::new();
        // It may be reset rather than closed.
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said, b"", "{start:?}");
    }
}

/// A worker whose executors are reached over TCP, and its certificate in files of its own.
fn apart(router: &Program, door: &str) -> Program {
    let [cert, key] = ["pem", "key"].map(|kind| {
        let bytes = fs::read(made(&format!("worker.{kind}"))).unwrap();
        router.folder().write(&format!("apart.{kind}"), bytes)
    });
    let more = format!(
        "advertise = \"127.0.0.1\"\nca = {:?}\ncert = {cert:?}\nkey = {key:?}\n{ONE_GPU}",
        made("ca.pem")
    );
    split::worker(door, TOKEN, "alpha", &more)
}

fn infer(router: &Program) -> u16 {
    ask(router.inference(), "POST", "/v2/models/echo/infer", &Body::row().bytes).status
}

fn executor(router: &Program) -> u32 {
    eventually("an executor is there", || {
        let page = ask(router.admin(), "GET", "/admin/v1/workers", b"");
        let told: Value = serde_json::from_slice(&page.body).unwrap();
        let lane = &told["workers"][0]["gpus"][0]["slices"][0]["lanes"][0];
        u32::try_from(lane["pid"].as_u64()?).ok()
    })
}

/// Where a process listens over TCP, as the kernel knows it.
fn listens(pid: u32) -> SocketAddr {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| {
            Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
        })
        .collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let port = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let listens = words.get(3) == Some(&"0A");
        let mine = sockets.iter().any(|inode| words.get(9) == Some(&inode.as_str()));
        let port = words.get(1)?.rsplit_once(':')?.1;
        (listens && mine).then(|| u16::from_str_radix(port, 16).unwrap())
    });
    ([127, 0, 0, 1], port.expect("it listens over TCP")).into()
}

#[test]
fn batches_to_remote_executors_are_encrypted() {
    let (mut router, door) = split::router(setup("client_ca = \"ca.pem\"\n"));
    let _worker = apart(&router, &door);
    router.wait_word("ready");
    assert_eq!(infer(&router), 200);

    let address = listens(executor(&router));
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = ToExecutor::Hello { version: VERSION, token: "guess".to_owned() };
    plain.write_all(&hello.encode().unwrap()).unwrap();
    let mut said = Vec::new();
    // It may be reset rather than closed.
    let _ = plain.read_to_end(&mut said);
    assert!(matches!(said.first(), None | Some(0x15)), "more than an alert of TLS: {said:?}");

    let certificate = || {
        let mut tcp = TcpStream::connect(address).unwrap();
        let mut connection = secure(None).begin().unwrap();
        connection.complete_io(&mut tcp).unwrap();
        connection.peer_certificates().unwrap()[0].to_vec()
    };
    let before = certificate();
    for kind in ["pem", "key"] {
        let bytes = fs::read(made(&format!("next.{kind}"))).unwrap();
        router.folder().write(&format!("apart.{kind}"), bytes);
    }
    assert_ne!(certificate(), before, "a renewed one is not shown");
    assert_eq!(infer(&router), 200, "connections that are open stay");
}

#[test]
fn router_without_the_executors_ca_uses_none_of_them() {
    let (router, door) = split::router(setup(""));
    let _worker = apart(&router, &door);
    eventually("it says why", || {
        router.log().contains("has no client_ca to know it by").then_some(())
    });
    assert_eq!(infer(&router), 503);
    drop(router);

    let (mut router, door) = split::router(setup("client_ca = \"ca.pem\"\n"));
    let _worker = apart(&router, &door);
    router.wait_word("ready");
    let pid = executor(&router);
    router.folder().write("ca.pem", fs::read(made("other-ca.pem")).unwrap());
    assert_eq!(reload(&router).status, 200);
    assert_eq!(infer(&router), 200, "connections that are open stay");
    process::signal(pid, Signal::KILL);
    eventually("it says why", || router.log().contains("invalid peer certificate").then_some(()));
    assert_ne!(infer(&router), 200);
}
