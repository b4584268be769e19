//! Starting in place of another router: its listeners, its replicas and its state.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use control::Stored;
use serve::doors::oip::ServerState;
use store::OpenError;
use tokio::net::TcpListener;

use super::StartError;
use crate::{
    bind::{Port, bind},
    election::Ground,
    handover::{self, message::Frozen, take::Taken},
    jobs::Jobs,
    leader::Leadership,
    learned::Learned,
    orders::Orders,
    registry::Registry,
};

/// Listeners that are bound here, or that the router before had.
pub(super) struct Listeners<'t> {
    pub(super) taken: Option<&'t mut Taken>,
    /// By name, to be passed on to the next.
    pub(super) copies: Vec<(&'static str, OwnedFd)>,
}

impl Listeners<'_> {
    pub(super) async fn bind(
        &mut self,
        port: Port,
        address: SocketAddr,
    ) -> Result<TcpListener, StartError> {
        let name = match port {
            Port::Inference => handover::INFERENCE,
            Port::Admin => handover::ADMIN,
            Port::Join => handover::JOIN,
        };
        let taken = self.taken.as_mut().and_then(|taken| taken.listener(name, address));
        let listener = match taken {
            Some(listener) => TcpListener::from_std(listener)?,
            None => bind(port, address).await?,
        };
        self.copies.push((name, listener.as_fd().try_clone_to_owned()?));
        Ok(listener)
    }
}

/// The stores; of a router that replaces another they are opened later.
pub(super) fn stored(
    ground: Option<&Ground>,
    state_dir: Option<&Path>,
    replaces: bool,
) -> Result<Stored, OpenError> {
    let (jobs, orders, leadership) = match ground {
        Some(ground) => (
            Jobs::shared(ground.records()),
            Orders::shared(ground.records()),
            Arc::clone(ground.leadership()),
        ),
        None if replaces => (Jobs::elsewhere(), Orders::elsewhere(), Leadership::alone()),
        None => (Jobs::open(state_dir)?, Orders::open(state_dir)?, Leadership::alone()),
    };
    let learned = if replaces { Learned::elsewhere() } else { Learned::open(state_dir)? };
    Ok(Stored { jobs, orders, learned, leadership })
}

/// Connects to what the router before serves, has it stand still, and opens what it has closed.
pub(super) async fn begin(
    state: &ServerState<Registry>,
    state_dir: Option<&Path>,
    taken: &mut Taken,
) -> Result<(), StartError> {
    let control = state.backend.control();
    state.drain.accept(false);
    control.fleet().speak(false);
    control.pause().from_the_start();
    let frozen = taken.attach(&state.backend).await?;
    reopen(state, state_dir, frozen).await?;
    control.fleet().speak(true);
    Ok(())
}

/// Opens the stores that the router before has closed.
async fn reopen(
    state: &ServerState<Registry>,
    state_dir: Option<&Path>,
    frozen: Frozen,
) -> Result<(), StartError> {
    let (control, state_dir) = (Arc::clone(state.backend.control()), state_dir.map(Path::to_owned));
    let opened = tokio::task::spawn_blocking(move || {
        let state_dir = state_dir.as_deref();
        control.jobs().reopen(state_dir, frozen.jobs.as_ref())?;
        control.orders().reopen(state_dir, frozen.orders.as_ref())?;
        control.learned().reopen(state_dir, frozen.learned.as_ref())
    });
    match opened.await {
        Ok(opened) => Ok(opened?),
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
