//! A new file for a running worker: `SIGHUP` applies all of it or nothing.

use std::path::PathBuf;

use config::{Config, Effect};
use tokio::{signal::unix::Signal, sync::watch, task::spawn_blocking};
use worker::Lending;

use crate::program::{lend, warned};

/// What a reload changes, and from what.
pub(super) struct Running {
    pub(super) file: PathBuf,
    pub(super) config: Config,
    pub(super) run_dir: PathBuf,
    pub(super) lending: watch::Sender<Option<Lending>>,
}

/// Reads the file again at each hangup.
pub(super) async fn follow(mut hangups: Signal, mut running: Running) {
    while hangups.recv().await.is_some() {
        let file = running.file.clone();
        let read = spawn_blocking(move || {
            let (config, warnings) = config::load(&file).map_err(|why| why.to_string())?;
            config.check_worker().map_err(|why| why.to_string())?;
            Ok::<_, String>((config, warnings))
        });
        match read.await {
            Ok(Ok(read)) => running.apply(read),
            Ok(Err(problems)) => {
                tracing::error!(problems, "new configuration rejected; the old one stays");
            }
            Err(error) => tracing::error!(%error, "new configuration not read; the old one stays"),
        }
    }
}

impl Running {
    fn apply(&mut self, read: (Config, config::Warnings)) {
        let changes = config::diff(&self.config, &read.0);
        let paths = |wanted: Option<Effect>| {
            let of = changes.iter().filter(|one| wanted.is_none_or(|wanted| one.effect == wanted));
            of.map(|change| change.path.as_str()).collect::<Vec<_>>().join(", ")
        };
        let restart = paths(Some(Effect::Restart));
        if !restart.is_empty() {
            let error = format!("{restart} can only change with a restart");
            tracing::error!(error, "new configuration rejected; the old one stays");
            return;
        }
        let changed = paths(None);
        // Warns, and has the log follow it.
        if let Ok(config) = warned(Ok(read)) {
            lend(&config, &self.run_dir, &self.lending);
            self.config = config;
            tracing::info!(changed, "configuration reloaded");
        }
    }
}
