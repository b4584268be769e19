//! `[tls]`: TLS on every listener.

use std::{fmt, fs, path::PathBuf, sync::Arc};

use tls::{ClientConfig, Identity, ServerConfig, TlsError};

use crate::{
    key::{Effect, Found, TableSpec, kinds::File, table, whole},
    problems::{Notes, Place},
    secrets::KeyHash,
    tree::Section,
};

pub(crate) const TLS: TableSpec = TableSpec {
    name: "tls",
    title: "[tls]",
    about: "TLS on every listener. A reload reads the files again. Absent: plain.",
    whole: Effect::Restart,
};

table! {
    /// `[tls]` as the file has it.
    pub(crate) struct TlsKeys {
        /// File of the certificate and those that vouch for it.
        cert: PathBuf = "cert" need, File, Live;
        /// File of the certificate's private key.
        key: PathBuf = "key" need, File, Live;
        /// File of the authority of workers' certificates. Absent: workers need none.
        client_ca: Option<PathBuf> = "client_ca" maybe, File, Live;
    }
}

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
    /// Reads the files, or says which cannot be used.
    fn load(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
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
    pub(crate) fn is_same(&self, other: &Self) -> bool {
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

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (Option<Tls>, Found) {
    let (keys, found) = whole(section, notes, TlsKeys::read);
    let places = ["cert", "key", "client_ca"].map(|key| found.place_of(key));
    let [Some(_), Some(_), _] = places else { return (None, found) };
    if !found.is_good("cert") || !found.is_good("key") {
        return (None, found);
    }
    let loaded = Tls::load(Identity { cert: keys.cert, key: keys.key }, keys.client_ca);
    (loaded.map_err(|error| rejected(&error, places, notes)).ok(), found)
}

/// Notes which of certificate, key and authority cannot be used.
pub(crate) fn rejected(
    error: &TlsError,
    [cert, key, ca]: [Option<Place>; 3],
    notes: &mut Notes<'_>,
) {
    let place = match error {
        TlsError::Cert { .. } => cert,
        TlsError::Key { .. } => key,
        TlsError::Ca { .. } | TlsError::Name { .. } => ca,
    };
    notes.problem(place.unwrap_or(Place::Offset(0)), error.to_string());
}
