//! Whatever a client sends, it gets an answer that says what was wrong, and nobody else is harmed.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};

use crate::{
    client::{Body, Client, HEADER_LENGTH, count_from},
    program::Program,
    setup::Setup,
};

struct Case {
    what: &'static str,
    body: Body,
    status: u16,
    words: &'static [&'static str],
}

fn case(what: &'static str, body: Body, status: u16, words: &'static [&'static str]) -> Case {
    Case { what, body, status, words }
}

fn text(text: impl Into<String>) -> Body {
    Body { headers: Vec::new(), bytes: text.into().into_bytes() }
}

/// One row for the model, but for what `changes` says.
fn changed(changes: &Value) -> Body {
    let mut input = json!({"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]});
    for (key, value) in changes.as_object().unwrap() {
        input[key] = value.clone();
    }
    text(json!({ "inputs": [input] }).to_string())
}

/// A tensor of `tail` bytes that says it has `size`, in a body that says its JSON ends at `length`.
fn sized(size: u64, tail: usize, length: impl Fn(usize) -> String) -> Body {
    let parameters = json!({"binary_data_size": size});
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": parameters});
    let mut bytes = json!({ "inputs": [input] }).to_string().into_bytes();
    let headers = vec![(HEADER_LENGTH, length(bytes.len()))];
    bytes.resize(bytes.len() + tail, 0);
    Body { headers, bytes }
}

fn zipped(bytes: &[u8]) -> Body {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes).unwrap();
    Body { headers: Vec::new(), bytes: packer.finish().unwrap() }.with("content-encoding", "gzip")
}

fn malformed() -> Vec<Case> {
    let right = |length: usize| length.to_string();
    vec![
        case("nothing", text(""), 400, &[]),
        case("JSON cut short", text("{\"inputs\": ["), 400, &["line 1 column"]),
        case("not JSON", text("inputs: x"), 400, &[]),
        case("JSON of another kind", text("[1, 2]"), 400, &[]),
        case("no inputs", text("{}"), 400, &["inputs"]),
        case("bytes that are no text", Body { bytes: vec![0xff; 64], ..text("") }, 400, &[]),
        case("nesting without end", text("[".repeat(50_000)), 400, &[]),
        case("an unknown datatype", changed(&json!({"datatype": "FP33"})), 400, &["FP33"]),
        case("another datatype", changed(&json!({"datatype": "INT32"})), 400, &["\"x\"", "FP32"]),
        case("a wrong element", changed(&json!({"data": [1, 2, "3", 4]})), 400, &["element 2"]),
        case("too few elements", changed(&json!({"data": [1, 2, 3]})), 400, &["4", "3"]),
        case("another shape", changed(&json!({"shape": [2, 2]})), 400, &["\"x\""]),
        case("no rows", changed(&json!({"shape": [0, 4], "data": []})), 400, &["0 rows"]),
        case("a negative dimension", changed(&json!({"shape": [-1, 4]})), 400, &["-1"]),
        case(
            "a shape past all numbers",
            changed(&json!({"shape": [u64::MAX, 4]})),
            400,
            &["\"x\""],
        ),
        case("an unknown input", changed(&json!({"name": "z"})), 400, &["\"z\""]),
        case(
            "the input twice",
            text(
                r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]},{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#,
            ),
            400,
            &["\"x\""],
        ),
        case("a tensor cut short", sized(16, 8, right), 400, &["16"]),
        case("a tensor too long", sized(16, 24, right), 400, &[]),
        case("a size unlike the shape", sized(12, 12, right), 400, &["12"]),
        case("a size past all bodies", sized(u64::MAX, 16, right), 400, &["16"]),
        case("a head past the body", sized(16, 16, |length| (length + 99).to_string()), 400, &[]),
        case("a head of no length", sized(16, 16, |_| "many".to_owned()), 400, &["many"]),
        case("raw bytes of no rows", Body::raw(&[1.0; 5]), 400, &["20"]),
        case("no gzip", text("{}").with("content-encoding", "gzip"), 400, &["gzip"]),
        case("an unknown coding", text("{}").with("content-encoding", "br"), 415, &["br"]),
        case("a bomb", zipped(&vec![b' '; 4 << 20]), 413, &["1048576"]),
        case("too many rows", Body::json(&count_from(0.0, 9)), 400, &["9", "8"]),
        case("a body too long", text(" ".repeat(300_000)), 413, &["262144"]),
        case("no time", Body::row().with("sluice-timeout-ms", "soon"), 400, &["soon"]),
        case("no class", Body::row().with("sluice-class", "first"), 400, &["first"]),
    ]
}

fn program() -> Program {
    Setup::new()
        .router("max_body_bytes = 262144\nmax_decompressed_bytes = 1048576")
        .sleeper("echo", 1, "slo_ms = 20000\nmax_batch = 8")
        .gpus(1)
        .start()
}

#[test]
fn malformed_body_is_a_4xx_and_the_connection_stays_open() {
    let program = program();
    let mut client = program.client();
    let cases = malformed();
    let count = cases.len() as u64;
    for Case { what, body, status, words } in cases {
        let reply = client.infer("echo", &body);
        assert_eq!(reply.status, status, "{what}: {}", reply.text());
        assert_eq!(reply.reason(), "invalid", "{what}");
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        for word in words {
            assert!(error.contains(word), "{what}: {word:?} is not in {error:?}");
        }
        if reply.header("connection") == Some("close") {
            client = program.client();
        }
        let data = count_from(5.0, 1);
        assert_eq!(client.infer("echo", &Body::json(&data)).numbers(), data, "after {what}");
    }
    let metrics = program.metrics();
    assert_eq!(metrics.refused("echo", "invalid"), count);
    assert_eq!(metrics.ended("echo", "served"), count);
    assert_eq!(program.stats("echo")["inference_count"], count, "a bad request was executed");
}

#[test]
fn unknown_names_are_404_and_wrong_methods_405() {
    let program = program();
    let mut client = program.client();
    let row = Body::row().bytes;
    for (path, reason) in [
        ("/v2/models/nobody/infer", "unknown_model"),
        ("/v2/models/echo/versions/7/infer", "unknown_version"),
        ("/v2/models/echo/infe", "unknown_path"),
        ("/v3", "unknown_path"),
    ] {
        let reply = client.post(path, &[], &row);
        assert_eq!((reply.status, reply.reason().as_str()), (404, reason), "{path}");
    }
    let reply = client.get("/v2/models/echo/infer");
    assert_eq!((reply.status, reply.reason().as_str()), (405, "wrong_method"));
    assert_eq!(reply.header("allow"), Some("POST"));
    let reply = client.get("/v2/systemsharedmemory/status");
    assert_eq!((reply.status, reply.reason().as_str()), (501, "unsupported"));
    assert_eq!(client.infer("echo", &Body::row()).status, 200);
}

#[test]
fn what_is_not_http_ends_only_its_own_connection() {
    let program = program();
    let mut good = program.client();
    let head = "POST /v2/models/echo/infer HTTP/1.1\r\nhost: localhost\r\n";
    let nonsense: [Vec<u8>; 5] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        format!("{head}content-length: -5\r\n\r\n").into_bytes(),
        format!("{head}transfer-encoding: chunked\r\n\r\nxyz\r\n").into_bytes(),
        format!("{head}content-length: 100\r\n\r\n{{").into_bytes(),
    ];
    for bytes in nonsense {
        let mut bad = Client::connect(program.inference());
        bad.say(&bytes);
        drop(bad);
        assert_eq!(good.infer("echo", &Body::row()).status, 200, "after {bytes:?}");
    }
    program.wait_idle("echo");
}
