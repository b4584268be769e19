//! The ways to reach an executor that are compared.

mod http;

use std::{error::Error, io};

use bytes::Bytes;
use protocol::ToExecutor;
use serve::transport::{self, Hello, Link, Received};

use self::http::{Http1, Http2};
use crate::support::peer;

pub(crate) enum Way {
    Framed { name: &'static str, link: Link, received: Received },
    Http1(Http1),
    Http2(Http2),
}

impl Way {
    pub(crate) async fn all() -> Result<Vec<Self>, Box<dyn Error>> {
        Ok(vec![
            Self::framed("frames, Unix socket", peer::unix(peer::echo)).await?,
            Self::framed("frames, TCP loopback", peer::tcp(peer::echo)).await?,
            Self::Http1(Http1::connect().await?),
            Self::Http2(Http2::connect().await?),
        ])
    }

    async fn framed(
        name: &'static str,
        address: io::Result<String>,
    ) -> Result<Self, Box<dyn Error>> {
        let hello = Hello { address: address?, token: String::new() };
        let (link, received) = transport::connect(&hello, None).await?;
        Ok(Self::Framed { name, link, received })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Framed { name, .. } => name,
            Self::Http1(_) => "HTTP/1.1, Unix socket",
            Self::Http2(_) => "HTTP/2, Unix socket",
        }
    }

    /// Sends a batch and waits for its answer; the bytes of tensors in it.
    pub(crate) async fn exchange(
        &mut self,
        message: &ToExecutor,
        body: &[Bytes],
    ) -> Result<usize, Box<dyn Error>> {
        match self {
            Self::Framed { link, received, .. } => {
                link.send(message, body.to_vec())?;
                let (_, body) = received.next().await?;
                Ok(body.len())
            }
            Self::Http1(http) => http.exchange(message, body).await,
            Self::Http2(http) => http.exchange(message, body).await,
        }
    }
}
