//! A closed loop of keep-alive connections, on a thread of its own.

use std::{error::Error, io, net::SocketAddr, thread};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use crate::support;

const CONNECTIONS: usize = 64;
const HEADER: &str = r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,1024],"parameters":{"binary_data_size":4096}}]}"#;

type Order = (usize, usize, oneshot::Sender<io::Result<()>>);

/// The thread's other end.
pub(crate) struct Client {
    orders: mpsc::UnboundedSender<Order>,
}

impl Client {
    /// Connects to every server when first told to drive it.
    pub(crate) fn start(servers: &[SocketAddr]) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, inbox) = mpsc::unbounded_channel();
        let servers = servers.to_vec();
        thread::spawn(move || {
            support::pin(support::OTHERS);
            runtime.block_on(work(servers, inbox));
        });
        Ok(Self { orders })
    }

    /// Sends `requests` to one server, as fast as its answers come.
    pub(crate) async fn drive(
        &mut self,
        server: usize,
        requests: usize,
    ) -> Result<(), Box<dyn Error>> {
        let (done, finished) = oneshot::channel();
        self.orders.send((server, requests, done))?;
        Ok(finished.await??)
    }
}

async fn work(servers: Vec<SocketAddr>, mut inbox: mpsc::UnboundedReceiver<Order>) {
    let mut idle: Vec<Vec<Connection>> = servers.iter().map(|_| Vec::new()).collect();
    while let Some((server, requests, done)) = inbox.recv().await {
        let result = drive(servers[server], &mut idle[server], requests).await;
        // A bench that does not wait for the end of a round does not want to know.
        let _ = done.send(result);
    }
}

async fn drive(server: SocketAddr, idle: &mut Vec<Connection>, requests: usize) -> io::Result<()> {
    while idle.len() < CONNECTIONS {
        idle.push(Connection::open(server).await?);
    }
    let mut running = JoinSet::new();
    for (index, mut connection) in idle.drain(..).enumerate() {
        let share = requests / CONNECTIONS + usize::from(index < requests % CONNECTIONS);
        running.spawn(async move {
            for _ in 0..share {
                connection.ask().await?;
            }
            Ok::<_, io::Error>(connection)
        });
    }
    while let Some(ended) = running.join_next().await {
        idle.push(ended??);
    }
    Ok(())
}

struct Connection {
    tcp: TcpStream,
    request: Vec<u8>,
    /// What every answer ends in; heads differ in length.
    body: Vec<u8>,
    response: Vec<u8>,
}

impl Connection {
    /// Connects, and learns from a first answer how every answer ends.
    async fn open(server: SocketAddr) -> io::Result<Self> {
        let mut tcp = TcpStream::connect(server).await?;
        tcp.set_nodelay(true)?;
        let mut request = format!(
            "POST /v2/models/null/infer HTTP/1.1\r\nhost: bench\r\ncontent-length: {}\r\n\
             inference-header-content-length: {}\r\n\r\n{HEADER}",
            HEADER.len() + 4096,
            HEADER.len(),
        )
        .into_bytes();
        request.extend([0; 4096]);
        tcp.write_all(&request).await?;
        let (body, response) = (first(&mut tcp).await?, Vec::with_capacity(4096));
        Ok(Self { tcp, request, body, response })
    }

    async fn ask(&mut self) -> io::Result<()> {
        self.tcp.write_all(&self.request).await?;
        self.response.clear();
        while !self.response.ends_with(&self.body) {
            if self.tcp.read_buf(&mut self.response).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if self.response.starts_with(b"HTTP/1.1 200 ") {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&self.response).into_owned()))
    }
}

/// The body of one whole answer.
async fn first(tcp: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut response = Vec::new();
    loop {
        if tcp.read_buf(&mut response).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.and_then(|length| length.parse().ok()) == Some(body.len()) {
            return Ok(body.as_bytes().to_vec());
        }
    }
}
