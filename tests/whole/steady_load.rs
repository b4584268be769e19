//! Clients that ask all the time, and take nothing but right answers.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::TcpStream,
    runtime::Builder,
    time::{Instant, interval_at},
};

use crate::{
    client::{Body, Client, count_from},
    wait::eventually,
};

/// How a client connects.
#[derive(Clone, Copy, Debug)]
enum Way {
    KeepAlive,
    Http2,
    /// A connection for each request.
    Once,
}

/// Threads that ask the model `m`.
pub(crate) struct SteadyLoad {
    stop: Arc<AtomicBool>,
    served: Arc<[AtomicU64; 3]>,
    threads: Vec<JoinHandle<()>>,
}

impl SteadyLoad {
    /// Asks `rate` times a second in all, a third each by keep-alive connections, by HTTP/2 and by a
    /// connection per request.
    pub(crate) fn start(address: SocketAddr, rate: u32) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<[AtomicU64; 3]>::default());
        let ways = [Way::KeepAlive, Way::Http2, Way::Once];
        let every = Duration::from_secs(6) / rate;
        let clients = ways.into_iter().flat_map(|way| [(way, 0), (way, 1)]);
        let threads = clients.map(|(way, number)| {
            let (stop, served) = (Arc::clone(&stop), Arc::clone(&served));
            thread::spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut asker = Asker::new(address, way);
                    let mut ticks = interval_at(Instant::now() + every * number / 2, every);
                    while !stop.load(Ordering::Relaxed) {
                        ticks.tick().await;
                        asker.ask(served[way as usize].load(Ordering::Relaxed)).await;
                        served[way as usize].fetch_add(1, Ordering::Relaxed);
                    }
                });
            })
        });
        let threads = threads.collect();
        Self { stop, served, threads }
    }

    /// Waits until so many more requests were answered in each way.
    #[track_caller]
    pub(crate) fn wait_served(&self, more: u64) {
        let read = || [0, 1, 2].map(|way: usize| self.served[way].load(Ordering::Relaxed));
        let before = read();
        eventually("clients are answered", || {
            assert!(self.threads.iter().all(|one| !one.is_finished()), "a client failed");
            let all = read().iter().zip(before).all(|(now, before)| *now >= before + more);
            all.then_some(())
        });
    }

    /// Ends it; every request must have been answered. Returns how many there were.
    #[track_caller]
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("every request is answered");
        }
        self.served.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// One client. Whatever it does not expect is a panic.
struct Asker {
    address: SocketAddr,
    way: Way,
    kept: Option<Client>,
    http2: Option<http2::SendRequest<Full<Bytes>>>,
}

impl Asker {
    fn new(address: SocketAddr, way: Way) -> Self {
        Self { address, way, kept: None, http2: None }
    }

    async fn ask(&mut self, number: u64) {
        let data = count_from((number % 1000) as f32, 1);
        let body = Body::json(&data);
        match self.way {
            Way::Http2 => self.ask_http2(body).await,
            Way::KeepAlive | Way::Once => {
                let mut client = self.kept.take().unwrap_or_else(|| Client::connect(self.address));
                let body = match self.way {
                    Way::Once => body.with("connection", "close"),
                    Way::KeepAlive | Way::Http2 => body,
                };
                let reply = client.infer("m", &body);
                assert_eq!(reply.numbers(), data);
                if reply.header("connection") != Some("close") {
                    self.kept = Some(client);
                }
            }
        }
    }

    async fn ask_http2(&mut self, body: Body) {
        let uri = format!("http://{}/v2/models/m/infer", self.address);
        loop {
            let mut sender = match self.http2.take() {
                Some(sender) if !sender.is_closed() => sender,
                Some(_) | None => self.dial().await,
            };
            if sender.ready().await.is_err() {
                continue;
            }
            let body = Full::new(Bytes::from(body.bytes.clone()));
            match sender.send_request(Request::post(&uri).body(body).unwrap()).await {
                Ok(reply) => {
                    let status = reply.status();
                    let words = reply.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&words));
                    self.http2 = Some(sender);
                    return;
                }
                // It was not sent, since the server had said that it takes no more.
                Err(error) if error.is_canceled() => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    async fn dial(&self) -> http2::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}
