//! Compressed bodies, both ways, with a bound on what a small body may grow to.

use std::io::{Read, Write};

use bytes::Bytes;
use flate2::{
    Compression,
    bufread::{MultiGzDecoder, ZlibDecoder},
    write::{GzEncoder, ZlibEncoder},
};
use http::{HeaderMap, HeaderValue, header};

use super::buffer_budget::Share;
use crate::error::InferError;

/// Replies shorter than this are not worth the client's time to unpack.
pub(crate) const MIN_PACKED_BYTES: usize = 1_024;
/// The first guess of what a compressed body unpacks to, as a multiple.
const GROWTH: usize = 3;
/// The most that a byte can unpack to, by the format.
const MOST_GROWTH: u64 = 1_032;
/// Room is asked for in steps of this many bytes.
const STEP_BYTES: u64 = 64 << 10;

/// A coding of a body. `deflate` is zlib's format, as RFC 9110 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// How the request's body is coded; none if it is plain.
    pub(crate) fn of_request(headers: &HeaderMap) -> Result<Option<Self>, InferError> {
        let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(None) };
        let several = headers.get_all(header::CONTENT_ENCODING).iter().nth(1).is_some();
        let text = String::from_utf8_lossy(value.as_bytes());
        match text.trim() {
            "" | "identity" if !several => Ok(None),
            name => match Self::named(name) {
                Some(coding) if !several => Ok(Some(coding)),
                Some(_) | None => Err(InferError::UnknownCoding {
                    coding: name[..name.floor_char_boundary(80)].to_owned(),
                }),
            },
        }
    }

    /// The coding to reply in; none if the client does not ask for one we have.
    pub(crate) fn of_reply(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
        value.split(',').find_map(|choice| {
            let (name, quality) = choice.split_once(';').unwrap_or((choice, "q=1"));
            let quality = quality.trim().strip_prefix("q=").and_then(|q| q.trim().parse().ok());
            Self::named(name.trim()).filter(|_| quality.unwrap_or(1.0_f32) > 0.0)
        })
    }

    /// As it stands in `content-encoding`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The same as a header's value.
    pub(crate) fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.name())
    }

    fn named(name: &str) -> Option<Self> {
        match name {
            _ if name.eq_ignore_ascii_case("gzip") => Some(Self::Gzip),
            _ if name.eq_ignore_ascii_case("x-gzip") => Some(Self::Gzip),
            _ if name.eq_ignore_ascii_case("deflate") => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Unpacks `packed`, stopping at the first byte past `limit_bytes`.
    pub(crate) fn unpack(
        self,
        packed: &[u8],
        limit_bytes: u64,
        share: &mut Share,
    ) -> Result<Bytes, InferError> {
        let too_large =
            || InferError::InflatesTooLarge { limit_bytes, packed_bytes: packed.len() as u64 };
        let announced = self.announced_bytes(packed);
        // Either it is true, or the body is refused for that.
        if announced.is_some_and(|bytes| bytes > limit_bytes) {
            return Err(too_large());
        }
        // What nobody could hold is refused before any of it is unpacked.
        let mut paid = announced.unwrap_or_default();
        share.grow_blocking(paid)?;
        let mut plain = Vec::with_capacity(match usize::try_from(paid) {
            Ok(bytes) if announced.is_some() => bytes,
            Ok(_) | Err(_) => packed.len().saturating_mul(GROWTH),
        });
        let most = limit_bytes.saturating_add(1);
        let bad = |cause: String| InferError::BadCoding { coding: self.name(), cause };
        let (read, left) = match self {
            Self::Gzip => {
                let mut decoder = MultiGzDecoder::new(packed).take(most);
                let read = read_charged(&mut decoder, &mut plain, share, &mut paid)?;
                (read, decoder.into_inner().into_inner().len())
            }
            Self::Deflate => {
                let mut decoder = ZlibDecoder::new(packed).take(most);
                let read = read_charged(&mut decoder, &mut plain, share, &mut paid)?;
                (read, decoder.into_inner().into_inner().len())
            }
        };
        if plain.len() as u64 > limit_bytes {
            return Err(too_large());
        }
        read.map_err(|error| bad(error.to_string()))?;
        if left > 0 {
            return Err(bad(format!("{left} bytes follow its end")));
        }
        Ok(plain.into())
    }

    /// What `packed` says it unpacks to, if it says so and the format allows it.
    ///
    /// Room made for all of it at once is not touched before it is needed, whereas room that doubles
    /// is there twice while it is copied.
    fn announced_bytes(self, packed: &[u8]) -> Option<u64> {
        match self {
            Self::Gzip => {
                let length = u64::from(u32::from_le_bytes(*packed.last_chunk()?));
                let most = (packed.len() as u64).saturating_mul(MOST_GROWTH);
                Some(length).filter(|length| *length <= most)
            }
            Self::Deflate => None,
        }
    }

    /// Packs `parts` into one body, quickly rather than tightly.
    pub(crate) fn pack(self, parts: &[Bytes]) -> std::io::Result<Bytes> {
        let plain: usize = parts.iter().map(Bytes::len).sum();
        let sink = Vec::with_capacity(plain / 2);
        let packed = match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(sink, Compression::fast());
                parts.iter().try_for_each(|part| encoder.write_all(part))?;
                encoder.finish()?
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(sink, Compression::fast());
                parts.iter().try_for_each(|part| encoder.write_all(part))?;
                encoder.finish()?
            }
        };
        Ok(packed.into())
    }
}

