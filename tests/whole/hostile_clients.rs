//! Clients that mean harm, each against a real router: its memory stays within a bound, and whoever
//! behaves is served meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    client::{Body, Client},
    process::peak_mib,
    program::Program,
    secrets::hash,
    setup::Setup,
    wait::{PATIENCE, eventually},
};

const INFER: &str = "POST /v2/models/echo/infer HTTP/1.1\r\nhost: localhost\r\n";
/// How long a peer that does not read may hold up a hostile client.
const BLOCKED: Duration = Duration::from_millis(500);

/// A router under attack, somebody who behaves, and how much memory the router has needed so far.
struct Siege {
    program: Program,
    bystander: Client,
    peak_mib: u64,
}

impl Siege {
    fn begin(limits: &str) -> Self {
        Self::of(Setup::new().router(limits).sleeper("echo", 1, "slo_ms = 20000").gpus(1))
    }

    fn of(setup: Setup) -> Self {
        let program = setup.start();
        let bystander = program.client();
        let mut siege = Self { peak_mib: peak_mib(program.pid()), program, bystander };
        siege.serves();
        siege
    }

    fn door(&self) -> SocketAddr {
        self.program.inference()
    }

    #[track_caller]
    fn serves(&mut self) {
        let reply = self.bystander.infer("echo", &Body::row());
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// The same, and the router has needed at most `bound_mib` more than before.
    #[track_caller]
    fn held(&mut self, bound_mib: u64) {
        self.serves();
        let grown = peak_mib(self.program.pid()).saturating_sub(self.peak_mib);
        assert!(grown <= bound_mib, "grew by {grown} MiB, the bound is {bound_mib}");
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(BLOCKED)).unwrap();
    stream
}

/// Writes until the router has had enough of it; returns how many times `piece` was taken.
fn pour(stream: &mut TcpStream, piece: &[u8], most: usize) -> usize {
    (0..most).find(|_| stream.write_all(piece).is_err()).unwrap_or(most)
}

/// What the router says before it closes or resets.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let (mut said, mut some) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut some) {
            Ok(0) => return said,
            Ok(count) => said.extend_from_slice(&some[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it is not hung up on"),
            Err(_) => return said,
        }
    }
}

/// Lets this process, and the router it starts, have as many files as the system allows it.
fn many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn heads_that_come_by_the_byte_are_hung_up_on() {
    let mut siege = Siege::begin("header_timeout_ms = 3000");
    let mut slow: Vec<TcpStream> = (0..300).map(|_| connect(siege.door())).collect();
    for byte in INFER.as_bytes().chunks(20) {
        for stream in &mut slow {
            // One that is hung up on already says so when it is read.
            let _ = stream.write_all(byte);
        }
        siege.serves();
    }
    assert!(slow.iter_mut().all(|stream| rest(stream).is_empty()));
    siege.held(32);
}

#[test]
fn bodies_that_come_by_the_byte_are_408() {
    let mut siege = Siege::begin("body_timeout_ms = 1000");
    let mut slow: Vec<TcpStream> = (0..300).map(|_| connect(siege.door())).collect();
    for stream in &mut slow {
        write!(stream, "{INFER}content-length: 1000000\r\n\r\n{{").unwrap();
    }
    siege.serves();
    for stream in &mut slow {
        let said = rest(stream);
        assert!(said.starts_with(b"HTTP/1.1 408"), "{}", said.escape_ascii());
    }
    siege.held(32);
}

#[test]
fn bodies_without_end_are_413_where_they_become_too_long() {
    let mut siege = Siege::begin("max_body_bytes = 1048576\nmax_decompressed_bytes = 1048576");
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..8 {
        let mut stream = connect(siege.door());
        write!(stream, "{INFER}transfer-encoding: chunked\r\n\r\n").unwrap();
        let taken = pour(&mut stream, &chunk, 4_096);
        assert!(taken < 4_096, "256 MiB were taken");
        siege.serves();
    }
    siege.held(32);
}

#[test]
fn bodies_that_are_too_many_together_are_503() {
    let limits = "max_body_bytes = 8388608\nmax_decompressed_bytes = 8388608\n\
                  max_buffered_bytes = 33554432";
    let mut siege = Siege::begin(limits);
    let most = vec![b' '; 8_388_607];
    let mut waiting: Vec<TcpStream> = Vec::new();
    let refused = (0..40).any(|_| {
        let mut stream = connect(siege.door());
        write!(stream, "{INFER}content-length: 8388608\r\n\r\n").unwrap();
        // All but the last byte: it is held, and never answered.
        let whole = stream.write_all(&most).is_ok();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut start = [0; 12];
        let told = stream.read_exact(&mut start).is_ok() && start == *b"HTTP/1.1 503";
        waiting.push(stream);
        told || !whole
    });
    assert!(refused, "320 MiB are held where 32 may be");
    drop(waiting);
    eventually("there is room again", || {
        (Client::connect(siege.door()).infer("echo", &Body::row()).status == 200).then_some(())
    });
    siege.held(96);
}

