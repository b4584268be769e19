//! HTTP/1.1 answers, read piece by piece and not kept.
//!
//! A load generator needs the status, and to know where an answer ends. Bodies pass through a sink,
//! which may ignore them, so an answer that arrives whole is copied by nobody who does not want it.

const MAX_HEADERS: usize = 64;
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most bytes in a chunk's size line, extensions included.
const MAX_SIZE_LINE_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Whether the connection ends with this answer.
    pub close: bool,
    /// `Inference-Header-Content-Length`, where the answer has one.
    pub header_length: Option<usize>,
}

#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the answer's head is malformed")]
    Head(#[source] httparse::Error),
    #[error("the answer's head is longer than {MAX_HEAD_BYTES} bytes")]
    LongHead,
    #[error("a length in the answer's head is not a number")]
    Length,
    #[error("a chunk of the answer is malformed")]
    Chunk,
    #[error("{extra} bytes follow the answer")]
    Extra { extra: usize },
    #[error("the connection closed inside the answer")]
    Cut,
}

#[derive(Debug)]
pub struct Reader {
    phase: Phase,
    kept: Vec<u8>,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Head,
    Body { left: u64 },
    ChunkSize,
    ChunkBody { left: u64 },
    ChunkEnd,
    Trailer,
    UntilClose,
}

impl Default for Reader {
    fn default() -> Self {
        let answer = Answer { status: 0, close: false, header_length: None };
        Self { phase: Phase::Head, kept: Vec::new(), answer }
    }
}

impl Reader {
    /// Whether nothing of the next answer has arrived.
    pub fn is_fresh(&self) -> bool {
        matches!(self.phase, Phase::Head) && self.kept.is_empty()
    }

    /// Takes the bytes that arrived; gives the answer once it is whole.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        sink: &mut impl FnMut(&[u8]),
    ) -> Result<Option<Answer>, WireError> {
        loop {
            let (used, done) = match self.phase {
                Phase::Head => self.head(bytes)?,
                Phase::Body { left } => {
                    let used = take(bytes, left, sink);
                    self.phase = Phase::Body { left: left - used as u64 };
                    (used, left == used as u64)
                }
                Phase::ChunkBody { left } => {
                    let used = take(bytes, left, sink);
                    let left = left - used as u64;
                    self.phase =
                        if left == 0 { Phase::ChunkEnd } else { Phase::ChunkBody { left } };
                    (used, false)
                }
                Phase::ChunkSize | Phase::ChunkEnd | Phase::Trailer => self.line(bytes)?,
                Phase::UntilClose => (take(bytes, u64::MAX, sink), false),
            };
            bytes = &bytes[used..];
            if done {
                self.phase = Phase::Head;
                if !bytes.is_empty() {
                    return Err(WireError::Extra { extra: bytes.len() });
                }
                return Ok(Some(self.answer));
            }
            if bytes.is_empty() {
                return Ok(None);
            }
        }
    }

    /// The peer closed: the end of an answer that has no length, or `None` between answers.
    pub fn closed(&mut self) -> Result<Option<Answer>, WireError> {
        if let Phase::UntilClose = self.phase {
            self.phase = Phase::Head;
            return Ok(Some(self.answer));
        }
        if self.is_fresh() { Ok(None) } else { Err(WireError::Cut) }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<(usize, bool), WireError> {
        if self.kept.is_empty() {
            if let Some((used, head)) = parse_head(bytes)? {
                return Ok((used, self.begin(&head)));
            }
            self.kept.extend_from_slice(bytes);
        } else {
            let before = self.kept.len();
            self.kept.extend_from_slice(bytes);
            if let Some((used, head)) = parse_head(&self.kept)? {
                self.kept.clear();
                return Ok((used - before, self.begin(&head)));
            }
        }
        if self.kept.len() > MAX_HEAD_BYTES {
            return Err(WireError::LongHead);
        }
        Ok((bytes.len(), false))
    }

    fn begin(&mut self, head: &Head) -> bool {
        if (100..200).contains(&head.status) {
            return false;
        }
        let until_close = matches!(head.framing, Framing::UntilClose);
        self.answer = Answer {
            status: head.status,
            close: head.close || until_close,
            header_length: head.header_length,
        };
        if matches!(head.status, 204 | 304) {
            return true;
        }
        match head.framing {
            Framing::Length(left) => self.phase = Phase::Body { left },
            Framing::Chunked => self.phase = Phase::ChunkSize,
            Framing::UntilClose => self.phase = Phase::UntilClose,
        }
        matches!(head.framing, Framing::Length(0))
    }

    fn line(&mut self, bytes: &[u8]) -> Result<(usize, bool), WireError> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.kept.extend_from_slice(bytes);
            if self.kept.len() > MAX_SIZE_LINE_BYTES {
                return Err(WireError::Chunk);
            }
            return Ok((bytes.len(), false));
        };
        self.kept.extend_from_slice(&bytes[..end]);
        let text = self.kept.strip_suffix(b"\r").unwrap_or(&self.kept);
        let (phase, done) = match self.phase {
            Phase::ChunkSize => match chunk_size(text)? {
                0 => (Phase::Trailer, false),
                left => (Phase::ChunkBody { left }, false),
            },
            Phase::ChunkEnd if text.is_empty() => (Phase::ChunkSize, false),
            Phase::ChunkEnd => return Err(WireError::Chunk),
            Phase::Trailer => (Phase::Trailer, text.is_empty()),
            Phase::Head | Phase::Body { .. } | Phase::ChunkBody { .. } | Phase::UntilClose => {
                unreachable!("only line phases read lines")
            }
        };
        self.phase = phase;
        self.kept.clear();
        Ok((end + 1, done))
    }
}

