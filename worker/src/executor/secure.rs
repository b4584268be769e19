//! TLS on a blocking stream that one thread reads while others write.
//!
//! The state of the connection is shared, the waiting is not: whoever reads waits for the socket
//! without holding it, and whoever writes holds only the right to write. So a router that is slow to
//! take a reply does not keep its next batch from being read.

use std::{
    io::{self, IoSlice, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use parking_lot::Mutex;
use tls::{ServerConfig, ServerConnection};

/// Sealed bytes read at once: a record and some more.
const READ: usize = 32 << 10;

/// A connection that is, or is about to be, encrypted; reading makes the handshake.
pub(super) struct Secure {
    tcp: TcpStream,
    state: Mutex<ServerConnection>,
    /// Sealed bytes that were read and not looked at yet.
    incoming: Mutex<Incoming>,
    /// Held from sealing bytes to having written them, so that they are written in order.
    writing: Mutex<()>,
}

struct Incoming {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Secure {
    /// Over `tcp`, as who `config` says.
    pub(super) fn new(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let state = ServerConnection::new(config).map_err(io::Error::other)?;
        let incoming = Incoming { bytes: vec![0; READ].into(), from: 0, to: 0 };
        Ok(Self {
            tcp,
            state: Mutex::new(state),
            incoming: Mutex::new(incoming),
            writing: Mutex::new(()),
        })
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut incoming = self.incoming.lock();
        loop {
            match self.state.lock().reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            if incoming.from == incoming.to {
                let count = (&self.tcp).read(&mut incoming.bytes)?;
                (incoming.from, incoming.to) = (0, count);
            }
            self.open(&mut incoming)?;
        }
    }

    /// Opens some of what was read, and sends what that calls for.
    fn open(&self, incoming: &mut Incoming) -> io::Result<()> {
        let mut state = self.state.lock();
        let mut sealed = &incoming.bytes[incoming.from..incoming.to];
        state.read_tls(&mut sealed)?;
        incoming.from = incoming.to - sealed.len();
        let opened = state.process_new_packets();
        let answers = state.wants_write();
        drop(state);
        if answers {
            self.flush()?;
        }
        opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(())
    }

    /// Sends what the protocol itself has to say, such as the handshake.
    fn flush(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let sealed = seal(&mut self.state.lock())?;
        (&self.tcp).write_all(&sealed)
    }

    pub(super) fn write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let _writing = self.writing.lock();
        let mut state = self.state.lock();
        let taken = state.writer().write_vectored(slices)?;
        let sealed = seal(&mut state)?;
        drop(state);
        (&self.tcp).write_all(&sealed)?;
        Ok(taken)
    }
}

fn seal(state: &mut ServerConnection) -> io::Result<Vec<u8>> {
    let mut sealed = Vec::new();
    while state.wants_write() {
        state.write_tls(&mut sealed)?;
    }
    Ok(sealed)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Shutdown, TcpListener},
        path::Path,
        thread,
    };

    use tls::{ClientConnection, Identity, StreamOwned};

    use super::*;

    fn made(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/certificates").join(name)
    }

    fn pair() -> (StreamOwned<ClientConnection, TcpStream>, Secure) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let identity = Identity { cert: made("worker.pem"), key: made("worker.key") };
        let tcp = TcpStream::connect(address).unwrap();
        let server = tls::server(&identity, None, &[]).unwrap();
        let secure = Secure::new(listener.accept().unwrap().0, server).unwrap();
        let config = tls::client(Some(&made("ca.pem")), None).unwrap();
        let name = tls::name_of(&address.to_string()).unwrap();
        (StreamOwned::new(ClientConnection::new(config, name).unwrap(), tcp), secure)
    }

    fn fill(from: &Secure, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            let count = from.read(&mut buffer[filled..]).unwrap();
            assert!(count > 0, "it ended after {filled} bytes");
            filled += count;
        }
    }

    fn send(to: &Secure, bytes: &[u8]) {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += to.write_vectored(&[IoSlice::new(&bytes[sent..])]).unwrap();
        }
    }

    #[test]
    fn large_frames_cross_both_ways_at_once_and_arrive_whole() {
        const SIZE: usize = 3 << 20;
        let pattern = |salt: usize| -> Vec<u8> {
            (0..SIZE).map(|index| (index * 31 + index / 977 + salt) as u8).collect()
        };
        let (asked, answered) = (pattern(1), pattern(2));
        let (mut client, server) = pair();
        let (to_server, to_client) = (asked.clone(), answered.clone());
        let calling = thread::spawn(move || {
            client.write_all(&to_server).unwrap();
            client.flush().unwrap();
            let mut got = vec![0; SIZE];
            client.read_exact(&mut got).unwrap();
            got
        });
        thread::scope(|scope| {
            let mut first = [0; 1];
            fill(&server, &mut first);
            // The answer begins while most of what was asked is still to be read.
            scope.spawn(|| send(&server, &to_client));
            let mut rest = vec![0; SIZE - 1];
            fill(&server, &mut rest);
            assert!([&first[..], &rest].concat() == asked, "what was asked is not what arrived");
        });
        assert!(calling.join().unwrap() == answered, "what was answered is not what arrived");
    }

    #[test]
    fn whoever_speaks_plainly_is_not_understood() {
        let (client, server) = pair();
        let mut plain = client.sock;
        plain.write_all(b"SLUI 0123456789 0123456789 0123456789 0123456789").unwrap();
        let error = server.read(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }

    #[test]
    fn a_connection_that_ends_without_a_word_is_an_end() {
        let (mut client, server) = pair();
        let talking = thread::spawn(move || {
            client.write_all(b"x").unwrap();
            client.flush().unwrap();
            client.sock.shutdown(Shutdown::Write).unwrap();
            client
        });
        fill(&server, &mut [0; 1]);
        let _client = talking.join().unwrap();
        let end = server.read(&mut [0; 16]).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
    }
}
