//! Requests, each tried at one member after another.

use std::{
    io,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use wire::{Reader, WireError};

use crate::{
    message::{self, Lease, Listed, Outcome, Txn},
    read::{self, MAX_ANSWER, words},
    watch::Watch,
};

/// The most quiet connections that are kept.
const MAX_QUIET: usize = 4;
/// Keys listed at once.
const PAGE: u64 = 500;
/// The most keys of one listing; routers write some ten thousand at most.
const MOST_LISTED: usize = 100_000;

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No member answered; or what it answered is of no use.
    #[error("no member of etcd answers; {member} last: {why}")]
    Unreachable { member: String, why: String },
    /// It understood and will not.
    #[error("etcd refuses: {words}")]
    Refused { words: String },
}

/// Requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    pub answered: u64,
    /// Not answered, or refused.
    pub failed: u64,
    /// Spent waiting for those that were answered.
    pub waited: Duration,
}

/// One etcd, of one member or several.
#[derive(Debug)]
pub struct Client {
    members: Vec<String>,
    patience: Duration,
    /// Which member answered last.
    at: AtomicUsize,
    quiet: Mutex<Vec<(usize, TcpStream)>>,
    answered: AtomicU64,
    failed: AtomicU64,
    waited_us: AtomicU64,
}

enum Failure {
    /// Another member may do better.
    Elsewhere(String),
    Refused(String),
}

impl Client {
    /// Asks `members`, each `host:port` and at least one, and gives each `patience` to answer.
    pub fn new(members: Vec<String>, patience: Duration) -> Self {
        Self {
            members,
            patience,
            at: AtomicUsize::new(0),
            quiet: Mutex::default(),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
        }
    }

    /// Requests since the start; those of watches are not among them.
    pub fn counts(&self) -> Counts {
        Counts {
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            waited: Duration::from_micros(self.waited_us.load(Ordering::Relaxed)),
        }
    }

    /// Every key under `prefix`, all as of one revision.
    pub async fn list(&self, prefix: &str) -> Result<Listed, EtcdError> {
        let mut listed = Listed::default();
        let mut from = prefix.as_bytes().to_vec();
        loop {
            let body = message::range(&from, prefix, listed.revision, PAGE);
            let page = self.ask("/v3/kv/range", &body, read::page).await?;
            if listed.revision == 0 {
                listed.revision = page.revision;
            }
            listed.pairs.extend(page.pairs);
            let Some(rest) = page.rest else { return Ok(listed) };
            if rest <= from {
                return Err(EtcdError::Refused { words: "the listing goes back".to_owned() });
            }
            if listed.pairs.len() > MOST_LISTED {
                return Err(EtcdError::Refused { words: format!("more than {MOST_LISTED} keys") });
            }
            from = rest;
        }
    }

    /// A new lease of at least `ttl`.
    pub async fn grant(&self, ttl: Duration) -> Result<Lease, EtcdError> {
        let body = serde_json::json!({"TTL": ttl.as_secs().max(1).to_string()});
        self.ask("/v3/lease/grant", &body, read::lease).await
    }

    /// Renews a lease; how long it lasts from now, or nothing if it is gone.
    pub async fn renew(&self, lease: u64) -> Result<Option<Duration>, EtcdError> {
        let body = serde_json::json!({"ID": lease.to_string()});
        self.ask("/v3/lease/keepalive", &body, read::renewed).await
    }

    /// Ends a lease, and every key bound to it.
    pub async fn revoke(&self, lease: u64) -> Result<(), EtcdError> {
        let body = serde_json::json!({"ID": lease.to_string()});
        self.ask("/v3/lease/revoke", &body, read::done).await
    }

    /// Carries out `txn`, if its condition holds.
    pub async fn transact(&self, txn: &Txn) -> Result<Outcome, EtcdError> {
        self.ask("/v3/kv/txn", &txn.body(), read::outcome).await
    }

    /// Every change under `prefix` from revision `from` on.
    pub async fn watch(&self, prefix: &str, from: u64) -> Result<Watch, EtcdError> {
        let request = request("/v3/watch", &message::watch(prefix, from));
        let mut last = None;
        for member in self.turns() {
            let opened = async {
                let mut stream = TcpStream::connect(&self.members[member]).await?;
                stream.set_nodelay(true)?;
                stream.write_all(&request).await?;
                io::Result::Ok(stream)
            };
            match timeout(self.patience, opened).await {
                Ok(Ok(stream)) => {
                    return Ok(Watch::new(stream, self.members[member].clone(), from));
                }
                Ok(Err(error)) => last = Some((member, error.to_string())),
                Err(_) => last = Some((member, format!("silent for {:?}", self.patience))),
            }
        }
        Err(self.unreachable(last))
    }

