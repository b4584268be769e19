//! A client of a running router's admin port.

use std::{fs, path::PathBuf, time::Duration};

use loadtest::target::{Page, Target, Url};

use crate::program::chain;

/// Waits before the next request to a router.
pub(crate) fn pause(time: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("cannot wait: {error}"))?;
    runtime.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}

/// Address and API key of a router's admin port.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Admin {
    /// Address of the router's admin port
    #[arg(long, default_value = "http://127.0.0.1:8002")]
    pub(crate) url: String,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// File that holds the API key
    #[arg(long, value_name = "FILE", conflicts_with = "key_env")]
    key_file: Option<PathBuf>,
}

/// A request other than a plain GET.
#[derive(Debug, Default)]
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    /// Whole header lines, or nothing.
    pub(crate) headers: &'a str,
    pub(crate) body: &'a [u8],
}

impl Admin {
    /// The body of a GET of `path`.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        self.send(path, &Call { method: "GET", ..Call::default() })
    }

    /// The admin port at `url`, with the key that one of the others holds.
    pub(crate) fn at(url: String, key_env: Option<String>, key_file: Option<PathBuf>) -> Self {
        Self { url, key_env, key_file }
    }

    /// The body of a 2xx response; any other status is an error.
    pub(crate) fn send(&self, path: &str, call: &Call<'_>) -> Result<Vec<u8>, String> {
        let page = self.ask(path, call)?;
        if (200..300).contains(&page.status) {
            return Ok(page.body);
        }
        Err(self.complaint(&page))
    }

    /// What a response of another status says.
    pub(crate) fn complaint(&self, page: &Page) -> String {
        let hint = match page.status {
            401 => "; give the API key with --key-file or --key-env",
            _ => "",
        };
        format!("{} returned {}: {}{hint}", self.url, page.status, page.words())
    }

    /// The response, whatever its status.
    pub(crate) fn ask(&self, path: &str, call: &Call<'_>) -> Result<Page, String> {
        let url = Url::parse(&self.url).map_err(|error| chain(&error))?;
        let key = self.key()?;
        let router = Target::find(url, key.as_deref()).map_err(|error| chain(&error))?;
        let Target { url, authorization, .. } = &router;
        let Call { method, headers, body } = call;
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\n{authorization}{headers}\
             content-length: {}\r\n\r\n",
            url.prefix,
            url.authority,
            body.len()
        );
        router.send(&[head.as_bytes(), body].concat()).map_err(|error| chain(&error))
    }

    fn key(&self) -> Result<Option<String>, String> {
        let from_file = |file: &PathBuf| {
            let read = fs::read_to_string(file);
            read.map_err(|error| format!("cannot read the API key in {}: {error}", file.display()))
        };
        let from_environment = |name: &String| {
            std::env::var(name).map_err(|_| {
                format!("environment variable {name} is not set; it should hold the API key")
            })
        };
        let text = match (&self.key_file, &self.key_env) {
            (Some(file), _) => from_file(file)?,
            (None, Some(name)) => from_environment(name)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(text.trim().to_owned()))
    }
}
