//! A configuration's text and what is needed to read it.

use std::path::Path;

/// Settings that the environment overrides, since hosts differ in them.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    pub log: Option<String>,
}

impl Environment {
    pub fn of_process() -> Self {
        let lossy = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self {
            listen: lossy("SLUICE_LISTEN"),
            admin_listen: lossy("SLUICE_ADMIN_LISTEN"),
            log: lossy(logging::VARIABLE),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        match name {
            "SLUICE_LISTEN" => self.listen.as_deref(),
            "SLUICE_ADMIN_LISTEN" => self.admin_listen.as_deref(),
            logging::VARIABLE => self.log.as_deref(),
            _ => None,
        }
    }
}

/// A configuration's text and what is needed to read it.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
    /// What relative paths in the file are relative to.
    pub base_dir: &'a Path,
    pub environment: Environment,
}

impl<'a> Source<'a> {
    pub(crate) fn plain(path: &'a Path, text: &'a str, base_dir: &'a Path) -> Self {
        Self { path, text, base_dir, environment: Environment::default() }
    }

    /// The content without a byte order mark.
    pub(crate) fn content(&self) -> &'a str {
        self.text.strip_prefix('\u{feff}').unwrap_or(self.text)
    }
}
