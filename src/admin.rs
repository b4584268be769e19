//! Asking a running router's admin port.

use std::{fs, path::PathBuf, time::Duration};

use loadtest::target::{Target, Url};

use crate::program::chain;

/// Lets `time` pass before a router is asked again.
pub(crate) fn pause(time: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|error| format!("cannot wait: {error}"))?;
    runtime.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}

/// Which router, and as whom.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Door {
    /// The router's admin address
    #[arg(long, default_value = "http://127.0.0.1:8002")]
    pub(crate) url: String,
    /// The environment variable that holds the key
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// The file that holds the key
    #[arg(long, value_name = "FILE", conflicts_with = "key_env")]
    key_file: Option<PathBuf>,
}

/// A request other than a plain GET.
#[derive(Debug, Default)]
pub(crate) struct Question<'a> {
    pub(crate) method: &'a str,
    /// Whole header lines, or nothing.
    pub(crate) headers: &'a str,
    pub(crate) body: &'a [u8],
}

impl Door {
    /// The body of what is at `path`, which must be there.
    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        self.ask(path, &Question { method: "GET", ..Question::default() })
    }

    /// The body of the answer, if it is one that says yes.
    pub(crate) fn ask(&self, path: &str, question: &Question<'_>) -> Result<Vec<u8>, String> {
        let url = Url::parse(&self.url).map_err(|error| chain(&error))?;
        let key = self.key()?;
        let router = Target::find(url, key.as_deref()).map_err(|error| chain(&error))?;
        let Target { url, authorization, .. } = &router;
        let Question { method, headers, body } = question;
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nhost: {}\r\n{authorization}{headers}\
             content-length: {}\r\n\r\n",
            url.prefix,
            url.authority,
            body.len()
        );
        let page = router.send(&[head.as_bytes(), body].concat()).map_err(|error| chain(&error))?;
        if (200..300).contains(&page.status) {
            return Ok(page.body);
        }
        let hint = match page.status {
            401 => "; --key-file or --key-env says where the key is",
            _ => "",
        };
        Err(format!("{} said {}: {}{hint}", self.url, page.status, page.words()))
    }

    fn key(&self) -> Result<Option<String>, String> {
        let from_file = |file: &PathBuf| {
            let read = fs::read_to_string(file);
            read.map_err(|error| format!("cannot read the key in {}: {error}", file.display()))
        };
        let from_environment = |name: &String| {
            std::env::var(name)
                .map_err(|_| format!("the environment has no {name} to take the key from"))
        };
        let text = match (&self.key_file, &self.key_env) {
            (Some(file), _) => from_file(file)?,
            (None, Some(name)) => from_environment(name)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(text.trim().to_owned()))
    }
}
