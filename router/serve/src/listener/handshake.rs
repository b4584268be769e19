//! The start of a connection that shall be TLS.

use std::sync::Arc;

use bytes::Bytes;
use tls::ServerConfig;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{FAREWELL, Limits, farewell};
use crate::{error::InferError, reply};

/// The first byte of every TLS connection; no method of HTTP begins with it.
const HANDSHAKE: u8 = 0x16;

/// The stream once both ends agree, within the time a head may take. Whoever speaks plainly is told
/// so in plain words.
pub(super) async fn handshake(
    tcp: TcpStream,
    config: Arc<ServerConfig>,
    limits: &Limits,
) -> Option<TlsStream<TcpStream>> {
    timeout(limits.header_timeout, async move {
        let mut first = [0];
        if tcp.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first == [HANDSHAKE] {
            return TlsAcceptor::from(config).accept(tcp).await.ok();
        }
        let what = "plain HTTP on a port that speaks TLS (use https://)";
        let words: Bytes = reply::unframed(&InferError::Unsupported { what });
        let _: Result<(), _> = timeout(FAREWELL, farewell(tcp, words)).await;
        None
    })
    .await
    .ok()?
}
