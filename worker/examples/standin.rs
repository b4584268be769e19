//! A stand-in for the server that an executor supervises, for tests; also an executor and a guard.
//!
//! It serves one model, `double`, which doubles what it is given, and misbehaves when asked to:
//! by its arguments as a server, by the values it is given as a model.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{self, Child, Command, ExitCode},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use bytes::Bytes;
use oip::{Request, Response, Tensor};
use protocol::ExecutorId;
use worker::{ExecutorArgs, OnnxRuntime, engine::Surroundings, run_executor, run_guard};

/// The first value of an input that makes the model fail with it as a status.
const STATUSES: [f32; 3] = [400.0, 429.0, 500.0];
/// The first value of an input that makes the server end itself.
const END: f32 = -1.0;
/// The first value of an input that is never answered.
const IGNORE: f32 = -2.0;

/// How the server was asked to behave.
struct Manner {
    /// Whether it speaks of binary tensors.
    binary: bool,
    /// How often it denies being ready; `u32::MAX` is for ever.
    denials: AtomicU32,
    /// Whether it says what its model takes.
    silent: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["guard", "--", ..] => run_guard(&arguments[2..]),
        ["executor", run_dir] => run_executor(ExecutorArgs {
            seat: ExecutorId { gpu: 0, position: "7g.80gb@0".to_owned(), lane: 0 },
            slice: "gpu0:7g@0".to_owned(),
            device: None,
            run_dir: PathBuf::from(run_dir),
            listen: None,
            certificate: None,
            orphan_wait: Duration::ZERO,
            surroundings: Surroundings {
                program: env::current_exe().expect("a running program has a path"),
                onnxruntime: OnnxRuntime::Missing { why: "this is a stand-in".to_owned() },
            },
        }),
        ["serve", port, rest @ ..] => serve(port, rest),
        _ => ExitCode::from(2),
    }
}

fn serve(port: &str, manner: &[&str]) -> ExitCode {
    let mut log = io::stderr();
    let _ = writeln!(log, "model weights found by {}", process::id());
    if manner.contains(&"end") {
        let _ = writeln!(log, "the weights are for another model");
        return ExitCode::from(3);
    }
    let watched = env::var_os("STANDIN_WATCH").map(|path| watch(&path));
    let denials = manner.iter().find_map(|word| word.strip_prefix("denials=")?.parse().ok());
    let manner = Manner {
        binary: !manner.contains(&"json"),
        denials: AtomicU32::new(denials.unwrap_or(0)),
        silent: manner.contains(&"silent"),
    };
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is free");
    let manner = &*Box::leak(Box::new(manner));
    for stream in listener.incoming().flatten() {
        thread::spawn(move || converse(stream, manner));
    }
    drop(watched);
    ExitCode::SUCCESS
}

/// Says its process id on a pipe, which stays open while it or the helper it starts is alive.
fn watch(path: &OsStr) -> (File, Child) {
    let mut pipe = File::options().write(true).open(path).expect("the test has made the pipe");
    let helper = pipe.try_clone().expect("a pipe can be had twice");
    let mut sleep = Command::new("sleep");
    let helper = sleep.arg("1000").stdout(helper).spawn().expect("every system has sleep");
    writeln!(pipe, "{}", process::id()).expect("the test reads the pipe");
    (pipe, helper)
}

fn converse(mut stream: TcpStream, manner: &Manner) {
    while let Some((path, header_length, body)) = read(&mut stream) {
        let answer = answer(manner, &path, header_length, body);
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<(String, Option<usize>, Bytes)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(&head).ok()?;
    let path = request.path?.to_owned();
    let number = |name: &str| -> Option<usize> {
        let header = request.headers.iter().find(|header| header.name == name)?;
        std::str::from_utf8(header.value).ok()?.parse().ok()
    };
    let mut body = vec![0; number("content-length").unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((path, number("inference-header-content-length"), body.into()))
}

fn answer(manner: &Manner, path: &str, header_length: Option<usize>, body: Bytes) -> Vec<u8> {
    let json = |status, text: &str| page(status, None, text.as_bytes());
    let tensor = |name| format!(r#"[{{"name":"{name}","datatype":"FP32","shape":[-1,2]}}]"#);
    let (inputs, outputs) = match manner.silent {
        true => ("[]".to_owned(), "[]".to_owned()),
        false => (tensor("x"), tensor("y")),
    };
    match path {
        "/v2/health/ready" => {
            let less = |left: u32| if left == u32::MAX { Some(left) } else { left.checked_sub(1) };
            match manner.denials.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
                Ok(_) => json(503, r#"{"error":"still reading the weights"}"#),
                Err(_) => json(200, "{}"),
            }
        }
        "/v2/models/double/ready" => json(200, "{}"),
        "/v2" if manner.binary => {
            json(200, r#"{"name":"standin","version":"1","extensions":["binary_tensor_data"]}"#)
        }
        "/v2" => json(200, r#"{"name":"standin","version":"1"}"#),
        "/v2/models/double" => {
            json(200, &format!(r#"{{"name":"double","inputs":{inputs},"outputs":{outputs}}}"#))
        }
        "/v2/models/double/infer" if header_length.is_some() != manner.binary => {
            json(400, r#"{"error":"not the form that was announced"}"#)
        }
        "/v2/models/double/infer" => infer(header_length, body),
        _ => json(404, r#"{"error":"no such thing"}"#),
    }
}

fn infer(header_length: Option<usize>, body: Bytes) -> Vec<u8> {
    let request = Request::decode(body, header_length).expect("an executor sends valid requests");
    let input = &request.inputs[0];
    let values: Vec<f32> =
        input.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let first = values.first().copied().unwrap_or(0.0);
    if first == END {
        let _ = writeln!(io::stderr(), "cannot go on");
        process::exit(7);
    }
    if first == IGNORE {
        loop {
            thread::park();
        }
    }
    if STATUSES.contains(&first) {
        return page(first as u16, None, br#"{"error":"as you wish"}"#);
    }
    let doubled: Vec<u8> = values.iter().flat_map(|value| (value * 2.0).to_le_bytes()).collect();
    let output = Tensor { name: "y".into(), data: doubled.into(), ..input.clone() };
    let response = Response { outputs: vec![output], ..Response::default() };
    let encoded = response.encode(&request).expect("a double of a finite number can be written");
    let length = encoded.header_length;
    page(200, length, &encoded.into_body())
}

fn page(status: u16, header_length: Option<usize>, body: &[u8]) -> Vec<u8> {
    let length = header_length.map_or_else(String::new, |length| {
        format!("inference-header-content-length: {length}\r\n")
    });
    let head = format!("HTTP/1.1 {status} -\r\n{length}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
