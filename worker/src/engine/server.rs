//! A model in another server, which the executor starts, asks over HTTP, and looks after.
//!
//! Any server that speaks the Open Inference Protocol will do. Tensors travel as they are where it
//! announces `binary_tensor_data`, and as JSON where it does not. What the server answers with 4xx
//! is taken to be the request's fault, except for those statuses that speak of no input.

mod ask;
pub(crate) mod guard;
mod log;
mod port;
mod process;
mod tensors;

use std::{io, path::Path, time::Duration};

use bytes::Bytes;
use oip::Response;
use protocol::{Batch, Shapes};
use wire::SendError;

use self::{ask::Ask, process::Process};
use super::{Done, Engine, LoadError, Lost, RunError, pause};
use crate::{clock, signature::Signature};

/// How often an idle server is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How many looks pass between questions about its health.
const LOOKS_PER_QUESTION: u32 = 4;

/// How often it may fail to say that it is ready before it is given up.
const MAX_UNREADY: u32 = 3;

/// The wait between questions while it starts.
const START_PAUSE: Duration = Duration::from_millis(20);

/// How long a server that broke off may take to be seen to have ended.
const END_WAIT: Duration = Duration::from_millis(500);

/// The protocol's name for tensors as bytes.
const BINARY: &str = "binary_tensor_data";

pub(crate) struct Server {
    process: Process,
    ask: Ask,
    signature: Signature,
    platform: String,
    binary: bool,
    looks: u32,
    unready: u32,
}

impl Server {
    pub(crate) fn start(order: &protocol::Server, program: &Path) -> Result<Self, LoadError> {
        let failed = |reason: String| Lost { reason, last_words: String::new() };
        let address = port::free().map_err(|error| {
            LoadError::Server(failed(format!("no port is free for the server: {error}")))
        })?;
        let mut process = Process::start(order, address, program)
            .map_err(|reason| LoadError::Server(failed(reason)))?;
        let mut ask = Ask::new(address, order);
        let learned =
            wait_until_ready(order, &process, &mut ask).and_then(|()| learn(order, &mut ask));
        match learned {
            Ok(Learned { signature, platform, binary }) => {
                Ok(Self { process, ask, signature, platform, binary, looks: 0, unready: 0 })
            }
            Err(reason) => Err(LoadError::Server(process.end(reason))),
        }
    }

    /// The server is as good as gone; it is ended if it is not, so that it can be started anew.
    fn lost(&mut self, reason: String) -> Lost {
        self.process.end(reason)
    }

    fn infer(&mut self, request: &oip::Encoded) -> Result<wire::Page, RunError> {
        match self.ask.infer(request) {
            Ok(page) => Ok(page),
            Err(error @ SendError::TooLong { .. }) => {
                Err(RunError::Model { reason: error.to_string() })
            }
            Err(SendError::Broken(error)) if is_late(&error) => {
                Err(self.lost("the server did not answer a batch in time".to_owned()).into())
            }
            Err(error @ (SendError::Broken(_) | SendError::Wire(_))) => {
                Err(match self.process.ended(END_WAIT) {
                    Some(how) => self.lost(how).into(),
                    None => RunError::Model { reason: format!("the server broke off: {error}") },
                })
            }
        }
    }
}

impl Engine for Server {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn platform(&self) -> &str {
        &self.platform
    }

    fn memory_bytes(&self) -> u64 {
        self.process.resident_bytes()
    }

    fn run(&mut self, batch: &Batch, body: &Bytes) -> Result<Done, RunError> {
        let started = clock::now();
        let request = tensors::request(&self.signature, batch, body, self.binary)?;
        let encoded = clock::now();
        let page = self.infer(&request)?;
        let answered = clock::now();
        let blame = |reason| match page.status {
            400..=499 if !speaks_of_no_input(page.status) => RunError::Inputs { reason },
            _ => RunError::Model { reason },
        };
        if page.status != 200 {
            return Err(blame(format!("the server answered {}: {}", page.status, page.words())));
        }
        let response = Response::decode(page.body.into(), page.header_length)
            .map_err(|error| RunError::Model { reason: format!("the server's answer: {error}") })?;
        let outputs = tensors::outputs(&self.signature, batch, response)?;
        Ok(Done {
            outputs,
            input: encoded - started,
            compute: answered - encoded,
            output: clock::now() - answered,
        })
    }

    fn look_every(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    fn look(&mut self) -> Result<(), Lost> {
        if let Some(how) = self.process.ended(Duration::ZERO) {
            return Err(self.lost(how));
        }
        self.looks += 1;
        if !self.looks.is_multiple_of(LOOKS_PER_QUESTION) {
            return Ok(());
        }
        match self.ask.ready() {
            Ok(()) => self.unready = 0,
            Err(_) => self.unready += 1,
        }
        if self.unready < MAX_UNREADY {
            return Ok(());
        }
        Err(self.lost(format!("the server was not ready {MAX_UNREADY} times in a row")))
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// Statuses that say who may ask, what there is, or how busy it is.
fn speaks_of_no_input(status: u16) -> bool {
    matches!(status, 401 | 403 | 404 | 408 | 429)
}

fn wait_until_ready(
    order: &protocol::Server,
    process: &Process,
    ask: &mut Ask,
) -> Result<(), String> {
    let patience = Duration::from_millis(order.ready_timeout_ms);
    let until = clock::now() + patience;
    loop {
        if let Some(how) = process.ended(Duration::ZERO) {
            return Err(how);
        }
        let Err(unready) = ask.ready() else { return Ok(()) };
        if clock::now() >= until {
            return Err(format!("the server was not ready within {patience:?}: {unready}"));
        }
        pause::until(clock::now() + START_PAUSE);
    }
}

struct Learned {
    signature: Signature,
    platform: String,
    binary: bool,
}

fn learn(order: &protocol::Server, ask: &mut Ask) -> Result<Learned, String> {
    let about = ask.server().map_err(|unread| unread.to_string())?;
    let told = ask.model().map_err(|unread| unread.to_string())?;
    let shapes = match &order.signature {
        Some(shapes) => shapes.clone(),
        None if told.inputs.is_empty() || told.outputs.is_empty() => {
            let model = &order.served_name;
            return Err(format!(
                "the server does not say what {model} takes and gives; \
                 state its inputs and outputs in the configuration"
            ));
        }
        None => Shapes {
            inputs: told.inputs.iter().map(tensors::shape).collect(),
            outputs: told.outputs.iter().map(tensors::shape).collect(),
        },
    };
    let signature = Signature::read(&shapes).map_err(|error| error.to_string())?;
    let platform = format!("server_{}", about.name);
    let binary = about.extensions.iter().any(|extension| extension == BINARY);
    Ok(Learned { signature, platform, binary })
}
