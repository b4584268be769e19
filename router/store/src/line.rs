//! One line: a checksum, a space, JSON.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Change;

const FORMAT: &str = "sluice-state";
/// Eight hexadecimal digits and a space.
const PREFIX: usize = 9;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

pub(crate) fn header(version: u32) -> Vec<u8> {
    encode(&Header { format: FORMAT.to_owned(), version })
}

/// The version that the first line gives, if it is one of ours.
pub(crate) fn version(line: &[u8]) -> Option<u32> {
    let header: Header = decode(line)?;
    (header.format == FORMAT).then_some(header.version)
}

pub(crate) fn commit(change: &Change) -> Vec<u8> {
    encode(change)
}

/// The commit on a line, if it is whole.
pub(crate) fn change(line: &[u8]) -> Option<Change> {
    decode(line)
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("maps with text keys can be written as JSON");
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend(json);
    line.push(b'\n');
    line
}

/// The value on a line without its end.
fn decode<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let (prefix, json) = line.split_at_checked(PREFIX)?;
    let digits = std::str::from_utf8(prefix.strip_suffix(b" ")?).ok()?;
    let whole = u32::from_str_radix(digits, 16).ok()? == crc32fast::hash(json);
    if whole { serde_json::from_slice(json).ok() } else { None }
}
