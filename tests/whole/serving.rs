//! Right answers, and batches within their bounds.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    client::{Body, HEADER_LENGTH, count_from},
    program::{Program, ROOT},
    setup::Setup,
};

/// The demo's picture of a three, as it stands in the README.
fn three() -> Value {
    let text = fs::read(Path::new(ROOT).join("configs/models/three.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn the_command_that_the_demo_prints_returns_the_right_digit() {
    let mut program = Program::demo();
    let command = loop {
        let line = program.line().unwrap();
        if line.contains("curl ") {
            break line;
        }
    };
    let url = command.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let path = url.strip_prefix(&format!("http://{}", program.inference())).unwrap();
    let body = command.split('\'').nth(1).unwrap();
    let reply = program.client().post(path, &[], body.as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["outputs"][0]["data"], json!([3]));
    assert_eq!(reply.json()["outputs"][0]["name"], "digit");
}

#[test]
fn the_right_digit_comes_back_over_json_and_over_bytes() {
    let program = Setup::new().digits("slo_ms = 1000").gpus(1).start();
    let mut client = program.client();
    let request = three();
    let infer = "/v2/models/digits/infer";
    let reply = client.post(infer, &[], request.to_string().as_bytes());
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["outputs"][0]["data"], json!([3]));

    let pixels = request["inputs"][0]["data"].as_array().unwrap();
    let pixel = |value: &Value| (value.as_f64().unwrap() as f32).to_le_bytes();
    let tensor: Vec<u8> = pixels.iter().flat_map(pixel).collect();
    let head = json!({
        "id": "seven",
        "inputs": [{
            "name": "image", "datatype": "FP32", "shape": [1, 64],
            "parameters": {"binary_data_size": tensor.len()},
        }],
        "outputs": [{"name": "digit", "parameters": {"binary_data": true}}],
    });
    let head = head.to_string();
    let length = head.len().to_string();
    let reply =
        client.post(infer, &[(HEADER_LENGTH, &length)], &[head.as_bytes(), &tensor].concat());
    assert_eq!(reply.status, 200, "{}", reply.text());
    let (json, tensor) = reply.body.split_at(reply.header(HEADER_LENGTH).unwrap().parse().unwrap());
    let answer: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(answer["id"], "seven");
    assert_eq!(answer["outputs"][0]["datatype"], "INT64");
    assert_eq!(tensor, 3_i64.to_le_bytes());
}

#[test]
fn each_of_many_batched_requests_gets_its_own_answer() {
    let program = Setup::new().sleeper("echo", 20, "slo_ms = 20000\nmax_batch = 8").gpus(2).start();
    let mut clients: Vec<_> = (0..60).map(|_| program.client()).collect();
    let data = |index: usize| count_from(index as f32 * 100.0, 1 + index % 3);
    for (index, client) in clients.iter_mut().enumerate() {
        let form = if index % 2 == 0 { Body::json } else { Body::binary };
        client.send_infer("echo", &form(&data(index)));
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().numbers(), data(index), "request {index}");
    }
    let stats = program.stats("echo");
    let (rows, batches) = (&stats["inference_count"], &stats["execution_count"]);
    assert_eq!(rows.as_u64(), Some((0..60).map(|index| 1 + index % 3).sum()));
    assert!(batches.as_u64() < Some(60), "nothing was batched: {batches} batches");
}

#[test]
fn model_of_one_row_per_batch_never_gets_two() {
    let program = Setup::new().sleeper("one", 2, "slo_ms = 30000\nmax_batch = 1").gpus(1).start();
    let mut clients: Vec<_> = (0..40).map(|_| program.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.send_infer("one", &Body::json(&count_from(index as f32, 1)));
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().numbers(), count_from(index as f32, 1));
    }
    let stats = program.stats("one");
    assert_eq!(stats["inference_count"], 40, "{stats}");
    assert_eq!(stats["execution_count"], 40, "{stats}");
    let sizes: Vec<&Value> =
        stats["batch_stats"].as_array().unwrap().iter().map(|batch| &batch["batch_size"]).collect();
    assert_eq!(sizes, [1]);
    let two = program.client().infer("one", &Body::json(&count_from(1.0, 2)));
    assert_eq!((two.status, two.reason().as_str()), (400, "invalid"), "{}", two.text());
}

