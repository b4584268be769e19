//! Arrays of a file that `numpy.savez` wrote.
//!
//! Such a file is a zip archive with a member `NAME.npy` for each array. Only what numpy writes is
//! read: members that are stored or deflated, without encryption, below 4 GiB.

use std::io::Read;

use bytes::Bytes;
use oip::{Datatype, Tensor};

/// The most bytes one array may have.
const MOST: u64 = 1 << 30;

const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
const NUMPY: &[u8] = b"\x93NUMPY";

#[derive(Debug, thiserror::Error)]
pub(super) enum NpzError {
    #[error("not an npz file: {0}")]
    Archive(&'static str),
    #[error("array {name:?}: {reason}")]
    Array { name: String, reason: String },
}

/// All arrays of the archive, by their names.
pub(super) fn read(file: &[u8]) -> Result<Vec<Tensor>, NpzError> {
    let bad = NpzError::Archive;
    let end = file.windows(END.len()).rposition(|window| window == END);
    let end = end.ok_or_else(|| bad("it has no zip directory"))?;
    let count = number::<2>(file, end + 10).ok_or_else(|| bad("its zip directory is cut off"))?;
    let mut at = number::<4>(file, end + 16).ok_or_else(|| bad("its zip directory is cut off"))?;
    let mut arrays = Vec::new();
    for _ in 0..count {
        let cut = || bad("its zip directory is cut off");
        let entry = file.get(at..).filter(|rest| rest.starts_with(ENTRY)).ok_or_else(cut)?;
        let field = |offset| number::<2>(entry, offset).ok_or_else(cut);
        let (method, name_length) = (field(10)?, field(28)?);
        let (extra, comment) = (field(30)?, field(32)?);
        let length = number::<4>(entry, 20).ok_or_else(cut)?;
        let local = number::<4>(entry, 42).ok_or_else(cut)?;
        let name = entry.get(46..46 + name_length).ok_or_else(cut)?;
        let name = String::from_utf8_lossy(name);
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let failed = |reason: String| NpzError::Array { name: name.clone(), reason };
        let bytes = member(file, local, length, method).map_err(failed)?;
        arrays.push(array(&name, &bytes).map_err(failed)?);
        at += 46 + name_length + extra + comment;
    }
    Ok(arrays)
}

fn number<const WIDTH: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(WIDTH)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}

fn member(file: &[u8], at: usize, length: usize, method: usize) -> Result<Vec<u8>, String> {
    let cut = || "it is cut off".to_owned();
    let local = file.get(at..).filter(|rest| rest.starts_with(LOCAL)).ok_or_else(cut)?;
    let name = number::<2>(local, 26).ok_or_else(cut)?;
    let extra = number::<2>(local, 28).ok_or_else(cut)?;
    let start = 30 + name + extra;
    let packed = local.get(start..start.saturating_add(length)).ok_or_else(cut)?;
    match method {
        0 => Ok(packed.to_vec()),
        8 => {
            let mut bytes = Vec::new();
            let unpack = flate2::read::DeflateDecoder::new(packed).take(MOST + 1);
            { unpack }.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
            if bytes.len() as u64 > MOST {
                return Err(format!("it has more than {MOST} bytes"));
            }
            Ok(bytes)
        }
        other => Err(format!("it is packed by method {other}; save it with numpy.savez")),
    }
}

fn array(name: &str, bytes: &[u8]) -> Result<Tensor, String> {
    let cut = || "it is cut off".to_owned();
    if !bytes.starts_with(NUMPY) {
        return Err("it is not an array of numpy".to_owned());
    }
    let (start, length) = match bytes.get(6) {
        Some(1) => (10_usize, number::<2>(bytes, 8).ok_or_else(cut)?),
        Some(_) => (12, number::<4>(bytes, 8).ok_or_else(cut)?),
        None => return Err(cut()),
    };
    let header = bytes.get(start..start.saturating_add(length)).ok_or_else(cut)?;
    let header = String::from_utf8_lossy(header);
    let data = &bytes[start + length..];
    let value = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = value("'descr':").and_then(|rest| rest.split('\'').nth(1)).ok_or_else(cut)?;
    if value("'fortran_order':").is_some_and(|rest| rest.starts_with("True")) {
        return Err("it is in Fortran's order; save numpy.ascontiguousarray of it".to_owned());
    }
    let shape = value("'shape':").and_then(|rest| rest.split(['(', ')']).nth(1));
    let sizes = shape.ok_or_else(cut)?.split(',').map(str::trim).filter(|size| !size.is_empty());
    let shape: Vec<u64> = sizes
        .map(|size| size.parse().map_err(|_| format!("its shape has {size:?}")))
        .collect::<Result<_, _>>()?;
    let (datatype, data) = elements(kind, data)?;
    Tensor::new(name, datatype, shape, data).map_err(|error| error.to_string())
}

