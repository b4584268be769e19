//! Everything a client may take has a bound, and saying so beats hanging.

use std::{io::Write, time::Duration};

use flate2::{Compression, write::GzEncoder};

use crate::{
    client::{Client, INFER, Raw, numbers},
    server::{Server, settings, soon},
};

const SOON: Duration = Duration::from_millis(50);
const HEAD: &[u8] = b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: localhost\r\n";

#[tokio::test]
async fn a_body_announced_too_long_is_413_with_the_numbers() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let replied = client.post(INFER, &[], vec![b' '; (64 << 10) + 1]).await;
    assert_eq!(replied.status, 413);
    let body = replied.json();
    assert_eq!(
        (body["limit_bytes"].as_u64(), body["announced_bytes"].as_u64()),
        (Some(65_536), Some(65_537))
    );
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_body_too_long_still_reads_why() {
    let limit = 16 << 20;
    let server = Server::limited(|settings| settings.max_body_bytes = limit).await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(HEAD).await;
    let length = limit + 1;
    raw.say(format!("content-length: {length}\r\n\r\n").as_bytes()).await;
    raw.say(&vec![b' '; length as usize]).await;
    let said = raw.line().await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
}

#[tokio::test]
async fn a_chunked_body_is_cut_off_where_it_becomes_too_long() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(HEAD).await;
    raw.say(b"transfer-encoding: chunked\r\n\r\n").await;
    let chunk = [b"8000\r\n".to_vec(), vec![b' '; 0x8000], b"\r\n".to_vec()].concat();
    for _ in 0..3 {
        raw.say(&chunk).await;
    }
    raw.say(b"0\r\n\r\n").await;
    raw.0.set_nodelay(true).unwrap();
    let said = raw.line().await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn a_client_that_waits_for_continue_is_refused_before_it_sends() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(HEAD).await;
    raw.say(b"expect: 100-continue\r\ncontent-length: 100000\r\n\r\n").await;
    let said = raw.rest().await;
    assert!(said.starts_with("HTTP/1.1 413"), "{said}");
    assert!(!said.contains("100 Continue"), "{said}");
}

#[tokio::test]
async fn a_small_body_that_unpacks_to_a_huge_one_is_413() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 4 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let packed = bomb.len();
    assert!(packed < 10_000, "{packed}");
    let replied = client.post(INFER, &[("content-encoding", "gzip")], bomb).await;
    assert_eq!(replied.status, 413);
    assert_eq!(replied.json()["limit_bytes"], 128 << 10);
    client.must_serve().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_408() {
    let server = Server::limited(|settings| settings.body_timeout = SOON).await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(HEAD).await;
    raw.say(b"content-length: 100\r\n\r\nonly this").await;
    let said = raw.line().await;
    assert!(said.starts_with("HTTP/1.1 408"), "{said}");
    server.state.settings.store(settings().into());
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_hung_up_on() {
    let server = Server::limited(|settings| settings.header_timeout = SOON).await;
    for start in [&b""[..], b"P", b"POST /v2/models/echo/infer HTTP/1.1\r\nhost: loc"] {
        let mut raw = Raw::connect(server.address).await;
        raw.say(start).await;
        assert_eq!(raw.rest().await, "", "{start:?}");
    }
    server.state.settings.store(settings().into());
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn a_second_head_that_does_not_come_is_hung_up_on_too() {
    let server = Server::limited(|settings| settings.header_timeout = SOON * 10).await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    raw.line().await;
    raw.say(b"GET /v2 HTTP/1.1\r\nhost:").await;
    let said = raw.rest().await;
    assert!(!said.contains("HTTP/1.1"), "answered half a head with {said}");
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_both_protocols() {
    let server = Server::limited(|settings| settings.idle_timeout = SOON).await;
    let mut one = server.client().await;
    assert_eq!(one.get("/v2").await.status, 200);
    let two = Client::connect_http2(server.address).await;
    for client in [one, two] {
        soon("the server closes", client.connection.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_answer_is_not_idleness() {
    let server = Server::limited(|settings| settings.idle_timeout = SOON).await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let mut client = server.client().await;
    let waiting = tokio::spawn(async move { client.must_serve().await });
    let mut started = model.started.subscribe();
    soon("the request reaches the model", started.wait_for(|count| *count == 1)).await.unwrap();
    // Another connection is opened and closed for idleness meanwhile.
    let mut idle = server.client().await;
    idle.get("/v2").await;
    soon("the idle one is closed", idle.connection.unwrap()).await.unwrap();
    model.open.send_replace(true);
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_head_that_is_too_long_is_431() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(HEAD).await;
    raw.say(format!("x-long: {}\r\n\r\n", "x".repeat(20_000)).as_bytes()).await;
    let said = raw.line().await;
    assert!(said.starts_with("HTTP/1.1 431"), "{said}");
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn a_connection_too_many_is_told_so_and_room_is_given_back() {
    let server = Server::limited(|settings| settings.max_connections = 2).await;
    let mut first = server.client().await;
    let mut second = server.client().await;
    first.must_serve().await;
    second.must_serve().await;
    let mut third = Raw::connect(server.address).await;
    third.say(b"GET /v2/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let said = third.rest().await;
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    assert!(said.contains("retry-after: ") && said.contains("\"reason\":\"overloaded\""), "{said}");
    first.must_serve().await;
    drop(second);
    soon("a slot is free again", async {
        while !Raw::connect(server.address).await.is_served().await {}
    })
    .await;
    assert_eq!(server.admin_client().await.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_reply_nobody_reads_gives_its_slot_back() {
    let server = Server::limited(|settings| {
        settings.max_connections = 1;
        settings.body_timeout = SOON;
    })
    .await;
    let mut raw = Raw::connect(server.address).await;
    raw.say(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    raw.line().await;
    // The connection keeps its limits; only the request to come has these.
    let length = 32 << 20;
    let mut roomy = settings();
    roomy.max_connections = 1;
    roomy.max_body_bytes = length as u64;
    server.state.settings.store(roomy.into());
    let head = format!(
        "POST /v2/models/wide/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\
         inference-header-content-length: 0\r\n\r\n"
    );
    raw.say(head.as_bytes()).await;
    raw.say(&vec![0; length]).await;
    let mut started = server.model("wide").started.subscribe();
    soon("the request reaches the model", started.wait_for(|count| *count == 1)).await.unwrap();
    soon("the slot is free again", async {
        while !Raw::connect(server.address).await.is_served().await {}
    })
    .await;
}

#[tokio::test]
async fn new_limits_reach_requests_on_connections_already_open() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.must_serve().await;
    let mut tighter = settings();
    tighter.max_body_bytes = 10;
    server.state.settings.store(tighter.into());
    let replied = client.post(INFER, &[], numbers(&[1.0; 4]).to_string()).await;
    assert_eq!(replied.status, 413);
}
