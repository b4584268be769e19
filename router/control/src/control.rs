//! The control plane's parts: what it stores and knows, and whether it may act.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use config::Config;
use store::{Change, Records};

use crate::{
    clock::{WallClock, whole_ms},
    fleet::Fleet,
    jobs::Jobs,
    leader::Leadership,
    learned::Learned,
    orders::Orders,
    pause::Pause,
    plan::Planned,
    plane::DataPlane,
};

#[derive(Debug)]
pub struct Control {
    plane: Arc<dyn DataPlane>,
    leadership: Arc<Leadership>,
    jobs: Arc<Jobs>,
    orders: Arc<Orders>,
    learned: Arc<Learned>,
    fleet: Arc<Fleet>,
    planned: Arc<Planned>,
    config: ArcSwap<Config>,
    clock: WallClock,
    pause: Pause,
    /// When the last round ended, in milliseconds since the start.
    turned_ms: AtomicU64,
}

/// How long a control round may take until it is taken to hang.
const STALLED: Duration = Duration::from_secs(10);

/// What the control plane has stored, and whether this router may change it.
#[derive(Debug)]
pub struct Stored {
    pub jobs: Arc<Jobs>,
    pub orders: Arc<Orders>,
    pub learned: Arc<Learned>,
    pub leadership: Arc<Leadership>,
}

impl Control {
    /// The control plane over `plane`, without workers yet.
    pub fn new(config: Config, plane: Arc<dyn DataPlane>, stored: Stored) -> Arc<Self> {
        let Stored { jobs, orders, learned, leadership } = stored;
        Arc::new(Self {
            fleet: Arc::new(Fleet::new(Arc::clone(&plane), Arc::clone(&leadership))),
            plane,
            leadership,
            planned: Arc::default(),
            jobs,
            orders,
            learned,
            config: ArcSwap::from_pointee(config),
            clock: WallClock::start(),
            pause: Pause::default(),
            turned_ms: AtomicU64::new(0),
        })
    }

    pub fn plane(&self) -> &Arc<dyn DataPlane> {
        &self.plane
    }

    pub fn leadership(&self) -> &Arc<Leadership> {
        &self.leadership
    }

    pub fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    pub fn learned(&self) -> &Arc<Learned> {
        &self.learned
    }

    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    pub fn planned(&self) -> &Arc<Planned> {
        &self.planned
    }

    pub fn pause(&self) -> &Pause {
        &self.pause
    }

    pub fn clock(&self) -> WallClock {
        self.clock
    }

    /// A round has ended, or there is none to do at a router that follows.
    pub(crate) fn turned(&self) {
        self.turned_ms.store(whole_ms(self.clock.elapsed()), Ordering::Relaxed);
    }

    /// Since when no round has ended, if that is too long at the router that leads.
    pub fn stalled(&self) -> Option<Duration> {
        self.leadership.acts()?;
        let turned = Duration::from_millis(self.turned_ms.load(Ordering::Relaxed));
        let since = self.clock.elapsed().saturating_sub(turned);
        (since > STALLED).then_some(since)
    }

    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub fn configure(&self, config: Arc<Config>) {
        self.config.store(config);
        self.fleet.poke();
    }

    /// Replaces all jobs and orders by what is stored. May wait for a change that is being written.
    pub fn take_records(&self, records: &Records) {
        self.jobs.replace(records);
        self.orders.replace(records);
    }

    /// Takes in what another router changed. May wait for a change that is being written.
    pub fn take_change(&self, change: Change) {
        self.orders.learn(change.clone());
        self.jobs.learn(change);
    }
}
