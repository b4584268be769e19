//! An HTTP answer, as the worker and the load generator read it, in pieces of any size.
//!
//! The first byte is the size of the pieces. However the bytes are cut, they say the same.

use wire::{Answer, Reader, WireError};

pub(super) fn run(input: &[u8]) {
    let Some((size, bytes)) = input.split_first() else { return };
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, usize::from(*size).max(1));
    match whole {
        // In pieces, what comes after the end of an answer would begin the next.
        Err(WireError::Extra { .. }) => {}
        Err(error) => {
            assert!(pieces.is_err(), "{error}");
        }
        Ok(whole) => {
            assert!(whole.1.len() <= bytes.len());
            let pieces = pieces.expect("the same bytes were understood in one piece");
            assert_eq!(pieces, whole);
        }
    }
}

/// The answer, if it came whole, and its body.
fn read(bytes: &[u8], size: usize) -> Result<(Option<Answer>, Vec<u8>), WireError> {
    let (mut reader, mut body) = (Reader::default(), Vec::new());
    for piece in bytes.chunks(size) {
        let answer = reader.feed(piece, &mut |bytes| body.extend_from_slice(bytes))?;
        if answer.is_some() {
            return Ok((answer, body));
        }
    }
    Ok((reader.closed()?, body))
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    [
        "\x01HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "\x03HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\na: b\r\n\r\n",
        "\x07HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        "\x02HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nInference-Header-Content-Length: 17\r\n\r\n",
        "\x10HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nContent-Length: 0\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