    /// The answer of the first member that has one that `read` understands.
    async fn ask<T>(
        &self,
        path: &str,
        body: &Value,
        read: fn(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<T, EtcdError> {
        let began = Instant::now();
        let request = request(path, body);
        let mut last = None;
        for member in self.turns() {
            let why = match timeout(self.patience, self.exchange(member, &request)).await {
                Ok(Ok(answer)) => match read(&answer) {
                    Ok(understood) => {
                        self.at.store(member, Ordering::Relaxed);
                        self.answered.fetch_add(1, Ordering::Relaxed);
                        let waited = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                        self.waited_us.fetch_add(waited, Ordering::Relaxed);
                        return Ok(understood);
                    }
                    Err(error) => format!("what it says is not understood: {error}"),
                },
                Ok(Err(Failure::Refused(words))) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    return Err(EtcdError::Refused { words });
                }
                Ok(Err(Failure::Elsewhere(why))) => why,
                Err(_) => format!("silent for {:?}", self.patience),
            };
            last = Some((member, why));
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        Err(self.unreachable(last))
    }

    /// Every member once, beginning with the one that answered last.
    fn turns(&self) -> impl Iterator<Item = usize> + use<> {
        let (at, members) = (self.at.load(Ordering::Relaxed), self.members.len());
        (0..members).map(move |turn| (at + turn) % members)
    }

    fn unreachable(&self, last: Option<(usize, String)>) -> EtcdError {
        let (member, why) = last.unwrap_or_else(|| (0, "there is none".to_owned()));
        let member = self.members.get(member).cloned().unwrap_or_default();
        EtcdError::Unreachable { member, why }
    }

    async fn exchange(&self, member: usize, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let quiet = {
            let mut quiet = self.quiet.lock();
            let mine = quiet.iter().position(|(whose, _)| *whose == member);
            mine.map(|index| quiet.swap_remove(index).1)
        };
        if let Some(stream) = quiet
            && let Some(done) = self.converse(member, stream, request).await?
        {
            return Ok(done);
        }
        let stream =
            TcpStream::connect(&self.members[member]).await.map_err(|error| broken(&error))?;
        stream.set_nodelay(true).map_err(|error| broken(&error))?;
        let done = self.converse(member, stream, request).await?;
        done.ok_or_else(|| Failure::Elsewhere("it hung up".to_owned()))
    }

    /// The body of the answer; nothing if the connection ended without a byte of one.
    async fn converse(
        &self,
        member: usize,
        mut stream: TcpStream,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, Failure> {
        if stream.write_all(request).await.is_err() {
            return Ok(None);
        }
        let (mut reader, mut body) = (Reader::default(), Vec::new());
        let mut buffer = vec![0; 16 << 10];
        let answer = loop {
            let got = match stream.read(&mut buffer).await {
                Ok(got) => got,
                Err(_) if reader.is_fresh() => return Ok(None),
                Err(error) => return Err(broken(&error)),
            };
            let mut sink = |bytes: &[u8]| body.extend_from_slice(bytes);
            let read = match got {
                0 if reader.is_fresh() => return Ok(None),
                0 => reader.closed(),
                got => reader.feed(&buffer[..got], &mut sink),
            };
            match read.map_err(|error| Failure::Elsewhere(error.to_string()))? {
                Some(answer) => break answer,
                None if got == 0 => return Err(Failure::Elsewhere(WireError::Cut.to_string())),
                None if body.len() > MAX_ANSWER => {
                    return Err(Failure::Elsewhere(format!("more than {MAX_ANSWER} bytes")));
                }
                None => {}
            }
        };
        if !answer.close {
            let mut quiet = self.quiet.lock();
            if quiet.len() < MAX_QUIET {
                quiet.push((member, stream));
            }
        }
        match answer.status {
            200..300 => Ok(Some(body)),
            400..500 => Err(Failure::Refused(words(&body))),
            // No quorum, no time, or not what it should be: another may be better off.
            status => Err(Failure::Elsewhere(format!("{status}: {}", words(&body)))),
        }
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::Elsewhere(error.to_string())
}

fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: etcd\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}
