//! A client that goes away takes its work with it.

use crate::{
    client::{Client, INFER, Raw, numbers},
    server::{Server, soon},
};

async fn hang_up_over(server: &Server, mut client: Client) {
    let model = server.model("echo");
    model.open.send_replace(false);
    let (mut started, mut dropped) = (model.started.subscribe(), model.dropped.subscribe());
    let connection = client.connection.take().unwrap();
    let request = tokio::spawn(async move { client.infer(&numbers(&[1.0; 4])).await });
    soon("the request reaches the model", started.wait_for(|count| *count == 1)).await.unwrap();
    assert_eq!(*dropped.borrow(), 0);
    request.abort();
    connection.abort();
    soon("the model's work is dropped", dropped.wait_for(|count| *count == 1)).await.unwrap();
    model.open.send_replace(true);
    server.client().await.must_serve().await;
}

#[tokio::test]
async fn closing_an_http1_connection_drops_the_work() {
    let server = Server::start().await;
    hang_up_over(&server, server.client().await).await;
}

#[tokio::test]
async fn closing_an_http2_connection_drops_the_work() {
    let server = Server::start().await;
    hang_up_over(&server, Client::connect_http2(server.address).await).await;
}

#[tokio::test]
async fn giving_up_one_http2_request_drops_only_its_work() {
    let server = Server::start().await;
    let model = server.model("echo");
    model.open.send_replace(false);
    let (mut started, mut dropped) = (model.started.subscribe(), model.dropped.subscribe());
    let client = Client::connect_http2(server.address).await;
    let (mut kept, mut given_up) = (client.share(), client.share());
    let kept = tokio::spawn(async move { kept.must_serve().await });
    let given_up = tokio::spawn(async move { given_up.must_serve().await });
    soon("both reach the model", started.wait_for(|count| *count == 2)).await.unwrap();
    given_up.abort();
    soon("its work is dropped", dropped.wait_for(|count| *count == 1)).await.unwrap();
    model.open.send_replace(true);
    kept.await.unwrap();
    assert_eq!(*dropped.borrow(), 1);
}

#[tokio::test]
async fn closing_inside_the_body_reaches_no_model_and_harms_nobody() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{{");
    raw.say(head.as_bytes()).await;
    drop(raw);
    server.client().await.must_serve().await;
    assert_eq!(server.model("echo").requests.lock().len(), 1);
}
