//! A small HTTP/1.1 client: one connection, whole replies, requests that may be sent ahead.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::{Value, json};

use crate::wait::PATIENCE;

/// Asks the model `pair` on every connection at once, each `round` something else, and expects every
/// answer.
#[track_caller]
pub(crate) fn all_served(clients: &mut [Client], round: u64) {
    let data = |index: usize| count_from((round * 100 + index as u64) as f32, 1);
    for (index, client) in clients.iter_mut().enumerate() {
        client.send_infer("pair", &Body::json(&data(index)));
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.receive().numbers(), data(index), "round {round}, client {index}");
    }
}

/// Where the JSON of a body ends and its tensors begin.
pub(crate) const HEADER_LENGTH: &str = "inference-header-content-length";

#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// What a model is sent, in one of the protocol's forms.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) bytes: Vec<u8>,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send("GET", path, &[], b"");
        self.receive()
    }

    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send("POST", path, headers, body);
        self.receive()
    }

    #[track_caller]
    pub(crate) fn infer(&mut self, model: &str, body: &Body) -> Reply {
        self.send_infer(model, body);
        self.receive()
    }

    /// Asks without waiting for the reply.
    #[track_caller]
    pub(crate) fn send_infer(&mut self, model: &str, body: &Body) {
        let headers: Vec<(&str, &str)> =
            body.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.send("POST", &format!("/v2/models/{model}/infer"), &headers, &body.bytes);
    }

    #[track_caller]
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        self.say(&[head.as_bytes(), body].concat());
    }

    /// Bytes that need not be a request.
    #[track_caller]
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The status of a reply whose rest is left unread.
    #[track_caller]
    pub(crate) fn status(&mut self) -> u16 {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        status.unwrap_or_else(|| panic!("no status line: {first:?}"))
    }

    #[track_caller]
    pub(crate) fn receive(&mut self) -> Reply {
        let status = self.status();
        let headers: Vec<_> = std::iter::from_fn(|| {
            let line = self.line();
            let (name, value) = line.split_once(": ")?;
            Some((name.to_ascii_lowercase(), value.to_owned()))
        })
        .collect();
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length = reply.header("content-length").expect("a reply says how long it is");
        reply.body.resize(length.parse().unwrap(), 0);
        self.stream.read_exact(&mut reply.body).unwrap();
        reply
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the server closed the connection after {line:?}");
        line.trim_end().to_owned()
    }
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// The `reason` of an error, which must have an `error` for people too.
    #[track_caller]
    pub(crate) fn reason(&self) -> String {
        let body = self.json();
        assert!(body["error"].is_string(), "no error: {body}");
        body["reason"].as_str().unwrap_or_else(|| panic!("no reason: {body}")).to_owned()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after").map(|value| value.parse().unwrap())
    }

    /// The elements of the first output, whether they came as JSON or as bytes.
    #[track_caller]
    pub(crate) fn numbers(&self) -> Vec<f32> {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        match self.header(HEADER_LENGTH) {
            Some(length) => {
                let tensor = &self.body[length.parse().unwrap()..];
                tensor.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
            }
            None => {
                let body = self.json();
                let data = body["outputs"][0]["data"].as_array().unwrap();
                data.iter().map(|number| number.as_f64().unwrap() as f32).collect()
            }
        }
    }
}

/// `rows` rows of four, counting from `first`.
pub(crate) fn count_from(first: f32, rows: usize) -> Vec<f32> {
    (0..rows * 4).map(|index| first + index as f32).collect()
}

impl Body {
    /// `data` as the input `x` of a sleeper, in JSON.
    pub(crate) fn json(data: &[f32]) -> Self {
        let shape = [data.len() / 4, 4];
        let input = json!({"name": "x", "datatype": "FP32", "shape": shape, "data": data});
        Self { headers: Vec::new(), bytes: json!({"inputs": [input]}).to_string().into_bytes() }
    }

    /// The same as bytes, asking for bytes.
    pub(crate) fn binary(data: &[f32]) -> Self {
        let tensor: Vec<u8> = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        let (shape, size) = ([data.len() / 4, 4], json!({"binary_data_size": tensor.len()}));
        let input = json!({"name": "x", "datatype": "FP32", "shape": shape, "parameters": size});
        let parameters = json!({"binary_data_output": true});
        let head = json!({"inputs": [input], "parameters": parameters}).to_string();
        let headers = vec![(HEADER_LENGTH, head.len().to_string())];
        Self { headers, bytes: [head.as_bytes(), &tensor].concat() }
    }

    pub(crate) fn raw(data: &[f32]) -> Self {
        let bytes = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        Self { headers: vec![(HEADER_LENGTH, "0".to_owned())], bytes }
    }

    pub(crate) fn row() -> Self {
        Self::json(&count_from(1.0, 1))
    }

    pub(crate) fn with(mut self, header: &'static str, value: &str) -> Self {
        self.headers.push((header, value.to_owned()));
        self
    }
}
