//! The configuration file and what overrides it, as the commands that serve take them.

use std::path::{Path, PathBuf};

use config::Flags;

/// A file that must be given, as a word or with `--config`.
#[derive(Debug, clap::Args)]
pub(crate) struct File {
    /// Configuration file
    #[arg(value_name = "FILE", conflicts_with = "config", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// The same, as a flag
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl File {
    pub(crate) fn path(&self) -> &Path {
        // Clap accepts no command line without either.
        self.file.as_deref().or(self.config.as_deref()).unwrap_or_else(|| Path::new(""))
    }
}

/// Addresses that override the file's, and the environment's.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Listen {
    /// Address for inference, instead of `listen` in the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Address for admin, instead of `admin_listen` in the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<String>,
}

impl Listen {
    /// Has every reading of a configuration in this process use these addresses.
    pub(crate) fn hold(&self) {
        let Self { listen, admin_listen } = self;
        Flags { listen: listen.clone(), admin_listen: admin_listen.clone() }.hold();
    }
}
