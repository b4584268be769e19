//! The Open Inference Protocol as clients speak it.

use std::{
    io::{Read, Write},
    time::Duration,
};

use bytes::Bytes;
use config::Class;
use flate2::{
    Compression,
    read::{GzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use http::Method;
use serde_json::json;

use crate::{
    client::{Client, INFER, numbers},
    server::{Server, soon},
};

const LENGTH: &str = "inference-header-content-length";

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[tokio::test]
async fn the_server_names_itself_and_its_extensions() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for path in ["/v2", "/v2/"] {
        let metadata = client.get(path).await.json();
        assert_eq!(metadata["name"], "sluice");
        let extensions = metadata["extensions"].as_array().unwrap();
        for name in ["binary_tensor_data", "statistics", "model_repository", "schedule_policy"] {
            assert!(extensions.contains(&json!(name)), "{name} is not in {extensions:?}");
        }
    }
}

#[tokio::test]
async fn live_and_ready_are_said_on_the_inference_port() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.get("/v2/health/live").await.json(), json!({"live": true}));
    assert_eq!(client.get("/v2/health/ready").await.json(), json!({"live": true, "ready": true}));
}

#[tokio::test]
async fn a_model_is_described_with_and_without_its_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for path in ["/v2/models/echo", "/v2/models/echo/versions/1"] {
        assert_eq!(
            client.get(path).await.json(),
            json!({
                "name": "echo", "versions": ["1"], "platform": "echo",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
            })
        );
        let config = client.get(&format!("{path}/config")).await.json();
        assert_eq!(config["max_batch_size"], 8);
        assert_eq!(config["input"][0]["dims"], json!([4]));
        assert!(config["dynamic_batching"].is_object());
        let ready = client.get(&format!("{path}/ready")).await;
        assert_eq!(
            (ready.status.as_u16(), ready.json()),
            (200, json!({"name": "echo", "ready": true}))
        );
    }
}

#[tokio::test]
async fn a_models_configuration_states_its_objective() {
    let server = Server::start().await;
    let config = server.client().await.get("/v2/models/echo/config").await.json();
    assert_eq!(
        config["parameters"],
        json!({"slo_ms": {"string_value": "50"}, "slo_target": {"string_value": "0.99"}})
    );
}

#[tokio::test]
async fn a_model_without_a_replica_is_503_with_retry_after() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for path in ["/v2/models/cold", "/v2/models/cold/config", "/v2/models/cold/ready"] {
        let replied = client.get(path).await;
        assert_eq!(replied.status, 503, "{path}");
        assert_eq!(replied.error(), "no replica of cold is ready");
        assert!(replied.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    }
    let replied = client.post("/v2/models/cold/infer", &[], numbers(&[1.0; 4]).to_string()).await;
    assert_eq!(
        (replied.status.as_u16(), replied.json()["reason"].as_str()),
        (503, Some("no_replica"))
    );
    client.must_serve().await;
}

#[tokio::test]
async fn statistics_are_given_for_one_model_and_for_all() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.must_serve().await;
    let one = client.get("/v2/models/echo/versions/1/stats").await.json();
    assert_eq!(one["model_stats"][0]["inference_count"], 1);
    assert!(one["model_stats"][0]["inference_stats"]["cache_miss"]["ns"].is_u64());
    let all = client.get("/v2/models/stats").await.json();
    assert_eq!(all["model_stats"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn json_in_is_json_out_and_the_requests_id_comes_back() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut body = numbers(&[1.0, 2.5, -3.0, 4.0]);
    body["id"] = json!("mine");
    body["model_name"] = json!("a field the protocol does not have");
    let replied = client.infer(&body).await;
    assert_eq!(replied.header("content-type"), Some("application/json"));
    assert_eq!(replied.header(LENGTH), None);
    assert_eq!(
        replied.json(),
        json!({
            "model_name": "echo", "model_version": "1", "id": "mine",
            "outputs": [
                {"name": "y", "shape": [1, 4], "datatype": "FP32", "data": [1.0, 2.5, -3.0, 4.0]}
            ],
        })
    );
}

#[tokio::test]
async fn binary_in_and_out_carries_the_same_bytes() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let json = json!({
        "inputs": [{
            "name": "x", "datatype": "FP32", "shape": [2, 4],
            "parameters": {"binary_data_size": 32},
        }],
        "parameters": {"binary_data_output": true},
    })
    .to_string();
    let data = floats(&[0.5, 1.5, f32::NAN, 3.0, 4.0, 5.0, 6.0, f32::INFINITY]);
    let length = json.len().to_string();
    let body = [json.as_bytes(), &data].concat();
    let replied = client.post(INFER, &[(LENGTH, &length)], body).await;
    assert_eq!(replied.status, 200, "{replied:?}");
    assert_eq!(replied.header("content-type"), Some("application/octet-stream"));
    let split: usize = replied.header(LENGTH).unwrap().parse().unwrap();
    assert_eq!(replied.body[split..], data[..]);
    let head: serde_json::Value = serde_json::from_slice(&replied.body[..split]).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 32);
    assert_eq!(server.model("echo").last().rows, 2);
}