#[test]
fn bombs_are_413_and_many_at_once_are_no_worse() {
    let limits = "max_decompressed_bytes = 67108864\nmax_buffered_bytes = 134217728";
    let mut siege = Siege::begin(limits);
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    (0..256).for_each(|_| bomb.write_all(&zeros).unwrap());
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 300_000, "{} bytes", bomb.len());
    let mut throwers: Vec<Client> = (0..24).map(|_| siege.program.client()).collect();
    for thrower in &mut throwers {
        let packed = [("content-encoding", "gzip")];
        thrower.send("POST", "/v2/models/echo/infer", &packed, &bomb);
    }
    for thrower in &mut throwers {
        let status = thrower.receive().status;
        assert!(matches!(status, 413 | 503), "{status}");
    }
    // Buffers double as they grow, and what is freed is not at once given back: four times what may be
    // held, and a third of what the bombs would take each by itself.
    siege.held(512);
}

#[test]
fn thousands_of_idle_connections_do_not_block_others() {
    many_files();
    let mut siege = Siege::begin("max_connections = 2000\nheader_timeout_ms = 600000");
    let idle: Vec<TcpStream> = (0..3_000).map(|_| connect(siege.door())).collect();
    siege.serves();
    let mut late = connect(siege.door());
    late.write_all(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let told = rest(&mut late);
    assert!(told.is_empty() || told.starts_with(b"HTTP/1.1 503"), "{}", told.escape_ascii());
    siege.held(96);
    drop(idle);
    eventually("there is room again", || {
        let mut stream = connect(siege.door());
        write!(stream, "GET /v2 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").ok()?;
        rest(&mut stream).starts_with(b"HTTP/1.1 200").then_some(())
    });
}

#[test]
fn requests_sent_ahead_are_answered_in_turn_and_not_piled_up() {
    let mut siege = Siege::begin("");
    let mut eager = connect(siege.door());
    let one = b"GET /v2/models/echo HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let sent = pour(&mut eager, &one.repeat(100), 10_000) * 100;
    assert!(sent < 1_000_000, "all were taken though nobody reads");
    siege.held(32);
    eager.shutdown(Shutdown::Both).unwrap();
    siege.serves();
}

#[test]
fn heads_that_are_too_long_or_of_too_many_lines_are_431() {
    let mut siege = Siege::begin("");
    let long = vec![b'x'; 1 << 20];
    let many = b"x: y\r\n".repeat(10_000);
    for head in [long, many] {
        for _ in 0..8 {
            let mut stream = connect(siege.door());
            write!(stream, "{INFER}x-long: ").unwrap();
            pour(&mut stream, &head, 64);
            let said = rest(&mut stream);
            let told = said.is_empty() || said.starts_with(b"HTTP/1.1 431");
            assert!(told, "{}", said.escape_ascii());
        }
        siege.serves();
    }
    siege.held(32);
}

#[test]
fn what_is_not_http_is_400_or_hung_up_on() {
    let mut siege = Siege::begin("header_timeout_ms = 3000");
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\0\0\0\0\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v2 HTTP/9.9\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"POST /v2/models/echo/infer HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /v2/models/echo/infer HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{",
        b"POST /v2/models/echo/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v2/models/echo/infer HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, but long enough",
    ] {
        let mut stream = connect(siege.door());
        stream.write_all(bytes).unwrap();
        let said = rest(&mut stream);
        let http1 = said.is_empty() || said.starts_with(b"HTTP/1.1 4");
        let http2 = bytes.starts_with(b"PRI") && said.get(3) == Some(&SETTINGS);
        assert!(http1 || http2, "{} gets {}", bytes.escape_ascii(), said.escape_ascii());
    }
    siege.held(16);
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `POST http /v2/models/echo/infer` of `localhost`, as HPACK writes it.
const ASKS: &[u8] = b"\x83\x86\x04\x15/v2/models/echo/infer\x01\x09localhost";
/// `GET http /v2/models/echo` of `localhost`.
const READS: &[u8] = b"\x82\x86\x04\x0f/v2/models/echo\x01\x09localhost";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

fn http2(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    let settings = frame(SETTINGS, 0, 0, b"");
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()).unwrap();
    stream
}

