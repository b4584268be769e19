//! What a server is asked.

use std::{net::SocketAddr, time::Duration};

use oip::{
    Encoded,
    model::{ModelMetadata, ServerMetadata},
};
use serde::de::DeserializeOwned;
use wire::{Connection, Page, SendError, quote};

/// How long it may take to say whether it is ready, or what it serves.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest thing it may say of itself.
const MAX_TOLD: usize = 4 << 20;

/// The longest answer to a batch: what a frame to the router can hold.
const MAX_ANSWER: usize = protocol::MAX_BODY as usize;

pub(super) struct Ask {
    host: String,
    model_path: String,
    /// Apart from batches, so that a server that closes one of the two does not disturb the other.
    questions: Connection,
    batches: Connection,
}

impl Ask {
    pub(super) fn new(address: SocketAddr, order: &protocol::Server) -> Self {
        let answer_timeout = Duration::from_millis(order.answer_timeout_ms);
        Self {
            host: address.to_string(),
            model_path: format!("/v2/models/{}", quote(&order.served_name)),
            questions: Connection::new(address, PATIENCE, MAX_TOLD),
            batches: Connection::new(address, answer_timeout, MAX_ANSWER),
        }
    }

    pub(super) fn ready(&mut self) -> Result<(), Unread> {
        self.get("/v2/health/ready")?;
        self.get(&format!("{}/ready", self.model_path)).map(|_| ())
    }

    /// What it says of itself. A server without a word for it has no extensions either.
    pub(super) fn server(&mut self) -> Result<ServerMetadata, Unread> {
        let (name, version) = (String::new(), String::new());
        match self.read("/v2") {
            Err(Unread::Status { status: 404, .. }) => {
                Ok(ServerMetadata { name, version, extensions: Vec::new() })
            }
            read => read,
        }
    }

    pub(super) fn model(&mut self) -> Result<ModelMetadata, Unread> {
        let path = self.model_path.clone();
        self.read(&path)
    }

    pub(super) fn infer(&mut self, request: &Encoded) -> Result<Page, SendError> {
        let (kind, header_length) = match request.header_length {
            Some(length) => (
                "application/octet-stream",
                format!("inference-header-content-length: {length}\r\n"),
            ),
            None => ("application/json", String::new()),
        };
        let head = format!(
            "POST {}/infer HTTP/1.1\r\nhost: {}\r\ncontent-type: {kind}\r\n{header_length}\
             content-length: {}\r\n\r\n",
            self.model_path,
            self.host,
            request.content_length()
        );
        let mut parts: Vec<&[u8]> = Vec::with_capacity(1 + request.parts.len());
        parts.push(head.as_bytes());
        parts.extend(request.parts.iter().map(|part| part.as_ref()));
        self.batches.send(&parts)
    }

    fn get(&mut self, path: &str) -> Result<Page, Unread> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        let page = self.questions.send(&[request.as_bytes()])?;
        if page.status == 200 {
            return Ok(page);
        }
        Err(Unread::Status { path: path.to_owned(), status: page.status, words: page.words() })
    }

    fn read<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, Unread> {
        let page = self.get(path)?;
        serde_json::from_slice(&page.body)
            .map_err(|source| Unread::Json { path: path.to_owned(), source })
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Unsent(#[from] SendError),
    #[error("{path} was answered {status}: {words}")]
    Status { path: String, status: u16, words: String },
    #[error("{path} was not answered as the protocol has it: {source}")]
    Json { path: String, source: serde_json::Error },
}
