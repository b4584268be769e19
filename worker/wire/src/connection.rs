//! One connection that is asked and answers, kept open between questions.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    reader::{Reader, WireError},
    stream::{Secure, Stream},
};

/// Most characters of a server's own words that are repeated.
const MAX_QUOTE: usize = 300;
const READ_BYTES: usize = 64 << 10;
/// The least a socket can be told to wait: zero would mean for ever.
const LEAST_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Page {
    pub status: u16,
    /// `Inference-Header-Content-Length`, where the answer has one.
    pub header_length: Option<usize>,
    pub body: Vec<u8>,
}

impl Page {
    /// The server's own words: its `error` if it sent one, else the start of the body.
    pub fn words(&self) -> String {
        let error = serde_json::from_slice::<Value>(&self.body).ok();
        let error = error.as_ref().and_then(|value| value.get("error")?.as_str());
        let words = error.map_or_else(|| String::from_utf8_lossy(&self.body).into(), str::to_owned);
        words.chars().take(MAX_QUOTE).collect()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error("no answer: {0}")]
    Broken(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the answer is longer than {limit} bytes")]
    TooLong { limit: usize },
}

/// A connection to one server, made when it is first needed and again after it broke.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    patience: Duration,
    max_body: usize,
    secure: Option<Secure>,
    stream: Option<Stream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Asks `address`, waiting at most `patience` for each whole answer of at most `max_body` bytes.
    pub fn new(address: SocketAddr, patience: Duration, max_body: usize) -> Self {
        let buffer = vec![0; READ_BYTES];
        Self { address, patience, max_body, secure: None, stream: None, buffer }
    }

    /// The same over TLS, if there is any.
    pub fn over(self, secure: Option<Secure>) -> Self {
        Self { secure, ..self }
    }

    /// Sends one whole request, given in parts, and reads the answer whatever its status.
    ///
    /// A server may close a quiet connection at any moment; a request that was met by that, and by
    /// nothing else, is sent once more on a new one.
    pub fn send(&mut self, request: &[&[u8]]) -> Result<Page, SendError> {
        if let Some(stream) = self.stream.take()
            && let Some(page) = self.exchange(stream, request).transpose()
        {
            return page;
        }
        let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
        stream.set_nodelay(true)?;
        let stream = Stream::new(stream, self.secure.as_ref())?;
        let page = self.exchange(stream, request)?;
        page.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset).into())
    }

    fn exchange(
        &mut self,
        mut stream: Stream,
        request: &[&[u8]],
    ) -> Result<Option<Page>, SendError> {
        let until = now() + self.patience;
        stream.tcp().set_read_timeout(Some(self.patience))?;
        stream.tcp().set_write_timeout(Some(self.patience))?;
        match write_all(&mut stream, request) {
            Ok(()) => {}
            Err(error) if is_hang_up(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut reader = Reader::default();
        let (mut body, mut any) = (Vec::new(), false);
        loop {
            let left = until.saturating_duration_since(now()).max(LEAST_WAIT);
            stream.tcp().set_read_timeout(Some(left))?;
            let got = match stream.read(&mut self.buffer) {
                Ok(got) => got,
                Err(error) if !any && is_hang_up(&error) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if got == 0 && !any {
                return Ok(None);
            }
            any = true;
            let limit = self.max_body;
            let mut sink = |bytes: &[u8]| {
                // One byte more than allowed is enough to know.
                let room = (limit + 1).saturating_sub(body.len());
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            };
            let answer = match got {
                0 => reader.closed()?,
                got => reader.feed(&self.buffer[..got], &mut sink)?,
            };
            if body.len() > limit {
                return Err(SendError::TooLong { limit });
            }
            if let Some(answer) = answer {
                self.stream = (!answer.close).then_some(stream);
                let (status, header_length) = (answer.status, answer.header_length);
                return Ok(Some(Page { status, header_length, body }));
            }
            if got == 0 {
                return Err(WireError::Cut.into());
            }
            if until <= now() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
        }
    }
}

fn write_all(stream: &mut Stream, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> =
        parts.iter().filter(|part| !part.is_empty()).map(|part| IoSlice::new(part)).collect();
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        match stream.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.flush()
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "a blocking socket waits by the machine's clock; there is no tokio clock to pause"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        thread::{self, JoinHandle},
    };

    use super::*;

    const ASK: &[&[u8]] = &[b"GET / HTTP/1.1\r\n", b"host: a\r\n\r\n"];
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    const LONG: Duration = Duration::from_secs(60);

    /// Accepts a connection per script, and sends each of its answers after a request has come.
    fn server(scripts: Vec<Vec<&'static str>>) -> (SocketAddr, JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let mut asked = 0;
            for script in scripts {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in script {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        request.push(byte[0]);
                    }
                    asked += 1;
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
            asked
        };
        (address, thread::spawn(serve))
    }

    #[test]
    fn one_connection_is_used_again_until_the_server_closes_it() {
        let (address, server) = server(vec![vec![OK, OK], vec![OK]]);
        let mut connection = Connection::new(address, LONG, 100);
        for _ in 0..3 {
            let page = connection.send(ASK).unwrap();
            assert_eq!((page.status, page.body.as_slice()), (200, b"hi".as_slice()));
        }
        assert_eq!(server.join().unwrap(), 3);
    }

    #[test]
    fn a_connection_that_ends_inside_an_answer_is_not_asked_again() {
        let cut = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi";
        let (address, server) = server(vec![vec![OK, cut]]);
        let mut connection = Connection::new(address, LONG, 100);
        connection.send(ASK).unwrap();
        let error = connection.send(ASK).unwrap_err();
        assert!(matches!(error, SendError::Wire(WireError::Cut)), "{error}");
        assert_eq!(server.join().unwrap(), 2);
    }

    #[test]
    fn a_new_connection_that_answers_nothing_is_an_error() {
        let (address, server) = server(vec![vec![""]]);
        let error = Connection::new(address, LONG, 100).send(ASK).unwrap_err();
        assert!(matches!(error, SendError::Broken(_)), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn response_over_the_limit_is_rejected_and_at_it_accepted() {
        for (limit, fits) in [(2, true), (1, false)] {
            let (address, server) = server(vec![vec![OK]]);
            let sent = Connection::new(address, LONG, limit).send(ASK);
            assert_eq!(sent.is_ok(), fits, "{sent:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_silent_server_is_waited_for_no_longer_than_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let error = Connection::new(address, LEAST_WAIT, 100).send(ASK).unwrap_err();
        assert!(matches!(error, SendError::Broken(_)), "{error}");
    }

    #[test]
    fn the_length_of_a_binary_answers_header_is_read() {
        let binary =
            "HTTP/1.1 200 OK\r\ninference-header-content-length: 1\r\ncontent-length: 2\r\n\r\nhi";
        let (address, server) = server(vec![vec![binary]]);
        let page = Connection::new(address, LONG, 100).send(ASK).unwrap();
        assert_eq!(page.header_length, Some(1));
        server.join().unwrap();
    }

    #[test]
    fn a_servers_words_are_its_error_or_else_its_body() {
        let page = |body: &str| Page { status: 400, header_length: None, body: body.into() };
        assert_eq!(page(r#"{"error":"no such model"}"#).words(), "no such model");
        assert_eq!(page("plain").words(), "plain");
        assert_eq!(page(&"x".repeat(999)).words().len(), MAX_QUOTE);
    }
}
