//! The server under load, asked the slow and simple way before the run starts.

use std::{
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

use oip::model::{IndexEntry, ModelMetadata, ModelState};
use serde_json::Value;
pub use wire::Page;
use wire::{Connection, Secure, quote};

use crate::{error::LoadError, plan::Objective};

const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes taken of an answer that is read rather than measured.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// An `http://` or `https://` address taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub authority: String,
    /// What goes before every path; empty or begins with a slash, never ends with one.
    pub prefix: String,
    pub secure: bool,
}

impl Url {
    /// Reads `http[s]://HOST[:PORT][/PREFIX]`; the scheme may be left out.
    pub fn parse(text: &str) -> Result<Self, LoadError> {
        let refuse = |why| Err(LoadError::Url { url: text.to_owned(), why });
        let (secure, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return refuse("only http:// and https:// are spoken"),
        };
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.is_empty() || authority.contains(['@', '?', '#', ' ']) {
            return refuse("it has no plain host");
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if secure { 443 } else { 80 };
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { authority, prefix, secure })
    }
}

#[derive(Clone, Debug)]
pub struct Target {
    pub url: Url,
    pub address: SocketAddr,
    /// `Authorization` header lines for what is asked here, or empty.
    pub authorization: String,
    /// How the server proves who it is; absent, it is spoken to plainly.
    pub secure: Option<Secure>,
}

impl Target {
    pub fn find(url: Url, key: Option<&str>) -> Result<Self, LoadError> {
        let host = || url.authority.clone();
        let secure = url.secure.then(|| secure(&url.authority)).transpose()?;
        let addresses = url.authority.to_socket_addrs();
        let addresses = addresses.map_err(|source| LoadError::Resolve { host: host(), source })?;
        let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(_) => {
                    let authorization = authorization(key);
                    return Ok(Self { url, address, authorization, secure });
                }
                Err(error) => last = error,
            }
        }
        Err(LoadError::Unreachable { host: host(), source: last })
    }

    pub fn metadata(&self, model: &str) -> Result<ModelMetadata, LoadError> {
        let path = format!("{}/v2/models/{}", self.url.prefix, quote(model));
        let page = self.get(&path)?;
        serde_json::from_slice(&page.body).map_err(|source| LoadError::Json { path, source })
    }

    /// The objective the router keeps for `model`, where it says so.
    ///
    /// It stands among the parameters of the model's configuration: plain numbers, or strings in
    /// Triton's `{"string_value": ...}`.
    pub fn objective(&self, model: &str) -> Option<Objective> {
        let path = format!("{}/v2/models/{}/config", self.url.prefix, quote(model));
        let page = self.get(&path).ok()?;
        objective_in(&serde_json::from_slice(&page.body).ok()?)
    }

    pub fn models(&self) -> Result<Vec<String>, LoadError> {
        let path = format!("{}/v2/repository/index", self.url.prefix);
        let page = self.ask(&self.request("POST", &path, b"{}"), &path)?;
        let index: Vec<IndexEntry> = serde_json::from_slice(&page.body)
            .map_err(|source| LoadError::Json { path, source })?;
        let ready = index.into_iter().filter(|entry| entry.state == ModelState::Ready);
        Ok(ready.map(|entry| entry.name).collect())
    }

    pub fn get(&self, path: &str) -> Result<Page, LoadError> {
        self.ask(&self.request("GET", path, b""), path)
    }

    pub fn send(&self, request: &[u8]) -> Result<Page, LoadError> {
        let connection = Connection::new(self.address, PATIENCE, MAX_BODY_BYTES);
        let mut connection = connection.over(self.secure.clone());
        let host = || self.url.authority.clone();
        let sent = connection.send(&[request]);
        sent.map_err(|source| LoadError::Unanswered { host: host(), source })
    }

    fn ask(&self, request: &[u8], path: &str) -> Result<Page, LoadError> {
        let page = self.send(request)?;
        if page.status == 200 {
            return Ok(page);
        }
        Err(LoadError::Status { path: path.to_owned(), status: page.status, words: page.words() })
    }

    fn request(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let Self { url, authorization, .. } = self;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{authorization}content-length: {}\r\n\r\n",
            url.authority,
            body.len()
        );
        [head.as_bytes(), body].concat()
    }
}

pub(crate) fn authorization(key: Option<&str>) -> String {
    key.map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"))
}

fn objective_in(config: &Value) -> Option<Objective> {
    let number = |name: &str| {
        let value = config.get("parameters")?.get(name)?;
        let value = value.get("string_value").unwrap_or(value);
        value.as_f64().or_else(|| value.as_str()?.parse().ok())
    };
    let slo = Duration::try_from_secs_f64(number("slo_ms")? / 1e3).ok()?;
    Some(Objective { slo, target: number("slo_target").unwrap_or(0.99) })
}

fn secure(authority: &str) -> Result<Secure, LoadError> {
    Ok(Secure { config: tls::client(None, None)?, name: tls::name_of(authority)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_scheme_port_and_path() {
        let parsed = |text| {
            let url = Url::parse(text).unwrap();
            (url.authority, url.prefix)
        };
        let pair = |authority: &str, prefix: &str| (authority.to_owned(), prefix.to_owned());
        assert_eq!(parsed("localhost:8000"), pair("localhost:8000", ""));
        assert_eq!(parsed("http://host"), pair("host:80", ""));
        assert_eq!(parsed("https://host/x"), pair("host:443", "/x"));
        assert_eq!(parsed("http://[::1]:8000/a/b/"), pair("[::1]:8000", "/a/b"));
        assert_eq!(parsed("http://[::1]"), pair("[::1]:80", ""));
    }

    #[test]
    fn what_cannot_be_spoken_to_is_refused() {
        for text in ["ftp://host", "http://", "http://a@b", "http:///x"] {
            assert!(matches!(Url::parse(text), Err(LoadError::Url { .. })), "{text}");
        }
    }

    #[test]
    fn an_objective_is_found_in_both_its_forms() {
        let wanted = Objective { slo: Duration::from_millis(20), target: 0.95 };
        let plain = serde_json::json!({"parameters": {"slo_ms": 20, "slo_target": 0.95}});
        assert_eq!(objective_in(&plain), Some(wanted));
        let triton = serde_json::json!({"parameters": {
            "slo_ms": {"string_value": "20"}, "slo_target": {"string_value": "0.95"}}});
        assert_eq!(objective_in(&triton), Some(wanted));
        assert_eq!(objective_in(&serde_json::json!({"name": "m"})), None);
    }
}
