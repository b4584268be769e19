//! What callers get wrong is a 400 that says so, and the connection lives on.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    client::{Client, INFER, Raw, numbers},
    server::Server,
};

/// Sends `body` and expects `status` with `words`, then a good request on the same connection.
async fn refused(
    (status, words): (u16, &str),
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Value {
    let server = Server::start().await;
    let mut client = server.client().await;
    let replied = client.post(INFER, headers, body).await;
    assert_eq!(replied.status, status, "{replied:?}");
    assert!(replied.error().contains(words), "{:?} is not in {:?}", words, replied.error());
    assert_eq!(replied.header("content-type"), Some("application/json"));
    assert_eq!(server.model("echo").requests.lock().len(), 0, "it reached the model");
    assert_eq!(server.state.backend.refused_for("echo", "invalid"), 1);
    client.must_serve().await;
    replied.json()
}

fn input(changes: &Value) -> String {
    let mut input = json!({"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]});
    for (key, value) in changes.as_object().unwrap() {
        input[key] = value.clone();
    }
    json!({ "inputs": [input] }).to_string()
}

/// A body of `json` and then `tail`, with the header that says where one ends.
fn binary(json: &Value, tail: &[u8]) -> (String, Vec<u8>) {
    let json = json.to_string();
    (json.len().to_string(), [json.as_bytes(), tail].concat())
}

fn sized(bytes: u64) -> Value {
    let parameters = json!({"binary_data_size": bytes});
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": parameters});
    json!({ "inputs": [input] })
}

const LENGTH: &str = "inference-header-content-length";

#[tokio::test]
async fn malformed_json_is_refused_with_its_place() {
    refused((400, "line 1 column"), &[], "{\"inputs\": [").await;
}

#[tokio::test]
async fn an_empty_body_is_refused() {
    refused((400, "not an inference message"), &[], "").await;
}

#[tokio::test]
async fn json_nested_without_end_is_refused_and_harms_nobody() {
    let deep = format!("{{\"inputs\":{}", "[".repeat(30_000));
    refused((400, "not an inference message"), &[], deep).await;
}

#[tokio::test]
async fn a_datatype_the_protocol_does_not_have_is_refused() {
    refused((400, "\"FP33\" is not a datatype"), &[], input(&json!({"datatype": "FP33"}))).await;
}

#[tokio::test]
async fn a_datatype_the_model_does_not_take_is_refused() {
    refused((400, "the model takes FP32"), &[], input(&json!({"datatype": "INT32"}))).await;
}

#[tokio::test]
async fn an_element_of_the_wrong_kind_is_refused_by_its_index() {
    refused((400, "element 2 is"), &[], input(&json!({"data": [1, 2, "three", 4]}))).await;
}

#[tokio::test]
async fn data_that_does_not_fill_its_shape_is_refused() {
    refused((400, "needs 4 elements, got 3"), &[], input(&json!({"data": [1, 2, 3]}))).await;
}

#[tokio::test]
async fn a_shape_the_model_does_not_take_is_refused() {
    let body = input(&json!({"shape": [1, 5], "data": [1, 2, 3, 4, 5]}));
    refused((400, "the model takes [-1,4]"), &[], body).await;
}

#[tokio::test]
async fn a_shape_whose_size_overflows_is_refused() {
    let huge = json!({"shape": [u64::MAX, u64::MAX, 4]});
    refused((400, "input \"x\""), &[], input(&huge)).await;
}

#[tokio::test]
async fn a_negative_dimension_is_refused() {
    refused((400, "dimension 0 of the shape is -1"), &[], input(&json!({"shape": [-1, 4]}))).await;
}

#[tokio::test]
async fn no_rows_and_too_many_rows_are_refused() {
    refused((400, "0 rows"), &[], input(&json!({"shape": [0, 4], "data": []}))).await;
    let body = input(&json!({"shape": [9, 4], "data": vec![0; 36]}));
    refused((400, "9 rows; the model takes at most 8"), &[], body).await;
}

#[tokio::test]
async fn an_input_the_model_does_not_have_is_refused() {
    refused((400, "the model has no input \"z\""), &[], input(&json!({"name": "z"}))).await;
}

#[tokio::test]
async fn an_output_the_model_does_not_have_is_refused() {
    let mut body = numbers(&[1.0; 4]);
    body["outputs"] = json!([{"name": "z"}]);
    refused((400, "the model has no output \"z\""), &[], body.to_string()).await;
}

#[tokio::test]
async fn binary_sizes_that_do_not_add_up_are_refused() {
    for tail in [15, 17] {
        let (length, body) = binary(&sized(16), &vec![0; tail]);
        refused((400, &format!("16 bytes, but {tail} follow")), &[(LENGTH, &length)], body).await;
    }
}

#[tokio::test]
async fn a_binary_size_that_is_not_the_shapes_is_refused() {
    let (length, body) = binary(&sized(20), &[0; 20]);
    refused((400, "needs 16 bytes of FP32, got 20"), &[(LENGTH, &length)], body).await;
}

#[tokio::test]
async fn a_header_length_past_the_body_is_refused() {
    let body = numbers(&[1.0; 4]).to_string();
    refused((400, "is 1000000"), &[(LENGTH, "1000000")], body).await;
}

#[tokio::test]
async fn a_header_length_that_is_no_number_is_refused() {
    for length in ["-1", "1.5", "x", "99999999999999999999999"] {
        let body = numbers(&[1.0; 4]).to_string();
        refused((400, "give a whole number"), &[(LENGTH, length)], body).await;
    }
}

#[tokio::test]
async fn a_raw_body_of_the_wrong_size_is_refused() {
    refused((400, "input \"x\""), &[(LENGTH, "0")], vec![0; 15]).await;
}

#[tokio::test]
async fn a_timeout_or_a_priority_or_a_class_we_cannot_read_is_refused() {
    for (name, value) in [("timeout", json!(-5)), ("priority", json!(1.5)), ("timeout", json!("x"))]
    {
        let mut body = numbers(&[1.0; 4]);
        body["parameters"] = json!({ name: value });
        refused((400, name), &[], body.to_string()).await;
    }
    let body = numbers(&[1.0; 4]).to_string();
    refused((400, "sluice-timeout-ms"), &[("sluice-timeout-ms", "soon")], body.clone()).await;
    refused((400, "interactive or batch"), &[("sluice-class", "urgent")], body).await;
}

#[tokio::test]
async fn a_body_that_is_not_what_its_coding_says_is_refused() {
    refused((400, "not valid gzip"), &[("content-encoding", "gzip")], "plain").await;
    refused((400, "not valid deflate"), &[("content-encoding", "deflate")], "plain").await;
    refused((415, "use gzip, deflate or none"), &[("content-encoding", "br")], "plain").await;
}

#[tokio::test]
async fn an_unknown_model_or_version_is_404() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (path, words) in [
        ("/v2/models/nobody/infer", "no model named \"nobody\"; known are echo, wide, a/b c, cold"),
        ("/v2/models/echo/versions/7/infer", "echo has no version \"7\"; it has \"1\""),
    ] {
        let replied = client.post(path, &[], numbers(&[1.0; 4]).to_string()).await;
        assert_eq!(replied.status, 404);
        assert_eq!(replied.error(), words);
    }
    client.must_serve().await;
    assert_eq!(server.state.backend.refused_for("", "unknown_model"), 1);
}

#[tokio::test]
async fn an_unknown_path_is_404_and_a_wrong_method_405_both_in_json() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let replied = client.get("/v3/nothing").await;
    assert_eq!(
        (replied.status.as_u16(), replied.error().as_str()),
        (404, "nothing is served at \"/v3/nothing\"")
    );
    let replied = client.get(INFER).await;
    assert_eq!(replied.status, 405);
    assert_eq!(replied.header("allow"), Some("POST"));
    assert_eq!(replied.error(), "GET is not allowed here; use POST");
    client.must_serve().await;
}

#[tokio::test]
async fn what_is_not_http_is_closed_and_others_are_served() {
    let server = Server::start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"hello there\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, not at all",
    ] {
        let mut raw = Raw::connect(server.address).await;
        raw.say(garbage).await;
        let said = raw.rest().await;
        assert!(!said.contains("200 OK"), "{garbage:?} was answered with {said:?}");
    }
    Client::connect(server.address).await.must_serve().await;
}

#[tokio::test]
async fn a_chunked_body_that_breaks_off_is_refused() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(
        b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
    )
    .await;
    raw.say(b"zz\r\nnot a chunk").await;
    let said = raw.rest().await;
    assert!(said.starts_with("HTTP/1.1 400"), "{said}");
    assert!(said.contains("the body ended early"), "{said}");
    Client::connect(server.address).await.must_serve().await;
}