#[tokio::test]
async fn a_raw_body_is_one_row_answered_in_binary() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let data = floats(&[1.0, 2.0, 3.0, 4.0]);
    let replied = client.post(INFER, &[(LENGTH, "0")], data.clone()).await;
    assert_eq!(replied.status, 200, "{replied:?}");
    let split: usize = replied.header(LENGTH).unwrap().parse().unwrap();
    assert_eq!(replied.body[split..], data[..]);
}

#[tokio::test]
async fn an_answer_json_cannot_hold_is_refused_with_the_way_out() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let replied = client.post(INFER, &[(LENGTH, "0")], floats(&[f32::NAN; 4])).await;
    assert_eq!(replied.status, 200, "binary can hold it: {replied:?}");
    let json = json!({
        "inputs": [{
            "name": "x", "datatype": "FP32", "shape": [1, 4],
            "parameters": {"binary_data_size": 16},
        }],
    })
    .to_string();
    let length = json.len().to_string();
    let body = [json.as_bytes(), &floats(&[f32::NAN; 4])].concat();
    let replied = client.post(INFER, &[(LENGTH, &length)], body).await;
    assert_eq!(replied.status, 400);
    assert!(replied.error().ends_with("ask for binary"), "{}", replied.error());
    client.must_serve().await;
}

#[tokio::test]
async fn compressed_requests_are_unpacked() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let plain = numbers(&[1.0, 2.0, 3.0, 4.0]).to_string();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(plain.as_bytes()).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(plain.as_bytes()).unwrap();
    for (coding, body) in [("gzip", gzip.finish().unwrap()), ("deflate", zlib.finish().unwrap())] {
        let replied = client.post(INFER, &[("content-encoding", coding)], body).await;
        assert_eq!(replied.status, 200, "{coding}: {replied:?}");
        assert_eq!(replied.json()["outputs"][0]["data"], json!([1.0, 2.0, 3.0, 4.0]));
    }
}

#[tokio::test]
async fn long_replies_are_compressed_if_asked_and_short_ones_never() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let long = numbers(&[0.25; 2_000]).to_string();
    let plain = client.post("/v2/models/wide/infer", &[], long.clone()).await;
    assert_eq!(plain.header("content-encoding"), None);
    for coding in ["gzip", "deflate"] {
        let asked = [("accept-encoding", coding)];
        let replied = client.post("/v2/models/wide/infer", &asked, long.clone()).await;
        assert_eq!(replied.header("content-encoding"), Some(coding));
        let mut unpacked = Vec::new();
        match coding {
            "gzip" => GzDecoder::new(&replied.body[..]).read_to_end(&mut unpacked).unwrap(),
            _ => ZlibDecoder::new(&replied.body[..]).read_to_end(&mut unpacked).unwrap(),
        };
        assert_eq!(Bytes::from(unpacked), plain.body);
        let short = client.post(INFER, &asked, numbers(&[1.0; 4]).to_string()).await;
        assert_eq!(short.header("content-encoding"), None);
    }
}

#[tokio::test]
async fn a_model_name_in_the_path_is_percent_decoded() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let body = numbers(&[1.0; 4]).to_string();
    let replied = client.post("/v2/models/a%2Fb%20c/infer", &[], body).await;
    assert_eq!(replied.json()["model_name"], "a/b c");
}

#[tokio::test]
async fn the_shorter_of_both_timeouts_counts_and_zero_is_none() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (header, parameter, expected) in [
        (None, None, None),
        (Some("20"), None, Some(Duration::from_millis(20))),
        (None, Some(json!(1_500)), Some(Duration::from_micros(1_500))),
        (Some("20"), Some(json!(1_500)), Some(Duration::from_micros(1_500))),
        (Some("1"), Some(json!("5000")), Some(Duration::from_millis(1))),
        (Some("0"), Some(json!(0)), None),
    ] {
        let mut body = numbers(&[1.0; 4]);
        if let Some(timeout) = &parameter {
            body["parameters"] = json!({ "timeout": timeout });
        }
        let headers: Vec<_> = header.iter().map(|value| ("sluice-timeout-ms", *value)).collect();
        let replied = client.post(INFER, &headers, body.to_string()).await;
        assert_eq!(replied.status, 200, "{replied:?}");
        let found = server.model("echo").last().timeout;
        assert_eq!(found, expected, "header {header:?}, parameter {parameter:?}");
    }
}

