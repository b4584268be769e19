//! The files that an ONNX model keeps its weights in, as it names them.
//!
//! Only as much of the protocol buffer is read as leads there; tensors are passed over. A file that is no
//! ONNX model names none.

use std::{
    collections::BTreeSet,
    io::{BufReader, Read, Seek},
    path::{Component, Path},
};

/// How deep graphs may be nested.
const DEEPEST: u32 = 64;
/// The longest name of a file.
const LONGEST: u64 = 4096;

/// A message of onnx.proto, as far as it leads to a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Sparse,
    Tensor,
    /// A pair of key and value in a tensor's `external_data`.
    Entry,
}

impl Message {
    /// What the field of this number holds.
    fn field(self, number: u64) -> Option<Self> {
        match (self, number) {
            (Self::Model, 7) | (Self::Attribute, 6 | 11) => Some(Self::Graph),
            (Self::Model, 25) => Some(Self::Function),
            (Self::Graph, 1) | (Self::Function, 7) => Some(Self::Node),
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::Sparse, 1 | 2) => {
                Some(Self::Tensor)
            }
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Some(Self::Sparse),
            (Self::Node, 5) => Some(Self::Attribute),
            (Self::Tensor, 13) => Some(Self::Entry),
            _ => None,
        }
    }
}

struct Walk<'f, F: Read + Seek> {
    file: BufReader<&'f mut F>,
    at: u64,
    found: BTreeSet<String>,
}

/// The names of the files beside `file`, in order.
pub(crate) fn locations<F: Read + Seek>(file: &mut F) -> BTreeSet<String> {
    let mut walk = Walk { file: BufReader::new(file), at: 0, found: BTreeSet::new() };
    // The end of what can be read is the end of the model, whole or not.
    let _ = walk.message(Message::Model, u64::MAX, 0);
    walk.found
}

impl<F: Read + Seek> Walk<'_, F> {
    /// Reads a message that ends at `end`; none where the file is no such thing.
    fn message(&mut self, message: Message, end: u64, depth: u32) -> Option<()> {
        let mut entry = (None, None);
        while self.at < end {
            let tag = self.number()?;
            let (field, wire) = (tag >> 3, tag & 7);
            match wire {
                0 => self.number().map(|_| ())?,
                1 => self.pass(8)?,
                5 => self.pass(4)?,
                2 => {
                    let length = self.number()?;
                    let ends = self.at.checked_add(length).filter(|ends| *ends <= end)?;
                    match message.field(field) {
                        Some(inner) if depth < DEEPEST => self.message(inner, ends, depth + 1)?,
                        None if message == Message::Entry && length <= LONGEST => {
                            let text = self.text(length)?;
                            *(if field == 1 { &mut entry.0 } else { &mut entry.1 }) = Some(text);
                        }
                        Some(_) | None => self.pass(length)?,
                    }
                }
                _ => return None,
            }
        }
        if let (Some("location"), Some(name)) = (entry.0.as_deref(), entry.1)
            && is_beside(&name)
        {
            self.found.insert(name);
        }
        Some(())
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for place in 0..10 {
            let mut byte = [0];
            self.file.read_exact(&mut byte).ok()?;
            self.at += 1;
            number |= u64::from(byte[0] & 0x7f).checked_shl(7 * place)?;
            if byte[0] < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn pass(&mut self, length: u64) -> Option<()> {
        self.file.seek_relative(i64::try_from(length).ok()?).ok()?;
        self.at = self.at.checked_add(length)?;
        Some(())
    }

    fn text(&mut self, length: u64) -> Option<String> {
        let mut text = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact(&mut text).ok()?;
        self.at += length;
        String::from_utf8(text).ok()
    }
}

/// Whether it names a file in the folder of the model, or below.
fn is_beside(name: &str) -> bool {
    let mut parts = Path::new(name).components().peekable();
    parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
