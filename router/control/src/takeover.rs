//! What a router does when it comes to lead, and when it no longer does.

use std::{panic::resume_unwind, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinSet, spawn_blocking},
    time::timeout_at,
};

use crate::{
    control::Control,
    election::{Event, Led},
};

/// How long a new leader waits for workers to hear of it. One that is connected takes milliseconds,
/// and one that lost its connection dials each second.
const FENCE_WAIT: Duration = Duration::from_millis(1500);

/// Follows the election until it ends.
pub async fn run(control: Arc<Control>, mut events: mpsc::Receiver<Event>) {
    let mut takeovers = JoinSet::new();
    while let Some(event) = events.recv().await {
        // A leader knows its own changes, and what it reads may be older.
        let follows = control.leadership().term().is_none();
        match event {
            Event::Led(led) => {
                takeovers.abort_all();
                takeovers.spawn(take_over(Arc::clone(&control), led));
            }
            Event::Read(records) if follows => {
                aside(&control, move |control| control.take_records(&records)).await;
            }
            Event::Changed(change) if follows => {
                aside(&control, move |control| control.take_change(change)).await;
            }
            Event::Read(_) | Event::Changed(_) => {}
            Event::Deposed => {
                takeovers.abort_all();
                control.fleet().withdraw();
            }
        }
        while takeovers.try_join_next().is_some() {}
    }
}

/// Learns all that a leader must know before it acts.
async fn take_over(control: Arc<Control>, led: Led) {
    let Led { term, began, records, workers } = led;
    aside(&control, move |control| control.take_records(&records)).await;
    let fleet = control.fleet();
    loop {
        let mut changed = fleet.changed();
        if fleet.has_heard(term, &workers) {
            break;
        }
        if timeout_at(began + FENCE_WAIT, changed.changed()).await.is_err() {
            tracing::warn!("workers did not report in time; using their last reports");
            break;
        }
    }
    let (jobs, took_ms) = (control.jobs().unfinished().len(), began.elapsed().as_millis() as u64);
    let workers = workers.len();
    tracing::info!(term, jobs, workers, took_ms, "takeover finished");
    control.leadership().ready(term);
}

/// Does what may wait for a lock that is held while etcd is asked.
async fn aside(control: &Arc<Control>, learn: impl FnOnce(&Control) + Send + 'static) {
    let control = Arc::clone(control);
    if let Err(failed) = spawn_blocking(move || learn(&control)).await
        && failed.is_panic()
    {
        resume_unwind(failed.into_panic());
    }
}
