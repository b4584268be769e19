//! Stopping loses nothing: not ready, then closed, then done.

use std::time::Duration;

use serve::drain::{Ended, Phase, StopSignal};
use tokio::net::TcpStream;

use crate::{
    client::{Client, Raw},
    server::{FOREVER, Server, soon},
};

#[tokio::test]
async fn a_draining_router_is_not_ready_but_still_serves_and_asks_to_close() {
    let server = Server::limited(|settings| settings.drain_delay = FOREVER).await;
    let mut old = server.client().await;
    old.must_serve().await;
    server.signal.send(StopSignal::Terminate).await.unwrap();
    let mut phase = server.state.drain.watch();
    soon("the drain begins", phase.wait_for(|phase| *phase == Phase::Leaving)).await.unwrap();

    let ready = old.get("/v2/health/ready").await;
    assert_eq!((ready.status.as_u16(), ready.json()["reason"].as_str()), (503, Some("draining")));
    assert_eq!(ready.header("connection"), Some("close"));
    soon("the connection is closed", old.connection.take().unwrap()).await.unwrap();

    server.client().await.must_serve().await;
    let mut two = Client::connect_http2(server.address).await;
    two.must_serve().await;
    assert_eq!(two.get("/v2/health/live").await.status, 200);
    let readyz = server.admin_client().await.get("/readyz?verbose").await;
    assert_eq!(readyz.status, 503);
    assert!(readyz.body.starts_with(b"[-]not draining failed"), "{readyz:?}");
}

#[tokio::test]
async fn requests_in_flight_are_answered_before_the_end() {
    let server = Server::start().await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let mut requests = Vec::new();
    for mut client in [server.client().await, Client::connect_http2(server.address).await] {
        requests.push(tokio::spawn(async move { client.must_serve().await }));
    }
    let mut started = model.started.subscribe();
    soon("both reach the model", started.wait_for(|count| *count == 2)).await.unwrap();
    let mut idle = server.client().await;
    idle.get("/v2").await;

    server.signal.send(StopSignal::Terminate).await.unwrap();
    soon("the idle connection is closed", idle.connection.take().unwrap()).await.unwrap();
    soon("the listener is closed", async {
        while TcpStream::connect(server.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!server.ended.is_finished());
    model.open.send_replace(true);
    for request in requests {
        soon("an answer", request).await.unwrap();
    }
    assert_eq!(soon("the end", server.ended).await.unwrap(), Ended::Finished);
}

#[tokio::test]
async fn requests_that_take_too_long_are_dropped_at_the_timeout() {
    let server = Server::limited(|it| it.drain_timeout = Duration::from_millis(50)).await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let mut started = model.started.subscribe();
    let mut dropped = model.dropped.subscribe();
    let mut client = server.client().await;
    let connection = client.connection.take().unwrap();
    let request = tokio::spawn(async move { client.must_serve().await });
    soon("the request reaches the model", started.wait_for(|count| *count == 1)).await.unwrap();
    server.state.drain.ask();
    assert_eq!(soon("the end", server.ended).await.unwrap(), Ended::Cut);
    soon("the work is dropped", dropped.wait_for(|count| *count == 1)).await.unwrap();
    soon("the connection is closed", connection).await.unwrap();
    request.abort();
}

#[tokio::test]
async fn an_http2_client_is_told_to_go_away_when_the_listener_closes() {
    let server = Server::start().await;
    let mut client = Client::connect_http2(server.address).await;
    client.must_serve().await;
    server.signal.send(StopSignal::Terminate).await.unwrap();
    soon("the connection ends", client.connection.take().unwrap()).await.unwrap();
    assert_eq!(soon("the end", server.ended).await.unwrap(), Ended::Finished);
}

#[tokio::test]
async fn a_request_on_its_way_when_the_listener_closes_is_answered() {
    let request = b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for already_said in [0, 25] {
        let server = Server::start().await;
        let mut raw = Raw::connect(server.address).await;
        raw.say(&request[..already_said]).await;
        // The server has the connection once it serves a later one.
        assert!(Raw::connect(server.address).await.is_served().await);
        server.signal.send(StopSignal::Terminate).await.unwrap();
        let mut phase = server.state.drain.watch();
        soon("the close", phase.wait_for(|phase| *phase == Phase::Closing)).await.unwrap();
        raw.say(&request[already_said..]).await;
        let said = raw.rest().await;
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{already_said} bytes before: {said:?}");
        assert!(said.contains("connection: close"), "{said:?}");
        assert_eq!(soon("the end", server.ended).await.unwrap(), Ended::Finished);
    }
}
