//! The element types of the protocol.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The type of a tensor's elements: those of the protocol, and BF16, which servers add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    /// IEEE half precision. Has no JSON form.
    Fp16,
    /// The upper half of an FP32. Has no JSON form.
    Bf16,
    Fp32,
    Fp64,
    /// Strings of bytes, each behind its length as four bytes.
    Bytes,
}

impl Datatype {
    /// Every datatype, in the order of the specification.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
    ];

    /// The name in a request, a response and a model's metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Uint8 => "UINT8",
            Self::Uint16 => "UINT16",
            Self::Uint32 => "UINT32",
            Self::Uint64 => "UINT64",
            Self::Int8 => "INT8",
            Self::Int16 => "INT16",
            Self::Int32 => "INT32",
            Self::Int64 => "INT64",
            Self::Fp16 => "FP16",
            Self::Bf16 => "BF16",
            Self::Fp32 => "FP32",
            Self::Fp64 => "FP64",
            Self::Bytes => "BYTES",
        }
    }

    /// The name in a model's configuration, where Triton has its own.
    pub const fn config_name(self) -> &'static str {
        match self {
            Self::Bool => "TYPE_BOOL",
            Self::Uint8 => "TYPE_UINT8",
            Self::Uint16 => "TYPE_UINT16",
            Self::Uint32 => "TYPE_UINT32",
            Self::Uint64 => "TYPE_UINT64",
            Self::Int8 => "TYPE_INT8",
            Self::Int16 => "TYPE_INT16",
            Self::Int32 => "TYPE_INT32",
            Self::Int64 => "TYPE_INT64",
            Self::Fp16 => "TYPE_FP16",
            Self::Bf16 => "TYPE_BF16",
            Self::Fp32 => "TYPE_FP32",
            Self::Fp64 => "TYPE_FP64",
            Self::Bytes => "TYPE_STRING",
        }
    }

    /// Bytes per element, or `None` for [`Datatype::Bytes`], whose elements differ.
    pub const fn width(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// Whether JSON can hold the elements at all.
    pub const fn has_json_form(self) -> bool {
        !matches!(self, Self::Fp16 | Self::Bf16)
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a datatype")]
pub struct UnknownDatatype(pub String);

impl FromStr for Datatype {
    type Err = UnknownDatatype;

    fn from_str(name: &str) -> Result<Self, UnknownDatatype> {
        Self::ALL
            .into_iter()
            .find(|datatype| datatype.name() == name)
            .ok_or_else(|| UnknownDatatype(name.to_owned()))
    }
}

impl Serialize for Datatype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Datatype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        name.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_to_its_datatype() {
        for datatype in Datatype::ALL {
            assert_eq!(datatype.name().parse(), Ok(datatype));
            let json = serde_json::to_string(&datatype).unwrap();
            assert_eq!(serde_json::from_str::<Datatype>(&json).unwrap(), datatype);
        }
    }

    #[test]
    fn names_are_case_sensitive_as_in_the_protocol() {
        assert_eq!("fp32".parse::<Datatype>(), Err(UnknownDatatype("fp32".to_owned())));
    }

    #[test]
    fn the_configuration_calls_bytes_a_string_and_prefixes_the_rest() {
        for datatype in Datatype::ALL {
            let strings = datatype == Datatype::Bytes;
            let name = if strings { "STRING" } else { datatype.name() };
            assert_eq!(datatype.config_name(), format!("TYPE_{name}"));
        }
    }
}
