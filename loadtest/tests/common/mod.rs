//! A server that answers as it is told: a thread for each connection, nothing shared but the answer.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What the server does with the request of this number, counted from zero; inference only.
pub(crate) type Behave = dyn Fn(usize) -> Act + Send + Sync;

/// What to do with one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Status(u16),
    /// Answer 200 and close, saying so.
    Close,
    /// Answer 200 and close without a word.
    CloseSilently,
    /// Close without an answer.
    Drop,
    /// Hold this and every later answer this long.
    Stall(Duration),
    /// Never answer.
    Ignore,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

struct Shared {
    behave: Box<Behave>,
    asked: Arc<AtomicUsize>,
    gate: RwLock<()>,
}

impl Server {
    pub(crate) fn start(behave: impl Fn(usize) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let gate = RwLock::new(());
        let shared = Arc::new(Shared { behave: Box::new(behave), asked: Arc::clone(&asked), gate });
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(socket));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn serve(&self, mut socket: TcpStream) {
        socket.set_nodelay(true).unwrap();
        while let Some((path, body)) = read_request(&mut socket) {
            let go_on = if path.ends_with("/infer") {
                self.infer(&mut socket, &body)
            } else {
                answer(&mut socket, 200, "", page(&path)).is_some()
            };
            if !go_on {
                return;
            }
        }
    }

    fn infer(&self, socket: &mut TcpStream, body: &[u8]) -> bool {
        if body.windows(7).any(|part| part == b"\"wrong\"") {
            return answer(socket, 400, "", r#"{"error":"input \"wrong\" is wrong"}"#).is_some();
        }
        let act = (self.behave)(self.asked.fetch_add(1, Ordering::SeqCst));
        if let Act::Stall(length) = act {
            let _closed = self.gate.write().unwrap();
            hold(length);
        }
        let _open = self.gate.read().unwrap();
        match act {
            Act::Status(status) => answer(socket, status, "", "{}").is_some(),
            Act::Stall(_) => answer(socket, 200, "", "{}").is_some(),
            Act::Close => answer(socket, 200, "connection: close\r\n", "{}").is_none(),
            Act::CloseSilently => answer(socket, 200, "", "{}").is_none(),
            Act::Drop => false,
            Act::Ignore => true,
        }
    }
}

fn hold(length: Duration) {
    let never = (Mutex::new(()), Condvar::new());
    let guard = never.0.lock().unwrap();
    let _ = never.1.wait_timeout_while(guard, length, |()| true).unwrap();
}

fn page(path: &str) -> &'static str {
    match path {
        "/v2/repository/index" => r#"[{"name":"m","state":"READY","reason":""}]"#,
        "/v2/models/m/config" => r#"{"parameters":{"slo_ms":40,"slo_target":0.9}}"#,
        _ => {
            r#"{"name":"m","inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}],
                "outputs":[{"name":"y","datatype":"FP32","shape":[-1,4]}]}"#
        }
    }
}

fn answer(socket: &mut TcpStream, status: u16, headers: &str, body: &str) -> Option<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\n\r\n{body}");
    socket.write_all(text.as_bytes()).ok()
}

fn read_request(socket: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok())
                .unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let path = head.split(' ').nth(1)?.to_owned();
                return Some((path, bytes.split_off(end + 4)));
            }
        }
        let got = socket.read(&mut buffer).ok().filter(|got| *got > 0)?;
        bytes.extend_from_slice(&buffer[..got]);
    }
}
