//! A small client: one connection, whole replies.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};

use crate::server::soon;

pub(crate) const INFER: &str = "/v2/models/echo/infer";

/// One connection to a listener.
pub(crate) struct Client {
    sender: Sender,
    /// Ends when the connection does.
    pub(crate) connection: Option<JoinHandle<()>>,
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// A reply, read whole.
#[derive(Debug)]
pub(crate) struct Replied {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Replied {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn error(&self) -> String {
        let body = self.json();
        assert!(body["reason"].is_string(), "an error without a reason: {body}");
        body["error"].as_str().unwrap_or_else(|| panic!("no error: {body}")).to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::One(sender), connection: Some(connection) }
    }

    pub(crate) async fn connect_http2(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        Self { sender: Sender::Two(sender), connection: Some(connection) }
    }

    /// Another caller on the same HTTP/2 connection.
    pub(crate) fn share(&self) -> Self {
        match &self.sender {
            Sender::One(_) => panic!("HTTP/1.1 connections are not shared"),
            Sender::Two(sender) => Self { sender: Sender::Two(sender.clone()), connection: None },
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Replied {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub(crate) async fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Replied {
        self.send(Method::POST, path, headers, body.into()).await
    }

    pub(crate) async fn infer(&mut self, body: &Value) -> Replied {
        self.post(INFER, &[], body.to_string()).await
    }

    /// That the connection still works.
    pub(crate) async fn must_serve(&mut self) {
        let replied = self.infer(&numbers(&[1.0, 2.0, 3.0, 4.0])).await;
        assert_eq!(replied.status, 200, "{replied:?}");
        assert_eq!(replied.json()["outputs"][0]["data"], json!([1.0, 2.0, 3.0, 4.0]));
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Replied {
        let mut request = Request::builder().method(method).uri(match self.sender {
            Sender::One(_) => path.to_owned(),
            Sender::Two(_) => format!("http://sluice{path}"),
        });
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if matches!(self.sender, Sender::One(_)) {
            request = request.header("host", "localhost");
        }
        let request = request.body(Full::new(body)).unwrap();
        let response = match &mut self.sender {
            Sender::One(sender) => {
                soon("the connection is free", sender.ready()).await.unwrap();
                soon("a reply", sender.send_request(request)).await.unwrap()
            }
            Sender::Two(sender) => soon("a reply", sender.send_request(request)).await.unwrap(),
        };
        let (head, body) = response.into_parts();
        let body = soon("a whole body", body.collect()).await.unwrap().to_bytes();
        Replied { status: head.status, headers: head.headers, body }
    }
}

/// A request for `echo` with one row.
pub(crate) fn numbers(data: &[f64]) -> Value {
    let input = json!({"name": "x", "datatype": "FP32", "shape": [1, data.len()], "data": data});
    json!({ "inputs": [input] })
}

/// A raw connection, for what no client would send.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// The first line the server says; the connection stays open.
    pub(crate) async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            match soon("the server says something", self.0.read_u8()).await {
                Ok(byte) => line.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Whether a request on this connection is answered with success.
    pub(crate) async fn is_served(&mut self) -> bool {
        let request = b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n";
        self.0.write_all(request).await.is_ok() && self.line().await.starts_with("HTTP/1.1 200")
    }

    /// Everything the server says until it closes.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        // A reset after the last byte is a close too.
        let _ = soon("the server closes", self.0.read_to_end(&mut bytes)).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