/// Reads to the end, asking for room before each step that was not paid for ahead.
fn read_charged(
    decoder: &mut impl Read,
    plain: &mut Vec<u8>,
    share: &mut Share,
    paid: &mut u64,
) -> Result<std::io::Result<()>, InferError> {
    loop {
        if plain.len() as u64 >= *paid {
            share.grow_blocking(STEP_BYTES)?;
            *paid += STEP_BYTES;
        }
        let step = STEP_BYTES.min(*paid - plain.len() as u64);
        match decoder.take(step).read_to_end(plain) {
            Ok(read) if (read as u64) < step => return Ok(Ok(())),
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::body::buffer_budget::BufferBudget;

    fn room() -> Share {
        Arc::<BufferBudget>::default().share(u64::MAX)
    }

    const BOTH: [Coding; 2] = [Coding::Gzip, Coding::Deflate];

    fn asked(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([
            (header::ACCEPT_ENCODING, HeaderValue::from_static(value)),
            (header::CONTENT_ENCODING, HeaderValue::from_static(value)),
        ])
    }

    #[test]
    fn what_is_packed_in_parts_unpacks_to_the_whole() {
        let parts = [Bytes::from_static(b"{\"a\":1}"), Bytes::from(vec![7; 100_000])];
        for coding in BOTH {
            let packed = coding.pack(&parts).unwrap();
            assert!(packed.len() < 5_000);
            let plain = coding.unpack(&packed, 100_007, &mut room()).unwrap();
            assert_eq!(plain, parts.concat());
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit_and_not_unpacked_further() {
        let zeros = Bytes::from(vec![0; 1 << 20]);
        for coding in BOTH {
            let bomb = coding.pack(std::slice::from_ref(&zeros)).unwrap();
            let error = coding.unpack(&bomb, 100_000, &mut room()).unwrap_err();
            assert_eq!(error.status(), 413);
            assert_eq!(error.to_string(), "the body unpacks to more than 100000 bytes");
            assert!(coding.unpack(&bomb, 1 << 20, &mut room()).is_ok());
        }
    }

    #[test]
    fn a_length_is_believed_as_far_as_it_can_be_true() {
        let zeros = Bytes::from(vec![0; 1 << 20]);
        let honest = Coding::Gzip.pack(std::slice::from_ref(&zeros)).unwrap();
        assert_eq!(Coding::Gzip.announced_bytes(&honest), Some(1 << 20));
        let mut lie = Coding::Gzip.pack(&[Bytes::from_static(b"short")]).unwrap().to_vec();
        let end = lie.len();
        lie[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Coding::Gzip.announced_bytes(&lie), None);
        assert_eq!(Coding::Gzip.announced_bytes(b"gz"), None);
    }

    #[test]
    fn an_announced_length_is_charged_before_it_is_unpacked() {
        let zeros = Bytes::from(vec![0; 1 << 20]);
        let packed = Coding::Gzip.pack(std::slice::from_ref(&zeros)).unwrap();
        let room = Arc::<BufferBudget>::default();
        let first = Coding::Gzip.unpack(&packed, 1 << 20, &mut room.share(3 << 19));
        assert_eq!(first.unwrap().len(), 1 << 20);
        let mut held = room.share(3 << 19);
        held.grow_blocking(1 << 20).unwrap();
        let second = Coding::Gzip.unpack(&packed, 1 << 20, &mut room.share(3 << 19));
        assert_eq!(second.unwrap_err().status(), 503);
    }

    #[test]
    fn a_bomb_that_hides_its_length_is_refused_at_the_limit() {
        let zeros = Bytes::from(vec![0; 1 << 20]);
        let bomb = Coding::Gzip.pack(std::slice::from_ref(&zeros)).unwrap();
        let empty = Coding::Gzip.pack(&[]).unwrap();
        let hiding = [bomb, empty].concat();
        let error = Coding::Gzip.unpack(&hiding, 100_000, &mut room()).unwrap_err();
        assert_eq!(error.status(), 413);
        assert!(Coding::Gzip.unpack(&hiding, 1 << 20, &mut room()).is_ok());
    }

    #[test]
    fn cut_garbled_or_overlong_bodies_are_the_callers_mistake() {
        for coding in BOTH {
            let packed = coding.pack(&[Bytes::from_static(b"some text, some text")]).unwrap();
            let cut = &packed[..packed.len() - 3];
            let garbled: Vec<u8> = packed.iter().map(|byte| byte ^ 0x55).collect();
            let overlong = [&packed[..], b"more"].concat();
            for bad in [cut, &garbled, &overlong, b""] {
                let error = coding.unpack(bad, 1_000, &mut room()).unwrap_err();
                assert_eq!(error.status(), 400, "{coding:?} {bad:?}");
            }
        }
    }

    #[test]
    fn a_reply_is_packed_only_as_the_client_asks() {
        for (value, coding) in [
            ("gzip", Some(Coding::Gzip)),
            ("deflate", Some(Coding::Deflate)),
            ("br, deflate, gzip", Some(Coding::Deflate)),
            ("gzip;q=0, deflate;q=0.5", Some(Coding::Deflate)),
            ("identity", None),
            ("gzip; q=0", None),
            ("br", None),
        ] {
            assert_eq!(Coding::of_reply(&asked(value)), coding, "{value}");
        }
    }

    #[test]
    fn an_unknown_or_stacked_coding_is_refused() {
        assert_eq!(Coding::of_request(&asked("gzip")).unwrap(), Some(Coding::Gzip));
        assert_eq!(Coding::of_request(&asked("identity")).unwrap(), None);
        for value in ["br", "gzip, gzip"] {
            assert_eq!(Coding::of_request(&asked(value)).unwrap_err().status(), 415, "{value}");
        }
    }
}