#[tokio::test]
async fn priority_one_is_interactive_lower_is_batch_and_the_header_wins() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (header, priority, expected) in [
        (None, None, Class::Interactive),
        (None, Some(0), Class::Interactive),
        (None, Some(1), Class::Interactive),
        (None, Some(2), Class::Batch),
        (None, Some(900), Class::Batch),
        (Some("batch"), Some(1), Class::Batch),
        (Some("interactive"), Some(5), Class::Interactive),
    ] {
        let mut body = numbers(&[1.0; 4]);
        if let Some(priority) = priority {
            body["parameters"] = json!({ "priority": priority });
        }
        let headers: Vec<_> = header.iter().map(|value| ("sluice-class", *value)).collect();
        client.post(INFER, &headers, body.to_string()).await;
        let found = server.model("echo").last().class;
        assert_eq!(found, expected, "header {header:?}, priority {priority:?}");
    }
}

#[tokio::test]
async fn every_reply_has_an_id_and_a_good_one_of_the_callers_is_kept() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = |replied: &crate::client::Replied| replied.header("x-request-id").unwrap().to_owned();
    let first = id(&client.get("/v2").await);
    let second = id(&client.get("/nowhere").await);
    assert_ne!(first, second);
    let mine = [("x-request-id", "mine-1")];
    assert_eq!(id(&client.post(INFER, &mine, "not JSON").await), "mine-1");
    let long = "x".repeat(500);
    assert_ne!(id(&client.post(INFER, &[("x-request-id", &long)], "").await), long);
}

#[tokio::test]
async fn the_repository_lists_models_with_their_state() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let all = client.post("/v2/repository/index", &[], "").await.json();
    assert_eq!(all[0], json!({"name": "echo", "version": "1", "state": "READY", "reason": ""}));
    assert_eq!(all[3]["state"], "LOADING");
    let ready = client.post("/v2/repository/any/index", &[], "{\"ready\":true}").await.json();
    assert_eq!(ready.as_array().unwrap().len(), 3);
    assert_eq!(client.post("/v2/repository/index", &[], "{\"ready\":7}").await.status, 400);
}

#[tokio::test]
async fn an_unloaded_model_is_unavailable_until_it_is_loaded() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let unload = "/v2/repository/models/echo/unload";
    assert_eq!(client.post(unload, &[], "").await.status, 200);
    let replied = client.infer(&numbers(&[1.0; 4])).await;
    assert_eq!(replied.status, 503);
    assert_eq!(replied.error(), "echo is unavailable: unloaded by request");
    assert_eq!(client.get("/v2/models/echo/ready").await.status, 503);
    assert_eq!(client.get("/v2/health/ready").await.status, 200, "the router serves the others");
    let load = "/v2/repository/models/echo/load";
    assert_eq!(client.post(load, &[], "{}").await.status, 200);
    assert_eq!(client.post(load, &[], "").await.status, 200, "loading twice is loading once");
    client.must_serve().await;
    assert_eq!(client.post("/v2/repository/models/nobody/load", &[], "").await.status, 404);
}

#[tokio::test]
async fn a_load_that_would_change_the_model_is_refused_not_ignored() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let body = json!({"parameters": {"config": "{\"max_batch_size\": 2}"}}).to_string();
    let replied = client.post("/v2/repository/models/echo/load", &[], body).await;
    assert_eq!(replied.status, 501);
}

#[tokio::test]
async fn what_the_protocol_has_and_we_do_not_is_501_in_json() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for path in [
        "/v2/systemsharedmemory/status",
        "/v2/cudasharedmemory/region/a/register",
        "/v2/trace/setting",
        "/v2/logging",
        "/v2/models/echo/generate",
        "/v2/models/echo/generate_stream",
    ] {
        for method in [Method::GET, Method::POST] {
            let replied = client.send(method, path, &[], Bytes::new()).await;
            assert_eq!(replied.status, 501, "{path}");
            assert!(replied.error().ends_with("is not supported"), "{path}");
        }
    }
}

#[tokio::test]
async fn http2_by_prior_knowledge_serves_many_requests_at_once() {
    let server = Server::start().await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let mut clients = Vec::new();
    let mut first = Client::connect_http2(server.address).await;
    for _ in 0..8 {
        let mut client = first.share();
        clients.push(tokio::spawn(async move { client.must_serve().await }));
    }
    let mut started = model.started.subscribe();
    soon("all requests reach the model", started.wait_for(|count| *count == 8)).await.unwrap();
    model.open.send_replace(true);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(first.get("/v2/health/live").await.status, 200);
}
