//! JSON `data` into binary form, in one pass over its text.
//!
//! The text has already been found to be valid JSON, so this only has to find where elements
//! begin and end. Brackets are read past: nesting says nothing that the shape does not, and only
//! the number of elements is held against the shape, as Triton does. Numbers are parsed from
//! their own text straight into their own type, so none is rounded twice.

use std::borrow::Cow;

use crate::{datatype::Datatype, error::DecodeError, slot::clip, tensor::Outline};

/// The binary form of `text`, which is valid JSON.
pub(crate) fn to_binary(outline: Outline<'_>, text: &str) -> Result<Vec<u8>, DecodeError> {
    if !text.starts_with('[') {
        return Err(DecodeError::NotAList { tensor: outline.slot(), found: clip(text) });
    }
    match outline.datatype {
        Datatype::Bool => convert(outline, text, boolean),
        Datatype::Uint8 => convert(outline, text, number::<u8, 1>),
        Datatype::Uint16 => convert(outline, text, number::<u16, 2>),
        Datatype::Uint32 => convert(outline, text, number::<u32, 4>),
        Datatype::Uint64 => convert(outline, text, number::<u64, 8>),
        Datatype::Int8 => convert(outline, text, number::<i8, 1>),
        Datatype::Int16 => convert(outline, text, number::<i16, 2>),
        Datatype::Int32 => convert(outline, text, number::<i32, 4>),
        Datatype::Int64 => convert(outline, text, number::<i64, 8>),
        Datatype::Fp32 => convert(outline, text, number::<f32, 4>),
        Datatype::Fp64 => convert(outline, text, number::<f64, 8>),
        Datatype::Bytes => convert(outline, text, string),
        Datatype::Fp16 | Datatype::Bf16 => {
            Err(DecodeError::NoJsonForm { tensor: outline.slot(), datatype: outline.datatype })
        }
    }
}

enum Fault {
    WrongKind,
    OutOfRange,
}

fn convert(
    outline: Outline<'_>,
    text: &str,
    append: impl Fn(&str, &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<Vec<u8>, DecodeError> {
    let needed = outline.elements()?;
    let mut out = Vec::with_capacity(capacity(outline.datatype, needed, text));
    let mut got = 0;
    for element in (Elements { text, at: 0 }) {
        // What is too many is only counted, so that a small shape bounds the memory.
        if got < needed {
            append(element, &mut out).map_err(|fault| refused(outline, got, element, &fault))?;
        }
        got += 1;
    }
    if got == needed { Ok(out) } else { Err(outline.miscounted(needed, got)) }
}

/// Enough for the whole tensor, but never more than its text can fill.
fn capacity(datatype: Datatype, needed: u64, text: &str) -> usize {
    let Some(width) = datatype.width() else { return text.len() };
    let possible = text.len() / 2 + 1;
    usize::try_from(needed).map_or(possible, |needed| needed.min(possible)) * width
}

fn refused(outline: Outline<'_>, element: u64, found: &str, fault: &Fault) -> DecodeError {
    let (tensor, datatype, found) = (outline.slot(), outline.datatype, clip(found));
    match fault {
        Fault::WrongKind => DecodeError::Element { tensor, element, datatype, found },
        Fault::OutOfRange => DecodeError::OutOfRange { tensor, element, datatype, found },
    }
}

/// The elements of nested lists, in order, each as the text it was written in.
struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let bytes = self.text.as_bytes();
        while is_between(*bytes.get(self.at)?) {
            self.at += 1;
        }
        let start = self.at;
        self.at = match bytes[start] {
            b'"' => string_end(bytes, start),
            // No datatype takes an object, so its extent does not matter.
            b'{' => bytes.len(),
            _ => word_end(bytes, start),
        };
        self.text.get(start..self.at)
    }
}

fn is_between(byte: u8) -> bool {
    matches!(byte, b',' | b'[' | b']' | b' ' | b'\n' | b'\r' | b'\t')
}