fn elements(kind: &str, data: &[u8]) -> Result<(Datatype, Bytes), String> {
    let plain = [
        ("|b1", Datatype::Bool),
        ("|i1", Datatype::Int8),
        ("<i2", Datatype::Int16),
        ("<i4", Datatype::Int32),
        ("<i8", Datatype::Int64),
        ("|u1", Datatype::Uint8),
        ("<u2", Datatype::Uint16),
        ("<u4", Datatype::Uint32),
        ("<u8", Datatype::Uint64),
        ("<f2", Datatype::Fp16),
        ("<f4", Datatype::Fp32),
        ("<f8", Datatype::Fp64),
    ];
    if let Some((_, datatype)) = plain.iter().find(|(known, _)| *known == kind) {
        return Ok((*datatype, Bytes::copy_from_slice(data)));
    }
    let width = |letters: &str| kind.strip_prefix(letters)?.parse::<usize>().ok();
    let texts: Vec<Vec<u8>> = if let Some(letters) = width("<U").filter(|letters| *letters > 0) {
        data.chunks_exact(4 * letters).map(unicode).collect()
    } else if let Some(letters) = width("|S").filter(|letters| *letters > 0) {
        data.chunks_exact(letters).map(|text| trimmed(text).to_vec()).collect()
    } else {
        return Err(format!("its elements are {kind}; give numbers, booleans or text"));
    };
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&text);
    }
    Ok((Datatype::Bytes, Bytes::from(bytes)))
}

/// Text of four bytes a letter, filled up with zeros.
fn unicode(text: &[u8]) -> Vec<u8> {
    let letters = text.as_chunks().0.iter().map(|letter| u32::from_le_bytes(*letter));
    let text: String = letters.filter(|letter| *letter != 0).filter_map(char::from_u32).collect();
    text.into_bytes()
}

fn trimmed(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &text[..length]
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn npy(kind: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [NUMPY, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    /// An archive as numpy writes it, with each member stored or deflated.
    fn npz(members: &[(&str, Vec<u8>, bool)]) -> Vec<u8> {
        let (mut file, mut directory) = (Vec::new(), Vec::new());
        for (name, bytes, deflated) in members {
            let mut pack =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            pack.write_all(bytes).unwrap();
            let packed = if *deflated { pack.finish().unwrap() } else { bytes.clone() };
            let (name, at) = (format!("{name}.npy"), file.len() as u32);
            let method = u16::from(*deflated) * 8;
            let (name_length, length) = (name.len() as u16, packed.len() as u32);
            file.extend_from_slice(LOCAL);
            file.extend_from_slice(&[0; 22]);
            file.extend_from_slice(&name_length.to_le_bytes());
            file.extend_from_slice(&4_u16.to_le_bytes());
            file.extend_from_slice(name.as_bytes());
            file.extend_from_slice(&[0; 4]);
            file.extend_from_slice(&packed);
            let mut entry = [0; 46];
            entry[..4].copy_from_slice(ENTRY);
            entry[10..12].copy_from_slice(&method.to_le_bytes());
            entry[20..24].copy_from_slice(&length.to_le_bytes());
            entry[28..30].copy_from_slice(&name_length.to_le_bytes());
            entry[42..46].copy_from_slice(&at.to_le_bytes());
            directory.extend_from_slice(&entry);
            directory.extend_from_slice(name.as_bytes());
        }
        let mut end = [0; 22];
        end[..4].copy_from_slice(END);
        end[10..12].copy_from_slice(&(members.len() as u16).to_le_bytes());
        end[16..20].copy_from_slice(&(file.len() as u32).to_le_bytes());
        [file, directory, end.to_vec()].concat()
    }

    #[test]
    fn stored_and_deflated_arrays_are_read() {
        let floats: Vec<u8> = [1.0_f32, -2.5].iter().flat_map(|one| one.to_le_bytes()).collect();
        let texts: Vec<u8> =
            "ab\0c\0\0".chars().flat_map(|one| (one as u32).to_le_bytes()).collect();
        let file = npz(&[
            ("x", npy("<f4", "(1, 2)", &floats), false),
            ("names", npy("<U3", "(2,)", &texts), true),
            ("sr", npy("<i8", "()", &16_000_i64.to_le_bytes()), false),
        ]);
        let arrays = read(&file).unwrap();
        let shapes: Vec<_> = arrays.iter().map(|one| (&*one.name, one.shape.to_vec())).collect();
        assert_eq!(shapes, [("x", vec![1, 2]), ("names", vec![2]), ("sr", vec![])]);
        assert_eq!(arrays[0].data, floats);
        assert_eq!(arrays[1].datatype, Datatype::Bytes);
        assert_eq!(&arrays[1].data[..], b"\x02\0\0\0ab\x01\0\0\0c");
    }

    #[test]
    fn what_is_no_archive_or_no_plain_array_is_refused() {
        assert!(read(b"hello").unwrap_err().to_string().starts_with("not an npz file"));
        let objects = read(&npz(&[("x", npy("|O", "(1,)", &[0; 8]), false)])).unwrap_err();
        assert!(objects.to_string().contains("its elements are |O"), "{objects}");
        let file = npz(&[("x", npy("<f4", "(2,)", &[0; 8]), false)]);
        for length in 0..file.len() {
            let _ = read(&file[..length]);
        }
    }
}
