//! Why a run could not be made.

use std::path::PathBuf;

/// A run that could not be made. A run that was made has a report, however bad.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    #[error("{url:?} cannot be used: {why}")]
    Url { url: String, why: &'static str },
    #[error("{host} has no address")]
    Resolve { host: String, source: std::io::Error },
    #[error("{host} does not answer")]
    Unreachable { host: String, source: std::io::Error },
    #[error("{host} gave no usable answer")]
    Unanswered { host: String, source: wire::SendError },
    #[error("{path} was answered {status}: {words}")]
    Status { path: String, status: u16, words: String },
    #[error("{path} is not the JSON expected")]
    Json { path: String, source: serde_json::Error },
    #[error("no model is ready, and none was named")]
    NoModel,
    #[error("{} models are served ({}); name one", served.len(), served.join(", "))]
    WhichModel { served: Vec<String> },
    #[error("{}: {what}", path.display())]
    File { path: PathBuf, what: &'static str, source: std::io::Error },
    #[error(transparent)]
    Scenario(#[from] crate::scenario::ScenarioError),
    #[error("{}: {problem}", path.display())]
    Trace { path: PathBuf, problem: crate::trace::TraceError },
    #[error("the input for {model} does not fit")]
    Input { model: String, source: oip::DecodeError },
    #[error("--shape names {name:?}; the inputs of {model} are {}", known.join(", "))]
    Shape { model: String, name: String, known: Vec<String> },
    #[error("the input for {model} cannot be encoded")]
    Encode { model: String, source: oip::EncodeError },
    #[error(transparent)]
    Payload(#[from] crate::payload::PayloadError),
    #[error(transparent)]
    Engine(#[from] crate::engine::EngineError),
}

impl LoadError {
    /// Whether what was asked for makes no sense, as opposed to having failed.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Url { .. }
            | Self::Tls(_)
            | Self::WhichModel { .. }
            | Self::Shape { .. }
            | Self::Scenario(_) => true,
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