fn word_end(bytes: &[u8], start: usize) -> usize {
    let length = bytes[start..].iter().position(|byte| is_between(*byte));
    length.map_or(bytes.len(), |length| start + length)
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A number type that has a JSON form.
trait Number<const WIDTH: usize>: Sized {
    fn parse(text: &str) -> Result<Self, Fault>;
    fn bytes(self) -> [u8; WIDTH];
}

fn number<T: Number<WIDTH>, const WIDTH: usize>(
    text: &str,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.extend_from_slice(&T::parse(text)?.bytes());
    Ok(())
}

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl Number<{ size_of::<$type>() }> for $type {
            fn parse(text: &str) -> Result<Self, Fault> {
                text.parse().or_else(|_| match text {
                    "-0" => Ok(0),
                    _ if is_integer(text) => Err(Fault::OutOfRange),
                    _ => Err(Fault::WrongKind),
                })
            }

            fn bytes(self) -> [u8; size_of::<$type>()] {
                self.to_le_bytes()
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

macro_rules! floats {
    ($($type:ty),+) => {$(
        impl Number<{ size_of::<$type>() }> for $type {
            fn parse(text: &str) -> Result<Self, Fault> {
                // Rust would also take "inf" and "nan"; JSON's other words begin with a letter too.
                if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
                    return Err(Fault::WrongKind);
                }
                let number: $type = text.parse().map_err(|_| Fault::WrongKind)?;
                if number.is_finite() { Ok(number) } else { Err(Fault::OutOfRange) }
            }

            fn bytes(self) -> [u8; size_of::<$type>()] {
                self.to_le_bytes()
            }
        }
    )+};
}

floats!(f32, f64);

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn boolean(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let flag = match text {
        "true" | "1" => true,
        "false" | "0" => false,
        _ if is_integer(text) => return Err(Fault::OutOfRange),
        _ => return Err(Fault::WrongKind),
    };
    out.push(u8::from(flag));
    Ok(())
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let inner = quoted.ok_or(Fault::WrongKind)?;
    let inner: Cow<'_, str> = if inner.contains('\\') {
        serde_json::from_str::<String>(text).map_err(|_| Fault::WrongKind)?.into()
    } else {
        inner.into()
    };
    let length = u32::try_from(inner.len()).map_err(|_| Fault::OutOfRange)?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(inner.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Role;

    fn convert(datatype: Datatype, shape: &[u64], text: &str) -> Result<Vec<u8>, String> {
        let outline = Outline { role: Role::Input, name: "x", datatype, shape };
        to_binary(outline, text).map_err(|error| error.to_string())
    }

    fn problem(datatype: Datatype, shape: &[u64], text: &str) -> String {
        convert(datatype, shape, text).unwrap_err()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn flat_and_nested_lists_give_the_same_bytes() {
        let expected = floats(&[1.0, 2.0, 3.5, -4.0]);
        for text in ["[1,2,3.5,-4]", "[[1.0,2e0],[3.5,-4]]", " [ [ 1 ,\n2],[3.5, -4.0]]".trim()] {
            assert_eq!(convert(Datatype::Fp32, &[2, 2], text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_list_of_another_length_is_refused_with_both_numbers() {
        let expected = "input \"x\": shape [2,2] needs 4 elements, got 5";
        assert_eq!(problem(Datatype::Int8, &[2, 2], "[[1,2],[3,4,5]]"), expected);
        let expected = "input \"x\": shape [2,2] needs 4 elements, got 3";
        assert_eq!(problem(Datatype::Int8, &[2, 2], "[[[1]],[2],3]"), expected);
    }

    #[test]
    fn huge_shape_reserves_no_more_than_its_text_can_fill() {
        assert!(capacity(Datatype::Fp64, u64::MAX / 8, "[1,2]") <= 24);
        let expected = "input \"x\": shape [1000000000000] needs 1000000000000 elements, got 1";
        assert_eq!(problem(Datatype::Fp32, &[1_000_000_000_000], "[1]"), expected);
    }

    #[test]
    fn deep_nesting_is_no_deeper_for_us() {
        let text = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(convert(Datatype::Uint8, &[1], &text).unwrap(), [1]);
    }

    #[test]
    fn a_fraction_is_not_an_integer() {
        for text in ["[0,1.0]", "[0,1e2]", "[0,true]", "[0,null]", "[0,\"1\"]"] {
            let found = text.strip_prefix("[0,").unwrap().strip_suffix(']').unwrap();
            let expected = format!("input \"x\": element 1 is {found}, which is not INT32");
            assert_eq!(problem(Datatype::Int32, &[2], text), expected);
        }
    }

    #[test]
    fn integers_are_taken_to_their_limits_and_refused_beyond() {
        let cases = [
            (Datatype::Uint8, "0", "255", "256"),
            (Datatype::Int8, "-128", "127", "-129"),
            (Datatype::Uint16, "-0", "65535", "65536"),
            (Datatype::Int16, "-32768", "32767", "32768"),
            (Datatype::Uint32, "0", "4294967295", "-1"),
            (Datatype::Int32, "-2147483648", "2147483647", "2147483648"),
            (Datatype::Uint64, "0", "18446744073709551615", "18446744073709551616"),
            (Datatype::Int64, "-9223372036854775808", "9223372036854775807", "9223372036854775808"),
        ];
        for (datatype, least, most, beyond) in cases {
            assert!(convert(datatype, &[2], &format!("[{least},{most}]")).is_ok(), "{datatype}");
            let expected =
                format!("input \"x\": element 1 is {beyond}, which is out of range for {datatype}");
            assert_eq!(problem(datatype, &[2], &format!("[0,{beyond}]")), expected);
        }
    }

    #[test]
    fn a_float_too_large_for_its_type_is_refused() {
        assert!(convert(Datatype::Fp64, &[1], "[1e39]").is_ok());
        let expected = "input \"x\": element 0 is 1e39, which is out of range for FP32";
        assert_eq!(problem(Datatype::Fp32, &[1], "[1e39]"), expected);
    }

    #[test]
    fn a_float_is_rounded_once() {
        // Just above the middle of two neighbouring FP32; by way of FP64 it would round down.
        let text = "[1.00000005960464477539062500000001]";
        assert_eq!(convert(Datatype::Fp32, &[1], text).unwrap(), floats(&[1.000_000_1]));
    }

    #[test]
    fn booleans_come_as_words_or_as_bits() {
        assert_eq!(convert(Datatype::Bool, &[4], "[true,false,1,0]").unwrap(), [1, 0, 1, 0]);
        assert!(problem(Datatype::Bool, &[1], "[2]").contains("out of range for BOOL"));
        assert!(problem(Datatype::Bool, &[1], "[1.0]").contains("is not BOOL"));
    }

    #[test]
    fn strings_stand_behind_their_length_with_escapes_undone() {
        let expected = b"\x02\0\0\0hi\0\0\0\0\x03\0\0\0],\"\x02\0\0\0\xc3\xa9";
        let text = r#"["hi",["","],\""],"\u00e9"]"#;
        assert_eq!(convert(Datatype::Bytes, &[4], text).unwrap(), expected);
    }

    #[test]
    fn half_a_surrogate_pair_is_not_a_string() {
        assert!(problem(Datatype::Bytes, &[1], r#"["\ud800"]"#).contains("is not BYTES"));
        assert!(problem(Datatype::Bytes, &[1], "[7]").contains("is not BYTES"));
    }

    #[test]
    fn half_floats_are_sent_to_binary() {
        assert_eq!(
            problem(Datatype::Fp16, &[1], "[1]"),
            "input \"x\": FP16 has no JSON form; use binary"
        );
        assert!(problem(Datatype::Bf16, &[1], "[1]").contains("BF16 has no JSON form"));
    }

    #[test]
    fn data_must_be_a_list_of_plain_elements() {
        assert_eq!(problem(Datatype::Fp32, &[], "5"), "input \"x\": data is 5; give a list");
        assert!(problem(Datatype::Fp32, &[1], r#"[{"a":[1]}]"#).contains("is not FP32"));
    }
}
