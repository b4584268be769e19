//! The same frames as bodies of HTTP requests, with hyper on both sides.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error,
    io,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::{http1, http2},
    server::conn::{http1 as server1, http2 as server2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use protocol::{FromExecutor, PRELUDE_LEN, Peer, Prelude, ToExecutor};
use tokio::net::{UnixListener, UnixStream};

use crate::support::{
    self,
    peer::{echo, socket_path},
};

/// Large enough that no batch here waits for a window.
const WINDOW: u32 = 8 << 20;

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

/// Parts written as they are, without being joined.
struct Parts {
    left: u64,
    parts: VecDeque<Bytes>,
}

impl Parts {
    fn new(head: Vec<u8>, body: impl IntoIterator<Item = Bytes>) -> Self {
        let parts: VecDeque<Bytes> = std::iter::once(head.into()).chain(body).collect();
        Self { left: parts.iter().map(|part| part.len() as u64).sum(), parts }
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = self.parts.pop_front();
        self.left -= part.as_ref().map_or(0, |part| part.len() as u64);
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

pub(crate) struct Http1(http1::SendRequest<Parts>);

impl Http1 {
    pub(crate) async fn connect() -> Result<Self, Box<dyn Error>> {
        let stream = serve(Version::One).await?;
        let (send, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(send))
    }

    pub(crate) async fn exchange(
        &mut self,
        message: &ToExecutor,
        body: &[Bytes],
    ) -> Result<usize, Box<dyn Error>> {
        self.0.ready().await?;
        let response = self.0.send_request(request(message, body)?).await?;
        answer(response).await
    }
}

pub(crate) struct Http2(http2::SendRequest<Parts>);

impl Http2 {
    pub(crate) async fn connect() -> Result<Self, Box<dyn Error>> {
        let stream = serve(Version::Two).await?;
        let (send, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        Ok(Self(send))
    }

    pub(crate) async fn exchange(
        &mut self,
        message: &ToExecutor,
        body: &[Bytes],
    ) -> Result<usize, Box<dyn Error>> {
        self.0.ready().await?;
        let response = self.0.send_request(request(message, body)?).await?;
        answer(response).await
    }
}

fn request(message: &ToExecutor, body: &[Bytes]) -> Result<Request<Parts>, Box<dyn Error>> {
    let parts = Parts::new(message.encode()?, body.iter().cloned());
    Ok(Request::post("http://executor/batch").header("host", "executor").body(parts)?)
}

async fn answer(response: Response<Incoming>) -> Result<usize, Box<dyn Error>> {
    let whole = response.into_body().collect().await?.to_bytes();
    let (prelude, header, body) = split(&whole, Peer::Executor)?;
    FromExecutor::decode(prelude, &header)?;
    Ok(body.len())
}

fn split(whole: &Bytes, from: Peer) -> Result<(Prelude, Bytes, Bytes), Box<dyn Error>> {
    let (fixed, _) = whole.split_first_chunk::<PRELUDE_LEN>().ok_or("no prelude")?;
    let prelude = Prelude::decode(fixed, from)?;
    let header_end = PRELUDE_LEN + prelude.header_len as usize;
    Ok((prelude, whole.slice(PRELUDE_LEN..header_end), whole.slice(header_end..)))
}

/// Starts a server for one connection, on a thread of its own, and connects to it.
async fn serve(version: Version) -> io::Result<UnixStream> {
    let path = socket_path(match version {
        Version::One => "http1",
        Version::Two => "http2",
    });
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || {
        support::pin(support::OTHERS);
        runtime.block_on(accept(listener, version))
    });
    let stream = UnixStream::connect(&path).await?;
    std::fs::remove_file(&path)?;
    Ok(stream)
}

async fn accept(
    listener: std::os::unix::net::UnixListener,
    version: Version,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (stream, _) = UnixListener::from_std(listener)?.accept().await?;
    let io = TokioIo::new(stream);
    let service = service_fn(reply);
    match version {
        Version::One => server1::Builder::new().serve_connection(io, service).await?,
        Version::Two => {
            server2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW)
                .serve_connection(io, service)
                .await?;
        }
    }
    Ok(())
}

async fn reply(
    request: Request<Incoming>,
) -> Result<Response<Parts>, Box<dyn Error + Send + Sync>> {
    let whole = request.into_body().collect().await?.to_bytes();
    let (prelude, header, body) = split(&whole, Peer::Router).map_err(|error| error.to_string())?;
    let ToExecutor::Batch(batch) = ToExecutor::decode(prelude, &header)? else {
        return Err("not a batch".into());
    };
    let (answer, _) = echo(batch, Vec::new());
    Ok(Response::new(Parts::new(answer.encode()?, [body])))
}