#[test]
fn request_of_max_batch_rows_is_served_and_one_more_refused() {
    let program = Setup::new().sleeper("echo", 1, "slo_ms = 20000\nmax_batch = 16").gpus(1).start();
    let mut client = program.client();
    for form in [Body::json, Body::binary] {
        for rows in [1, 15, 16] {
            let data = count_from(1.0, rows);
            assert_eq!(client.infer("echo", &form(&data)).numbers(), data, "{rows} rows");
        }
        let reply = client.infer("echo", &form(&count_from(1.0, 17)));
        assert_eq!((reply.status, reply.reason().as_str()), (400, "invalid"), "{}", reply.text());
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains("17") && error.contains("16"), "{error}");
    }
    let stats = program.stats("echo");
    let largest = stats["batch_stats"].as_array().unwrap().last().unwrap();
    assert_eq!(largest["batch_size"], 16, "{stats}");
}

#[test]
fn batches_under_load_stay_within_the_limit() {
    let program = Setup::new().sleeper("echo", 30, "slo_ms = 30000\nmax_batch = 5").gpus(1).start();
    let mut clients: Vec<_> = (0..80).map(|_| program.client()).collect();
    clients.iter_mut().for_each(|client| client.send_infer("echo", &Body::row()));
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status, 200));
    let stats = program.stats("echo");
    let batches = stats["batch_stats"].as_array().unwrap();
    let sizes = batches.iter().map(|batch| batch["batch_size"].as_u64().unwrap());
    // On a busy machine the largest size may have been measured too slow to be worth it.
    assert!(sizes.max().is_some_and(|largest| (2..=5).contains(&largest)), "{stats}");
}

#[test]
fn ready_only_when_models_are_warm() {
    // One batch of warm-up, which leaves two seconds to look.
    let settings = "slo_ms = 20000\nmax_batch = 1";
    let mut program = Setup::new().sleeper("slow", 1_900, settings).gpus(1).launch();
    program.wait_listening();
    assert_eq!(program.ask_admin("/livez").status, 200);
    let verbose = program.ask_admin("/readyz?verbose");
    assert_eq!(verbose.status, 503);
    assert!(verbose.text().contains("[-]model slow failed: "), "{}", verbose.text());
    let mut client = program.client();
    assert_eq!(client.get("/v2/health/live").status, 200);
    assert_eq!(client.get("/v2/health/ready").status, 503);
    assert_eq!(client.get("/v2/models/slow/ready").status, 503);
    let early = client.infer("slow", &Body::row());
    assert_eq!((early.status, early.reason().as_str()), (503, "no_replica"), "{}", early.text());
    assert!(early.retry_after() >= Some(1));
    program.wait_ready();
    assert_eq!(program.ask_admin("/readyz").status, 200);
    assert_eq!(client.get("/v2/health/ready").status, 200);
    assert_eq!(client.infer("slow", &Body::row()).numbers(), count_from(1.0, 1));
}

#[test]
fn a_model_says_what_it_is_and_that_it_is_synthetic() {
    let program = Setup::new().sleeper("echo", 1, "slo_ms = 50\nmax_batch = 3").gpus(1).start();
    let mut client = program.client();
    assert_eq!(client.get("/v2/health/live").status, 200);
    assert_eq!(client.get("/v2/health/ready").status, 200);
    assert_eq!(client.get("/v2/models/echo/ready").status, 200);
    let metadata = client.get("/v2/models/echo").json();
    assert_eq!(metadata["inputs"], json!([{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]));
    assert!(metadata["platform"].as_str().unwrap().contains("synthetic"), "{metadata}");
    assert_eq!(client.get("/v2/models/echo/config").json()["max_batch_size"], 3);
    let index = client.post("/v2/repository/index", &[], b"{}").json();
    assert_eq!(index[0]["state"], "READY", "{index}");
}
