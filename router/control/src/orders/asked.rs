//! What an operator asks for, as it is read.

use serde::Deserialize;

use super::OrderError;
use policy::fleet::SliceId;

/// The longest name an operator may give.
const LONGEST_NAME: usize = 64;
/// What an operator is called who gives no name and has no key.
const UNNAMED: &str = "admin";

/// What is to be looked at, or to stand from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Drain {
        worker: String,
        by: String,
        /// Whether it shall be done, rather than only be looked at.
        apply: bool,
    },
    /// A drained worker may have something again.
    Return { worker: String, by: String },
    Pin {
        model: String,
        by: String,
        /// Where, and instead of where.
        asked: PinAsked,
    },
    /// A pinned replica may be anywhere again.
    Unpin { model: String, at: SliceId, by: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinAsked {
    pub worker: String,
    pub gpu: u32,
    pub position: String,
    pub from: Option<SliceId>,
    pub by: Option<String>,
    /// Whether it shall be done, rather than only be looked at.
    #[serde(default)]
    pub apply: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DrainAsked {
    by: Option<String>,
    #[serde(default)]
    apply: bool,
}

impl Order {
    /// Reads the body of a drain by the holder of the key `who`; nothing asks what it would lead to.
    pub fn drain(worker: String, body: &[u8], who: Option<&str>) -> Result<Self, OrderError> {
        let body = if body.is_empty() { b"{}" } else { body };
        let DrainAsked { by, apply } = read(body)?;
        Ok(Self::Drain { worker, by: named(by, who)?, apply })
    }

    pub fn pin(model: String, body: &[u8], who: Option<&str>) -> Result<Self, OrderError> {
        let mut asked: PinAsked = read(body)?;
        let by = named(asked.by.take(), who)?;
        Ok(Self::Pin { model, by, asked })
    }

    pub fn give_back(worker: String, query: &str, who: Option<&str>) -> Result<Self, OrderError> {
        let mut by = None;
        for (name, value) in parameters(query) {
            match name.as_str() {
                "by" => by = Some(value),
                _ => return Err(unknown(&name, "by")),
            }
        }
        Ok(Self::Return { worker, by: named(by, who)? })
    }

    pub fn unpin(model: String, query: &str, who: Option<&str>) -> Result<Self, OrderError> {
        let mut by = None;
        let (mut worker, mut gpu, mut position) = (None, None, None);
        for (name, value) in parameters(query) {
            match name.as_str() {
                "by" => by = Some(value),
                "worker" => worker = Some(value),
                "position" => position = Some(value),
                "gpu" => {
                    let number = value.parse();
                    let wrong = |_| invalid(format!("gpu is {value:?}; give its index"));
                    gpu = Some(number.map_err(wrong)?);
                }
                _ => return Err(unknown(&name, "worker, gpu, position or by")),
            }
        }
        let (Some(worker), Some(gpu), Some(position)) = (worker, gpu, position) else {
            return Err(invalid("give worker, gpu and position of the pin".to_owned()));
        };
        Ok(Self::Unpin { model, at: SliceId { worker, gpu, position }, by: named(by, who)? })
    }
}

impl PinAsked {
    pub fn at(&self) -> SliceId {
        let Self { worker, gpu, position, .. } = self;
        SliceId { worker: worker.clone(), gpu: *gpu, position: position.clone() }
    }
}

fn named(by: Option<String>, who: Option<&str>) -> Result<String, OrderError> {
    let Some(by) = by else { return Ok(who.unwrap_or(UNNAMED).to_owned()) };
    let plain = !by.is_empty() && !by.contains(|c: char| c.is_control());
    if plain && by.chars().count() <= LONGEST_NAME {
        return Ok(by);
    }
    Err(invalid(format!("by is to be a name of at most {LONGEST_NAME} characters")))
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, OrderError> {
    serde_json::from_slice(body).map_err(|error| invalid(error.to_string()))
}

fn invalid(what: String) -> OrderError {
    OrderError::Invalid { what }
}

fn unknown(name: &str, known: &str) -> OrderError {
    invalid(format!("there is no parameter {name:?}; give {known}"))
}

fn parameters(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    pairs.map(|(name, value)| (name.to_owned(), unescaped(value))).collect()
}

/// A value of a query, with what was escaped in it.
fn unescaped(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after.get(..2).filter(|_| *first == b'%');
        let digits = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
