//! What requests and responses have in common: a JSON part, then the bytes of binary tensors.

use std::{borrow::Cow, fmt, marker::PhantomData};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    datatype::Datatype,
    error::DecodeError,
    parameters::{Parameters, Value},
    scan,
    slot::{Role, Slot, clip},
    tensor::{Outline, Tensor},
};

/// The most inputs, or outputs, one message may have.
pub const MAX_TENSORS: usize = 1024;

pub const MAX_RANK: usize = 32;

pub(crate) const BINARY_SIZE: &str = "binary_data_size";

/// The parameter that puts a tensor outside the message.
pub(crate) const SHARED_MEMORY: &str = "shared_memory_region";

/// A body cut where the header length says.
pub(crate) struct Split {
    pub(crate) json: Bytes,
    /// `None` if there was no header length, and so no place for binary data.
    pub(crate) tail: Option<Bytes>,
}

pub(crate) fn split(mut body: Bytes, header_length: Option<usize>) -> Result<Split, DecodeError> {
    match header_length {
        None => Ok(Split { json: body, tail: None }),
        Some(0) => Err(DecodeError::Raw),
        Some(header) if header > body.len() => {
            Err(DecodeError::HeaderBeyondBody { header, body: body.len() })
        }
        Some(header) => {
            let tail = body.split_off(header);
            Ok(Split { json: body, tail: Some(tail) })
        }
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(json).map_err(|error| DecodeError::Json { problem: describe(&error) })
}

/// What the parser says, which may repeat a caller's text of any length, and always where.
fn describe(error: &serde_json::Error) -> String {
    let whole = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = whole.strip_suffix(&place).unwrap_or(&whole);
    format!("{}{place}", clip(what))
}

/// A list of which only so many entries are kept; the rest are counted, to be refused by number.
pub(crate) struct Capped<T, const LIMIT: usize> {
    kept: Vec<T>,
    count: usize,
}

impl<T, const LIMIT: usize> Default for Capped<T, LIMIT> {
    fn default() -> Self {
        Self { kept: Vec::new(), count: 0 }
    }
}

impl<T> Capped<T, MAX_TENSORS> {
    pub(crate) fn all(self, role: Role) -> Result<Vec<T>, DecodeError> {
        if self.count > MAX_TENSORS {
            return Err(DecodeError::TooMany { role, count: self.count, limit: MAX_TENSORS });
        }
        Ok(self.kept)
    }
}

impl<'de, T: Deserialize<'de>, const LIMIT: usize> Deserialize<'de> for Capped<T, LIMIT> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const LIMIT: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const LIMIT: usize> Visitor<'de> for List<T, LIMIT> {
            type Value = Capped<T, LIMIT>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < LIMIT {
                    let Some(entry) = seq.next_element()? else { break };
                    kept.push(entry);
                }
                let mut count = kept.len();
                while count >= LIMIT && seq.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Capped { kept, count })
            }
        }

        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// A tensor as the JSON part describes it. Unknown fields are read past.
