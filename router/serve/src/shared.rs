//! What all doors and listeners share: the settings in force, access, TLS, traces and the drain.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use config::{RouterSettings, Tls};
use tls::ServerConfig;

use crate::{
    auth::Access,
    body::{BodyLimits, buffer_budget::BufferBudget},
    drain::Drain,
    trace::Tracer,
};

/// A reload swaps each part whole.
#[derive(Debug)]
pub struct Shared {
    pub settings: ArcSwap<RouterSettings>,
    pub access: ArcSwap<Access>,
    pub drain: Arc<Drain>,
    /// Empty if no request is traced.
    pub tracer: ArcSwapOption<Tracer>,
    /// Empty if the listeners are plain.
    pub tls: ArcSwapOption<Tls>,
    pub(crate) buffers: Arc<BufferBudget>,
}

impl Shared {
    /// Without traces and TLS, which may come later.
    pub fn new(settings: RouterSettings, access: Access, drain: Arc<Drain>) -> Self {
        Self {
            settings: ArcSwap::from_pointee(settings),
            access: ArcSwap::from_pointee(access),
            drain,
            tracer: ArcSwapOption::empty(),
            tls: ArcSwapOption::empty(),
            buffers: Arc::default(),
        }
    }

    /// The TLS of HTTP connections that begin now.
    pub fn http_tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.load().as_ref().map(|tls| Arc::clone(&tls.http))
    }

    /// What a request's body may take, as the settings are now.
    pub(crate) fn body_limits(&self) -> BodyLimits {
        let settings = self.settings.load();
        BodyLimits::new(&settings, self.buffers.share(settings.max_buffered_bytes))
    }
}