#[derive(Clone, Copy)]
enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

struct Head {
    status: u16,
    close: bool,
    header_length: Option<usize>,
    framing: Framing,
}

fn parse_head(bytes: &[u8]) -> Result<Option<(usize, Head)>, WireError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let used = match response.parse(bytes).map_err(WireError::Head)? {
        httparse::Status::Complete(used) => used,
        httparse::Status::Partial => return Ok(None),
    };
    let mut close = response.version == Some(0);
    let mut framing = Framing::UntilClose;
    let mut header_length = None;
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            if !matches!(framing, Framing::Chunked) {
                framing = Framing::Length(number(header.value)?);
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::Chunked;
        } else if header.name.eq_ignore_ascii_case("connection") {
            close = header.value.eq_ignore_ascii_case(b"close");
        } else if header.name.eq_ignore_ascii_case("inference-header-content-length") {
            header_length = Some(number(header.value)?);
        }
    }
    let status = response.code.unwrap_or(0);
    Ok(Some((used, Head { status, close, header_length, framing })))
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Result<T, WireError> {
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.trim().parse().ok()).ok_or(WireError::Length)
}

fn chunk_size(line: &[u8]) -> Result<u64, WireError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or(line);
    let text = std::str::from_utf8(digits).map_err(|_| WireError::Chunk)?;
    u64::from_str_radix(text.trim(), 16).map_err(|_| WireError::Chunk)
}

fn take(bytes: &[u8], left: u64, sink: &mut impl FnMut(&[u8])) -> usize {
    let used = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    sink(&bytes[..used]);
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 503 No\r\ntransfer-encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\nt: 1\r\n\r\n";

    fn answered(status: u16) -> Answer {
        Answer { status, close: false, header_length: None }
    }

    fn read(bytes: &[u8], piece: usize) -> (Option<Answer>, Vec<u8>) {
        let mut reader = Reader::default();
        let mut body = Vec::new();
        let mut answer = None;
        for part in bytes.chunks(piece) {
            assert_eq!(answer, None, "answered before the end, in pieces of {piece}");
            answer = reader.feed(part, &mut |bytes| body.extend_from_slice(bytes)).unwrap();
        }
        (answer, body)
    }

    #[test]
    fn an_answer_is_the_same_however_it_is_cut() {
        for (bytes, status) in [(PLAIN, 200), (CHUNKED, 503)] {
            for piece in 1..=bytes.len() {
                let (answer, body) = read(bytes, piece);
                assert_eq!(answer, Some(answered(status)), "pieces of {piece}");
                assert_eq!(body, b"hello", "pieces of {piece}");
            }
        }
    }

    #[test]
    fn one_reader_reads_answer_after_answer() {
        let mut reader = Reader::default();
        for _ in 0..3 {
            let answer = reader.feed(PLAIN, &mut |_| ()).unwrap();
            assert_eq!(answer, Some(answered(200)));
            assert!(reader.is_fresh());
        }
    }

    #[test]
    fn a_body_without_a_length_ends_with_the_connection() {
        let mut reader = Reader::default();
        assert_eq!(reader.feed(b"HTTP/1.0 200 OK\r\n\r\nabc", &mut |_| ()).unwrap(), None);
        assert_eq!(reader.closed().unwrap(), Some(Answer { close: true, ..answered(200) }));
    }

    #[test]
    fn connection_closed_within_a_response_is_an_error() {
        let mut reader = Reader::default();
        assert_eq!(reader.closed().unwrap(), None);
        assert_eq!(reader.feed(&PLAIN[..30], &mut |_| ()).unwrap(), None);
        assert!(matches!(reader.closed(), Err(WireError::Cut)));
    }

    #[test]
    fn an_interim_answer_is_skipped() {
        let bytes = [b"HTTP/1.1 100 Continue\r\n\r\n", PLAIN].concat();
        assert_eq!(read(&bytes, 7).0, Some(answered(200)));
    }

    #[test]
    fn what_is_not_an_answer_is_refused() {
        let refused = |bytes: &[u8]| Reader::default().feed(bytes, &mut |_| ()).unwrap_err();
        assert!(matches!(refused(b"SSH-2.0-x\r\n"), WireError::Head(_)));
        let length = b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n";
        assert!(matches!(refused(length), WireError::Length));
        let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
        assert!(matches!(refused(chunk), WireError::Chunk));
        let extra = [PLAIN, b"xy"].concat();
        assert!(matches!(refused(&extra), WireError::Extra { extra: 2 }));
        let long = [b"HTTP/1.1 200 OK\r\na: ".as_slice(), &[b'x'; MAX_HEAD_BYTES]].concat();
        assert!(matches!(refused(&long), WireError::LongHead));
    }
}
