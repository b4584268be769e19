//! Relays that lose, hold, double, swap, spoil and cut what passes through them, by seed.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;
use simgpu::random::Random;

/// How long a line is held that is late.
const LATE: Duration = Duration::from_millis(40);

/// What was seen and done, and whether mischief is allowed.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    wild: AtomicBool,
    spoiled: AtomicU64,
    /// The generations a worker's reports had, in the order they were sent.
    generations: Mutex<Vec<u64>>,
    open: Mutex<Vec<TcpStream>>,
}

impl Mischief {
    /// Lets all pass from now on, or not.
    pub(crate) fn be_wild(&self, wild: bool) {
        self.wild.store(wild, Ordering::Relaxed);
    }

    pub(crate) fn spoiled(&self) -> u64 {
        self.spoiled.load(Ordering::Relaxed)
    }
}

/// Passes on what comes from one end to the other, in a thread of its own.
type Pump = fn(&TcpStream, &TcpStream, u64, &Arc<Mischief>);

/// A relay, which passes everything on until it is told to be wild.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    mischief: Arc<Mischief>,
}

impl Relay {
    /// One before `upstream`, which is `host:port`, of messages that are lines.
    pub(crate) fn of_lines(upstream: &str, seed: u64) -> Self {
        Self::start(upstream, seed, pump_lines)
    }

    /// The same of bytes, which are late, cut off, or never come.
    pub(crate) fn of_bytes(upstream: &str, seed: u64) -> Self {
        Self::start(upstream, seed, pump_bytes)
    }

    fn start(upstream: &str, seed: u64, pump: Pump) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mischief = Arc::new(Mischief::default());
        let (upstream, all) = (upstream.to_owned(), Arc::clone(&mischief));
        // It ends with the process: accepting blocks.
        thread::spawn(move || {
            for (number, near) in (0..).zip(listener.incoming().map_while(Result::ok)) {
                let Ok(far) = TcpStream::connect(&upstream) else { continue };
                let seed = seed.wrapping_mul(1_000_003).wrapping_add(number * 2);
                pump(&near, &far, seed, &all);
                pump(&far, &near, seed + 1, &all);
                all.open.lock().unwrap().extend([near, far]);
            }
        });
        Self { address, mischief }
    }

    pub(crate) fn be_wild(&self, wild: bool) {
        self.mischief.be_wild(wild);
    }

    /// Cuts every connection there is.
    pub(crate) fn cut(&self) {
        for stream in self.mischief.open.lock().unwrap().drain(..) {
            stream.cut();
        }
    }

    pub(crate) fn spoiled(&self) -> u64 {
        self.mischief.spoiled()
    }

    pub(crate) fn generations(&self) -> Vec<u64> {
        self.mischief.generations.lock().unwrap().clone()
    }
}

pub(crate) trait Wire: Read + Write + Send + 'static {
    fn another(&self) -> Self;
    fn cut(&self);
}

impl Wire for TcpStream {
    fn another(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Wire for UnixStream {
    fn another(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn cut(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// Passes lines on until either end is gone.
pub(crate) fn pump_lines<W: Wire>(from: &W, to: &W, seed: u64, mischief: &Arc<Mischief>) {
    let mut lines = BufReader::new(from.another());
    let (mut to, shared) = (to.another(), Arc::clone(mischief));
    thread::spawn(move || {
        let (mut random, mut held, mut line) = (Random::new(seed), Vec::new(), Vec::new());
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            note(&line, &shared);
            let wild = shared.wild.load(Ordering::Relaxed);
            let Some(said) = mistreat(&mut line, &mut held, wild, &mut random) else { break };
            if said != line {
                shared.spoiled.fetch_add(1, Ordering::Relaxed);
            }
            if to.write_all(&said).is_err() {
                break;
            }
            line.clear();
        }
        lines.get_ref().cut();
        to.cut();
    });
}

/// What is said in place of `line`; nothing if the connection is cut.
#[expect(clippy::disallowed_methods, reason = "being late is the point")]
fn mistreat(
    line: &mut Vec<u8>,
    held: &mut Vec<u8>,
    wild: bool,
    random: &mut Random,
) -> Option<Vec<u8>> {
    let after = std::mem::take(held);
    let dice = if wild { random.below(100) } else { 100 };
    let said = match dice {
        // Lost.
        0..10 => after,
        // Twice.
        10..20 => [&line[..], &line[..], &after[..]].concat(),
        // After the next.
        20..30 => {
            held.clone_from(line);
            after
        }
        30..38 => {
            thread::sleep(LATE);
            [&line[..], &after[..]].concat()
        }
        // Torn, or no message at all; the other side hangs up.
        38..41 => [&line[..line.len() / 2], b"\n"].concat(),
        41..43 => return None,
        _ => [&line[..], &after[..]].concat(),
    };
    Some(said)
}

#[expect(clippy::disallowed_methods, reason = "being late is the point")]
fn pump_bytes(from: &TcpStream, to: &TcpStream, seed: u64, shared: &Arc<Mischief>) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let (mut random, mut room, mut deaf) = (Random::new(seed), vec![0; 64 << 10], false);
        while let Ok(count @ 1..) = from.read(&mut room) {
            let wild = shared.wild.load(Ordering::Relaxed);
            let dice = if wild { random.below(100) } else { 100 };
            deaf |= dice < 4;
            if deaf || dice < 20 {
                shared.spoiled.fetch_add(1, Ordering::Relaxed);
            }
            let passes = match dice {
                _ if deaf => 0,
                4..8 => count / 2,
                8..20 => {
                    thread::sleep(LATE * 4);
                    count
                }
                _ => count,
            };
            let cut = !deaf && passes < count;
            if to.write_all(&room[..passes]).is_err() || cut {
                break;
            }
        }
        from.cut();
        to.cut();
    });
}

fn note(line: &[u8], shared: &Mischief) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    if let Some(generation) = message["report"]["generation"].as_u64() {
        shared.generations.lock().unwrap().push(generation);
    }
}
