//! Certificates from files, and both ends of TLS made of them.
//!
//! Everything is read anew each time it is asked for, so that a certificate that was renewed in its
//! file is used by whoever asks next.

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};

pub use rustls::{
    ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned,
    pki_types::ServerName,
};

/// Where most systems keep the authorities they trust.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The largest file read: a bundle of a system's authorities is a quarter of it.
const MAX_BYTES: u64 = 1 << 20;

/// Who we are: a certificate, with those that vouch for it, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file of certificates, our own first.
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    #[error("certificate {path}: {why}")]
    Cert { path: String, why: String },
    #[error("private key {path}: {why}")]
    Key { path: String, why: String },
    #[error("certificate authority {path}: {why}")]
    Ca { path: String, why: String },
    #[error("{name:?} is no name of a host")]
    Name { name: String },
}

/// The end that listens. With `client_ca`, callers must show a certificate of that authority.
pub fn server(
    identity: &Identity,
    client_ca: Option<&Path>,
    alpn: &[&str],
) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = read(identity)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_cert(identity, &error))?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| bad_ca(path, &error))?)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| bad_cert(identity, &error))?;
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(Arc::new(config))
}

/// The end that dials. Without `ca`, those in the file that `SSL_CERT_FILE` names are trusted, or
/// else the system's.
pub fn client(
    ca: Option<&Path>,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let named = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let ca = ca.or(named.as_deref()).unwrap_or_else(|| Path::new(SYSTEM_CA));
    let roots = authorities(ca)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_ca(ca, &error))?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = read(identity)?;
            let config = builder.with_client_auth_cert(chain, key);
            config.map_err(|error| bad_cert(identity, &error))?
        }
    };
    Ok(Arc::new(config))
}

pub fn name_of(authority: &str) -> Result<ServerName<'static>, TlsError> {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        Some(_) | None => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned())
        .map_err(|_| TlsError::Name { name: authority.chars().take(80).collect() })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

type Chain = Vec<CertificateDer<'static>>;

fn read(identity: &Identity) -> Result<(Chain, PrivateKeyDer<'static>), TlsError> {
    let Identity { cert, key } = identity;
    let chain = certificates(cert).map_err(|why| TlsError::Cert { path: shown(cert), why })?;
    let wrong = |why| TlsError::Key { path: shown(key), why };
    let pem = content(key).map_err(wrong)?;
    let none = |_| wrong("it holds no private key in PEM".to_owned());
    Ok((chain, PrivateKeyDer::from_pem_slice(&pem).map_err(none)?))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong = |why| TlsError::Ca { path: shown(path), why };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path).map_err(wrong)? {
        roots.add(certificate).map_err(|error| bad_ca(path, &error))?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Chain, String> {
    let pem = content(path)?;
    let read: Result<Chain, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = read.map_err(|error| format!("it is not PEM: {error}"))?;
    if chain.is_empty() { Err("it holds no certificate in PEM".to_owned()) } else { Ok(chain) }
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    let explain = |error: io::Error| {
        if error.kind() == io::ErrorKind::NotFound {
            "no such file".to_owned()
        } else if error.kind() == io::ErrorKind::PermissionDenied {
            "not permitted to read it".to_owned()
        } else {
            error.to_string()
        }
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(explain)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(explain)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes"));
    }
    Ok(bytes)
}

fn bad_cert(identity: &Identity, error: &rustls::Error) -> TlsError {
    let why = if matches!(error, rustls::Error::InconsistentKeys(_)) {
        format!("it does not belong to the private key {}", shown(&identity.key))
    } else {
        error.to_string()
    };
    TlsError::Cert { path: shown(&identity.cert), why }
}

fn bad_ca(path: &Path, error: &impl ToString) -> TlsError {
    TlsError::Ca { path: shown(path), why: error.to_string() }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates").join(name)
    }

    #[test]
    fn bad_files_are_told_apart() {
        let told = |cert: &str, key: &str| {
            let identity = Identity { cert: at(cert), key: at(key) };
            let error = server(&identity, None, &[]).unwrap_err().to_string();
            error.replace(&shown(&at("")), "")
        };
        assert_eq!(told("none.pem", "next.key"), "certificate none.pem: no such file");
        assert_eq!(
            told("next.key", "next.key"),
            "certificate next.key: it holds no certificate in PEM"
        );
        assert_eq!(
            told("next.pem", "next.pem"),
            "private key next.pem: it holds no private key in PEM"
        );
        assert_eq!(
            told("next.pem", "router.key"),
            "certificate next.pem: it does not belong to the private key router.key"
        );
        let identity = Identity { cert: at("next.pem"), key: at("next.key") };
        assert!(server(&identity, Some(&at("ca.pem")), &["h2"]).is_ok());
        assert!(client(Some(&at("ca.pem")), Some(&identity)).is_ok());
    }

    #[test]
    fn the_name_is_the_host_alone() {
        for (given, name) in
            [("a.example:8003", "a.example"), ("[::1]:80", "::1"), ("[::1]", "::1")]
        {
            assert_eq!(name_of(given).unwrap().to_str(), name);
        }
        assert!(name_of("a b:1").is_err());
    }
}