#[test]
fn http2_streams_reset_at_once_leave_nothing_behind() {
    let mut siege = Siege::begin("");
    for _ in 0..4 {
        let mut stream = http2(siege.door());
        for number in 0..50_000 {
            let id = number * 2 + 1;
            let asks = frame(HEADERS, END_HEADERS, id, ASKS);
            let resets = frame(RESET, 0, id, &8_u32.to_be_bytes());
            if stream.write_all(&[asks, resets].concat()).is_err() {
                break;
            }
        }
        siege.serves();
    }
    siege.held(64);
}

#[test]
fn http2_frame_floods_are_throttled_or_disconnected() {
    let mut siege = Siege::begin("");
    let ping = frame(PING, 0, 0, &[0; 8]);
    let setting = frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\xff\xff");
    let empty = frame(DATA, 0, 1, b"");
    for flood in [ping, setting, empty] {
        let mut stream = http2(siege.door());
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, ASKS)).unwrap();
        pour(&mut stream, &flood.repeat(100), 5_000);
        siege.serves();
    }
    siege.held(64);
}

#[test]
fn http2_unsent_responses_are_bounded_by_the_stream_limit() {
    let mut siege = Siege::begin("");
    for _ in 0..4 {
        let mut stream = http2(siege.door());
        // The first window of every stream: nothing.
        stream.write_all(&frame(SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x00")).unwrap();
        let asks = |number: u32| frame(HEADERS, END_HEADERS | END_STREAM, number * 2 + 1, READS);
        let refused = (0..20_000).find(|number| stream.write_all(&asks(*number)).is_err());
        siege.serves();
        assert!(refused.is_some() || reset_streams(&mut stream) > 10_000, "all were taken");
    }
    siege.held(64);
}

/// How many streams the peer has reset, as far as it has said anything.
fn reset_streams(stream: &mut TcpStream) -> usize {
    stream.set_read_timeout(Some(BLOCKED)).unwrap();
    let (mut said, mut some) = (Vec::new(), [0; 1 << 16]);
    while let Ok(count @ 1..) = stream.read(&mut some) {
        said.extend_from_slice(&some[..count]);
    }
    let (mut resets, mut at) = (0, said.as_slice());
    while let Some((head, rest)) = at.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        resets += usize::from(head[3] == RESET);
        at = rest.get(length..).unwrap_or_default();
    }
    resets
}

#[test]
fn http2_heads_without_end_are_cut_off() {
    let mut siege = Siege::begin("");
    let mut stream = http2(siege.door());
    stream.write_all(&frame(HEADERS, 0, 1, ASKS)).unwrap();
    // A field of one letter and a value of 16,000.
    let field = [b"\x00\x01x\x7f\x81\x7c".as_slice(), &[b'y'; 16_000]].concat();
    let more = frame(CONTINUATION, 0, 1, &field);
    let taken = pour(&mut stream, &more, 4_096);
    assert!(taken < 4_096, "64 MiB of one head were taken");
    siege.held(32);
}

#[test]
fn a_tenant_that_floods_is_429_and_the_others_are_served() {
    let tenant = |name: &str, more: &str| {
        format!("[[tenant]]\nname = \"{name}\"\nkey_sha256 = \"{}\"\n{more}\n", hash(name))
    };
    let setup = Setup::new()
        .sleeper("echo", 1, "slo_ms = 20000")
        .tables(&tenant("flood", "rate_rps = 5"))
        .tables(&tenant("calm", ""))
        .gpus(1);
    let program = setup.start();
    let peak = peak_mib(program.pid());
    let mut floods: Vec<Client> = (0..50).map(|_| program.client()).collect();
    let mut refused = 0;
    for _ in 0..20 {
        let flood = Body::row().with("authorization", "Bearer flood");
        floods.iter_mut().for_each(|client| client.send_infer("echo", &flood));
        let calm = Body::row().with("authorization", "Bearer calm");
        assert_eq!(program.client().infer("echo", &calm).status, 200);
        let statuses = floods.iter_mut().map(|client| client.receive().status);
        refused += statuses.filter(|status| *status == 429).count();
    }
    assert!(refused > 500, "only {refused} of 1000 were refused at 5 a second");
    let grown = peak_mib(program.pid()).saturating_sub(peak);
    assert!(grown <= 32, "grew by {grown} MiB");
}
