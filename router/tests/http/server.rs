//! Both listeners on free ports, stopped when the test ends.

use std::{
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use config::{AccessLog, Key, ObjectiveError, ReadyWhen, RouterSettings, Tenant};
use router::{
    admin::{self, Admin, Hooks},
    orders::{Order, OrderError},
    reload::ReloadError,
};
use serde_json::json;
use serve::{
    auth::Access,
    doors::oip::{self, ServerState, backend::Backend},
    drain::{Drain, Ended, StopSignal, Times},
};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

use crate::{
    client::Client,
    model::{Echo, Models},
};

/// Far longer than anything here takes; only a hang gets this far.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is not under test must not be what ends a test.
pub(crate) const FOREVER: Duration = Duration::from_secs(3_600);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) state: Arc<ServerState<Models>>,
    reload: Arc<Mutex<Option<ReloadError>>>,
    pub(crate) signal: mpsc::Sender<StopSignal>,
    pub(crate) ended: JoinHandle<Ended>,
}

pub(crate) fn settings() -> RouterSettings {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    RouterSettings {
        listen: local,
        admin_listen: local,
        join_listen: None,
        join_token_file: None,
        state_dir: None,
        max_body_bytes: 64 << 10,
        max_decompressed_bytes: 128 << 10,
        max_buffered_bytes: 1 << 30,
        max_header_bytes: 8 << 10,
        max_connections: 1_000,
        header_timeout: FOREVER,
        body_timeout: FOREVER,
        idle_timeout: FOREVER,
        drain_delay: Duration::ZERO,
        drain_timeout: FOREVER,
        ready: ReadyWhen::Serving,
        ready_timeout: FOREVER,
        access_log: AccessLog::All,
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(settings(), &[], &[]).await
    }

    pub(crate) async fn limited(limit: impl FnOnce(&mut RouterSettings)) -> Self {
        let mut settings = settings();
        limit(&mut settings);
        Self::with(settings, &[], &[]).await
    }

    pub(crate) async fn with(settings: RouterSettings, tenants: &[Tenant], keys: &[Key]) -> Self {
        let drain = Arc::new(Drain::default());
        let access = Access::new(tenants, keys);
        let models = Models::new(settings.ready == ReadyWhen::All);
        let state = Arc::new(ServerState::new(models, settings, access, Arc::clone(&drain)));
        let tcp = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let admin_tcp = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, admin) = (tcp.local_addr().unwrap(), admin_tcp.local_addr().unwrap());

        let reload = Arc::new(Mutex::new(None));
        let next_reload = Arc::clone(&reload);
        let hooks = Hooks {
            jobs: None,
            metrics: Box::new(|| "every metric\n".to_owned()),
            state: Box::new(|| json!({"models": []})),
            workers: Box::new(|| json!({"workers": []})),
            history: Box::new(|| json!({})),
            events: Box::new(|after| json!({"started_ms": after, "events": []})),
            reload: Box::new(move |_| {
                let failed = next_reload.lock().unwrap().take();
                Box::pin(async move { failed.map_or_else(|| Ok(json!({"changes": []})), Err) })
            }),
            objective: Box::new(|asked| {
                Box::pin(async move {
                    if asked.model == "echo" {
                        return Ok(json!({"applied": asked.apply}));
                    }
                    Err(ObjectiveError::UnknownModel { model: asked.model, hint: String::new() }
                        .into())
                })
            }),
            order: Box::new(|order| {
                Box::pin(async move {
                    match order {
                        Order::Drain { worker, .. } if worker != "east" => {
                            Err(OrderError::UnknownWorker { worker, hint: String::new() })
                        }
                        Order::Drain { by, apply, .. } => Ok(json!({"by": by, "applied": apply})),
                        Order::Return { by, .. } => Ok(json!({"by": by})),
                        Order::Pin { model, asked, .. } => {
                            Ok(json!({"model": model, "at": asked.at()}))
                        }
                        Order::Unpin { model, at, .. } => Ok(json!({"model": model, "at": at})),
                    }
                })
            }),
        };
        let administration = Arc::new(Admin::new(Arc::clone(&state), hooks));
        tokio::spawn(admin::serve(admin_tcp, administration, std::future::pending::<()>()));

        let (signal, mut signals) = mpsc::channel(4);
        let serving = oip::serve(tcp, Arc::clone(&state));
        let shared = Arc::clone(&state);
        let ended = tokio::spawn(async move {
            let serving = tokio::spawn(serving);
            let times = || {
                let settings = shared.settings.load();
                Times { delay: settings.drain_delay, timeout: settings.drain_timeout }
            };
            drain.run(&mut signals, times, serving).await
        });
        Self { address, admin, state, reload, signal, ended }
    }

    /// Has the next reload fail.
    pub(crate) fn fail_reload(&self, error: ReloadError) {
        *self.reload.lock().unwrap() = Some(error);
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    pub(crate) async fn admin_client(&self) -> Client {
        Client::connect(self.admin).await
    }

    pub(crate) fn model(&self, name: &str) -> Arc<Echo> {
        self.state.backend.model(name).unwrap()
    }
}

/// Waits for what must happen; a hang becomes a failure that says where.
#[track_caller]
pub(crate) fn soon<F: Future>(what: &'static str, event: F) -> impl Future<Output = F::Output> {
    let at = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, event).await {
            Ok(output) => output,
            Err(_) => panic!("{at}: {what} did not happen within {PATIENCE:?}"),
        }
    }
}
