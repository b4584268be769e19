//! Why a run could not be made.

use std::path::PathBuf;

/// A run that could not be made. A run that was made has a report, however bad.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server cannot be asked over TLS.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// The address is not one.
    #[error("{url:?} cannot be used: {why}")]
    Url {
        /// As the user wrote it.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The host has no address.
    #[error("{host} has no address")]
    Resolve {
        /// Host and port.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// The host does not answer.
    #[error("{host} does not answer")]
    Unreachable {
        /// Host and port.
        host: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The host gave no answer that can be used.
    #[error("{host} gave no usable answer")]
    Unanswered {
        /// Host and port.
        host: String,
        /// What came of it.
        source: wire::SendError,
    },
    /// The server refused what a run cannot do without.
    #[error("{path} was answered {status}: {words}")]
    Status {
        /// What was asked.
        path: String,
        /// The HTTP status.
        status: u16,
        /// The server's own words.
        words: String,
    },
    /// An answer or a file is not the JSON it should be.
    #[error("{path} is not the JSON expected")]
    Json {
        /// What was asked or read.
        path: String,
        /// Where and how.
        source: serde_json::Error,
    },
    /// The server lists no ready model, and none was named.
    #[error("no model is ready, and none was named")]
    NoModel,
    /// The server has several models, and none was named.
    #[error("{} models are served ({}); name one", served.len(), served.join(", "))]
    WhichModel {
        /// The models that are ready.
        served: Vec<String>,
    },
    /// A file could not be read or written.
    #[error("{}: {what}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The scenario is not one.
    #[error(transparent)]
    Scenario(#[from] crate::scenario::ScenarioError),
    /// A trace cannot be replayed.
    #[error("{}: {problem}", path.display())]
    Trace {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        problem: crate::trace::TraceError,
    },
    /// An input does not fit the model.
    #[error("the input for {model} does not fit")]
    Input {
        /// The model.
        model: String,
        /// What is wrong with it.
        source: oip::DecodeError,
    },
    /// An input cannot be written in the form wanted.
    #[error("the input for {model} cannot be encoded")]
    Encode {
        /// The model.
        model: String,
        /// What is wrong with it.
        source: oip::EncodeError,
    },
    /// A file of inputs cannot be used.
    #[error(transparent)]
    Payload(#[from] crate::payload::PayloadError),
    /// The kernel refused something.
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
}

impl LoadError {
    /// Whether what was asked for makes no sense, as opposed to having failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Tls(_) | Self::WhichModel { .. } | Self::Scenario(_) => true,
            Self::Resolve { .. }
            | Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Status { .. }
            | Self::Json { .. }
            | Self::NoModel
            | Self::File { .. }
            | Self::Trace { .. }
            | Self::Input { .. }
            | Self::Encode { .. }
            | Self::Payload(_)
            | Self::Engine(_) => false,
        }
    }
}
