//! The worker in the process of `sluice up`.

use std::time::Duration;

use router::{compose::LocalDoor, fleet::LOCAL, handover::give::WorkerCall};
use tokio::{sync::mpsc, time::sleep};
use worker::{Door, GpuSettings, Host, HostError, Launch};

/// Bytes between the router and the worker in this process that may wait to be read.
const WIRE: usize = 64 << 10;

/// The wait before the lock of a directory is tried again.
const AGAIN: Duration = Duration::from_millis(20);

/// A worker, and what it takes to start it again.
pub(super) struct LocalWorker {
    host: Host,
    gpus: Vec<GpuSettings>,
    launch: Launch,
}

impl LocalWorker {
    pub(super) async fn start(gpus: Vec<GpuSettings>, launch: Launch) -> Result<Self, HostError> {
        let host = Host::start(gpus.clone(), launch.clone()).await?;
        Ok(Self { host, gpus, launch })
    }

    /// Speaks with the router until that ends, and stops then, unless another process has what it
    /// had. While a successor takes over, nothing is controlled from here.
    pub(super) async fn run(
        self,
        door: LocalDoor,
        mut calls: mpsc::Receiver<WorkerCall>,
    ) -> Result<(), HostError> {
        let Self { mut host, gpus, launch } = self;
        loop {
            let Some(call) = converse(&host, &door, &mut calls).await else {
                host.stop().await;
                return Ok(());
            };
            let WorkerCall::Leave(left) = call else { continue };
            host.leave_running().await;
            let _ = left.send(());
            let returned = loop {
                match calls.recv().await {
                    Some(WorkerCall::Return(returned)) => break returned,
                    Some(WorkerCall::Leave(left)) => drop(left.send(())),
                    None => return Ok(()),
                }
            };
            host = again(&gpus, &launch).await?;
            let _ = returned.send(());
        }
    }
}

/// Starts again, as soon as the process that was to take over has let go.
async fn again(gpus: &[GpuSettings], launch: &Launch) -> Result<Host, HostError> {
    loop {
        match Host::start(gpus.to_vec(), launch.clone()).await {
            Err(HostError::Taken { .. }) => sleep(AGAIN).await,
            started => return started,
        }
    }
}

/// Speaks with the router until something is asked.
async fn converse(
    host: &Host,
    router: &LocalDoor,
    calls: &mut mpsc::Receiver<WorkerCall>,
) -> Option<WorkerCall> {
    let (ours, theirs) = tokio::io::duplex(WIRE);
    router.welcome(theirs);
    let door =
        Door { routers: Vec::new(), token: String::new(), name: LOCAL.to_owned(), tls: None };
    tokio::select! {
        biased;
        call = calls.recv() => return call,
        Err(error) = worker::converse(ours, &door, host) => if router.is_open() {
            // Both ends are in this process: only a stop, or a bug, can disconnect them.
            tracing::error!(%error, "router and worker disconnected");
        }
    }
    calls.recv().await
}
