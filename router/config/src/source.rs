//! A configuration's text and what is needed to read it.

use std::{path::Path, sync::OnceLock};

/// What the command line of this process says; like the environment, it holds for every reload.
static FLAGS: OnceLock<Flags> = OnceLock::new();

/// Settings that flags of the command line override.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
}

impl Flags {
    /// Overrides the file and the environment from now on, once per process.
    pub fn hold(self) {
        let _ = FLAGS.set(self);
    }
}

/// Settings that the environment and the command line override, since hosts differ in them.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    pub listen: Option<String>,
    pub admin_listen: Option<String>,
    pub log: Option<String>,
    pub flags: Flags,
}

impl Environment {
    pub fn of_process() -> Self {
        let lossy = |name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned());
        Self {
            listen: lossy("SLUICE_LISTEN"),
            admin_listen: lossy("SLUICE_ADMIN_LISTEN"),
            log: lossy(logging::VARIABLE),
            flags: FLAGS.get().cloned().unwrap_or_default(),
        }
    }

    /// What overrides a key that the variable `name` overrides: where it was said, and the text.
    pub(crate) fn get(&self, name: &'static str) -> Option<(&'static str, &str)> {
        let Flags { listen, admin_listen } = &self.flags;
        let none = &None;
        let (flag, given, set) = match name {
            "SLUICE_LISTEN" => ("--listen", listen, &self.listen),
            "SLUICE_ADMIN_LISTEN" => ("--admin-listen", admin_listen, &self.admin_listen),
            logging::VARIABLE => ("--log", none, &self.log),
            _ => return None,
        };
        let given = given.as_deref().map(|text| (flag, text));
        given.or_else(|| set.as_deref().map(|text| (name, text)))
    }
}

/// An override's place in words: a flag as typed, a variable with what it is.
pub(crate) fn told(name: &str) -> String {
    if name.starts_with("--") { name.to_owned() } else { format!("environment {name}") }
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
