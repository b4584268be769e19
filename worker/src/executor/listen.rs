//! Where routers connect, and the worker.

use std::{
    fs::DirBuilder,
    io,
    net::{IpAddr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use tls::{Identity, TlsError};

use super::{
    Executor, ExecutorArgs,
    link::{self, Stream},
    secure::Secure,
};
use crate::{clock, engine::pause, executor_paths};

/// The most connections at once; a router needs one.
const MAX_CONNECTIONS: usize = 64;

/// The wait after a failed accept, which would otherwise fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("{path} may be entered by others (mode {mode:o}); it must be 700")]
    Open { path: PathBuf, mode: u32 },
    #[error("cannot use {path}: {source}")]
    Path { path: PathBuf, source: io::Error },
    #[error("cannot use {address}: {source}")]
    Tcp { address: IpAddr, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
    Tls(TcpListener, Identity),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Tls(listener, identity) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                // Read for each connection, so that a renewed certificate is used.
                let config = tls::server(identity, None, &[]).map_err(io::Error::other)?;
                Ok(Stream::Secure(Box::new(Secure::new(stream, config)?)))
            }
        }
    }
}

/// An address routers can connect to; a socket's file goes with it.
pub(super) struct Bound {
    pub(super) address: String,
    file: Option<PathBuf>,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Whoever binds it next removes it too.
            let _ = std::fs::remove_file(file);
        }
    }
}

pub(super) fn bind(args: &ExecutorArgs) -> Result<(Listener, Bound), ListenError> {
    if let Some(address) = args.listen {
        return bind_tcp(address, args.certificate.clone());
    }
    let (listener, bound) = bind_unix(args, "sock")?;
    Ok((Listener::Unix(listener), bound))
}

pub(super) fn bind_control(args: &ExecutorArgs) -> Result<(UnixListener, Bound), ListenError> {
    bind_unix(args, executor_paths::CONTROL)
}

fn bind_tcp(
    address: IpAddr,
    certificate: Option<Identity>,
) -> Result<(Listener, Bound), ListenError> {
    let failed = |source| ListenError::Tcp { address, source };
    let listener = TcpListener::bind((address, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (listener, address) = match certificate {
        Some(identity) => {
            tls::server(&identity, None, &[])?;
            (Listener::Tls(listener, identity), format!("tls:{address}"))
        }
        None => (Listener::Tcp(listener), format!("tcp:{address}")),
    };
    Ok((listener, Bound { address, file: None }))
}

fn bind_unix(args: &ExecutorArgs, kind: &str) -> Result<(UnixListener, Bound), ListenError> {
    private_dir(&args.run_dir)?;
    let path = args.run_dir.join(executor_paths::file(&args.slice, args.seat.lane, kind));
    let failed = |source| ListenError::Path { path: path.clone(), source };
    // What an executor before this one left behind; the worker has one per lane at a time.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let address = format!("unix:{}", path.display());
    Ok((listener, Bound { address, file: Some(path) }))
}

/// Makes `path` a directory for this user alone, or refuses one that is not.
fn private_dir(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Path { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(ListenError::Open { path: path.to_owned(), mode }) }
}

/// Serves who connects and knows the token, for ever.
pub(super) fn accept(listener: &Listener, executor: &Arc<Executor>) {
    // Every connection's thread holds one; the count cannot drift from the truth.
    let seats = Arc::new(());
    for id in 0.. {
        let stream = match listener.accept() {
            Ok(stream) if Arc::strong_count(&seats) <= MAX_CONNECTIONS => stream,
            Ok(_) => {
                tracing::warn!(
                    limit = MAX_CONNECTIONS,
                    "rejected connection: too many connections"
                );
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept connection");
                pause::until(clock::now() + AFTER_FAILURE);
                continue;
            }
        };
        let (seat, executor) = (Arc::clone(&seats), Arc::clone(executor));
        let spawned = thread::Builder::new().name(format!("link-{id}")).spawn(move || {
            let _seat = seat;
            link::converse(id, stream, &executor);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "rejected connection: failed to start a thread");
        }
    }
}
