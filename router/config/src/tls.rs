//! `[tls]`: who the router is to those who dial it.

use std::{fmt, fs, path::PathBuf, sync::Arc};

use tls::{ClientConfig, Identity, ServerConfig, TlsError};

use super::KeyHash;

/// What HTTP listeners offer to speak.
const HTTP: [&str; 2] = ["h2", "http/1.1"];

/// TLS on every listener, from files that were read when the configuration was.
#[derive(Clone)]
pub struct Tls {
    /// The certificate and its key.
    pub identity: Identity,
    /// The authority of workers' certificates; absent, they need none.
    pub client_ca: Option<PathBuf>,
    /// For inference and administration.
    pub http: Arc<ServerConfig>,
    /// For workers.
    pub join: Arc<ServerConfig>,
    /// For executors, which are of the workers' authority.
    pub executors: Option<Arc<ClientConfig>>,
    contents: KeyHash,
}

impl Tls {
    /// Reads the files, or says which is of no use.
    pub(super) fn load(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        let http = tls::server(&identity, None, &HTTP)?;
        let join = tls::server(&identity, client_ca.as_deref(), &[])?;
        let known_by = |ca: &PathBuf| tls::client(Some(ca), None);
        let executors = client_ca.as_ref().map(known_by).transpose()?;
        let files = [Some(&identity.cert), Some(&identity.key), client_ca.as_ref()];
        let bytes: Vec<Vec<u8>> = files.into_iter().flatten().flat_map(fs::read).collect();
        let contents = KeyHash::of(&bytes.concat());
        Ok(Self { identity, client_ca, http, join, executors, contents })
    }

    /// Whether both were made of the same certificates.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.contents == other.contents
    }
}

impl fmt::Debug for Tls {
    /// The files and nothing of what is in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identity, client_ca, .. } = self;
        f.debug_struct("Tls").field("identity", identity).field("client_ca", client_ca).finish()
    }
}