#[derive(Deserialize)]
pub(crate) struct Draft<'a> {
    name: String,
    shape: Capped<Value, MAX_RANK>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl Draft<'_> {
    fn slot(&self, role: Role) -> Slot {
        Slot::new(role, &self.name)
    }

    /// The announced size of its binary data, if it has any.
    fn binary_size(&self, role: Role) -> Result<Option<u64>, DecodeError> {
        let Some(parameters) = &self.parameters else { return Ok(None) };
        unsupported(|| self.slot(role), parameters, &[SHARED_MEMORY])?;
        let Some(value) = parameters.get(BINARY_SIZE) else { return Ok(None) };
        match parameters.get_u64(BINARY_SIZE) {
            Some(size) => Ok(Some(size)),
            None => Err(DecodeError::Parameter {
                of: self.slot(role).to_string(),
                parameter: BINARY_SIZE,
                found: clipped(value),
                wanted: "a whole number, 0 or more",
            }),
        }
    }

    fn shape(&self, role: Role) -> Result<Vec<u64>, DecodeError> {
        if self.shape.count > MAX_RANK {
            return Err(DecodeError::Rank {
                tensor: self.slot(role),
                rank: self.shape.count,
                limit: MAX_RANK,
            });
        }
        let dimension = |(index, value): (usize, &Value)| match value {
            Value::Int(dim) if *dim >= 0 => Ok(dim.unsigned_abs()),
            Value::Uint(dim) => Ok(*dim),
            Value::Int(_) | Value::Float(_) | Value::String(_) | Value::Bool(_) => {
                Err(DecodeError::Dimension {
                    tensor: self.slot(role),
                    index,
                    found: clipped(value),
                })
            }
        };
        self.shape.kept.iter().enumerate().map(dimension).collect()
    }

    /// The finished tensor, its binary data taken from the front of `tail`.
    fn tensor(
        self,
        role: Role,
        size: Option<u64>,
        tail: &mut Bytes,
    ) -> Result<Tensor, DecodeError> {
        let shape = self.shape(role)?;
        let datatype: Datatype = self.datatype.parse().map_err(|_| {
            DecodeError::UnknownDatatype { tensor: self.slot(role), found: clip(&self.datatype) }
        })?;
        let outline = Outline { role, name: &self.name, datatype, shape: &shape };
        let data = match (self.data, size) {
            (None, Some(size)) => {
                let size = usize::try_from(size).map_or(tail.len(), |size| size.min(tail.len()));
                let data = tail.split_to(size);
                outline.check(&data)?;
                data
            }
            (Some(text), None) => scan::to_binary(outline, text.get())?.into(),
            (None, None) => return Err(DecodeError::NoData { tensor: outline.slot() }),
            (Some(_), Some(_)) => return Err(DecodeError::TwoForms { tensor: outline.slot() }),
        };
        Ok(Tensor { name: self.name.into(), datatype, shape: shape.into(), data })
    }
}

/// Joins each draft with its bytes; the sizes must add up to the tail exactly.
pub(crate) fn tensors(
    drafts: Capped<Draft<'_>, MAX_TENSORS>,
    role: Role,
    tail: Option<Bytes>,
) -> Result<Vec<Tensor>, DecodeError> {
    let drafts = drafts.all(role)?;
    unique(role, drafts.iter().map(|draft| draft.name.as_str()))?;
    let mut sizes = Vec::with_capacity(drafts.len());
    let mut declared = 0_u64;
    for draft in &drafts {
        let size = draft.binary_size(role)?;
        if size.is_some() && tail.is_none() {
            return Err(DecodeError::MissingHeaderLength { tensor: draft.slot(role) });
        }
        declared = declared.saturating_add(size.unwrap_or(0));
        sizes.push(size);
    }
    let mut tail = tail.unwrap_or_default();
    if declared != tail.len() as u64 {
        return Err(DecodeError::Tail { declared, tail: tail.len() });
    }
    drafts.into_iter().zip(sizes).map(|(draft, size)| draft.tensor(role, size, &mut tail)).collect()
}

pub(crate) fn unique<'a>(
    role: Role,
    names: impl Iterator<Item = &'a str>,
) -> Result<(), DecodeError> {
    // Sorted, because comparing all pairs of a thousand long names takes seconds.
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(DecodeError::Duplicate { tensor: Slot::new(role, pair[0]) }),
        None => Ok(()),
    }
}

/// Refuses what would otherwise be ignored in silence and answered wrongly.
pub(crate) fn unsupported(
    slot: impl Fn() -> Slot,
    parameters: &Parameters,
    names: &[&'static str],
) -> Result<(), DecodeError> {
    match names.iter().find(|name| parameters.get(name).is_some()) {
        Some(parameter) => Err(DecodeError::Unsupported { tensor: slot(), parameter }),
        None => Ok(()),
    }
}

/// The value, short enough to repeat in a message.
pub(crate) fn clipped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(clip(text)),
        Value::Int(_) | Value::Uint(_) | Value::Float(_) | Value::Bool(_) => value.clone(),
    }
}

/// The value of a true-or-false parameter of the protocol, `None` if it was not given.
pub(crate) fn flag(
    of: impl Fn() -> String,
    parameters: &Parameters,
    parameter: &'static str,
) -> Result<Option<bool>, DecodeError> {
    match parameters.get(parameter) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(value) => Err(DecodeError::Parameter {
            of: of(),
            parameter,
            found: clipped(value),
            wanted: "true or false",
        }),
    }
}
