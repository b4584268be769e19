//! What a router writes of itself for the others to read, and, while it leads, of the workers.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use etcd::{EtcdError, Txn};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::{Election, name::Held};
use crate::{leader::Registration, records::About};

const TELL_EVERY: Duration = Duration::from_secs(1);
/// Workers written down, and struck off, at once.
const AT_ONCE: usize = 50;

impl Election {
    /// Tells the others of this router, and, while it leads, of the workers.
    pub(super) async fn tell(self: Arc<Self>) {
        let mut ticks = interval(TELL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = None;
        loop {
            ticks.tick().await;
            let Some(lease) = self.leadership.lease() else { continue };
            // What is not heard now is heard with the next.
            let _ = self.hold_name(lease).await;
            match self.leadership.acts() {
                Some(term) => self.register(term, self.fleet.names(), &mut told).await,
                None => told = None,
            }
        }
    }

    /// Says under its name what this router is asked for; whether the name is its own.
    pub(super) async fn hold_name(&self, lease: u64) -> Result<bool, EtcdError> {
        let traffic = self.plane.traffic();
        let models = traffic.iter().map(|(model, traffic)| (model.clone(), traffic.into()));
        let registration = Registration { admin: self.me.admin.clone(), models: models.collect() };
        let value = json!(registration).to_string();
        let held = self.name.hold(&self.client, lease, &value).await?;
        let name = &self.me.name;
        match &held {
            Held::Taken { by } => {
                if self.leadership.set_rival(Some(by.clone())) {
                    tracing::error!(name, by, "router name already in use; not ready, cannot lead");
                }
                self.leadership.depose(None);
            }
            Held::Ours => {
                if self.leadership.set_rival(None) {
                    tracing::info!(name, "router name no longer in use by another router");
                }
            }
            Held::Pending => {}
        }
        Ok(held == Held::Ours)
    }

    async fn register(
        &self,
        term: u64,
        there: BTreeSet<String>,
        told: &mut Option<BTreeSet<String>>,
    ) {
        let Some(known) = self.registered(told).await else { return };
        let mut txn = Txn::guarded(&self.keys.leader(), term);
        let new: Vec<String> = there.difference(known).take(AT_ONCE).cloned().collect();
        let gone: Vec<String> = known.difference(&there).take(AT_ONCE).cloned().collect();
        if new.is_empty() && gone.is_empty() {
            return;
        }
        for name in &new {
            txn = txn.put(&self.keys.worker(name), &json!({"term": term}).to_string());
        }
        for name in &gone {
            txn = txn.delete(&self.keys.worker(name));
        }
        if self.client.transact(&txn).await.is_ok_and(|done| done.held) {
            known.extend(new);
            known.retain(|name| !gone.contains(name));
        }
    }

    /// The workers that are written down; read first if they are not known.
    async fn registered<'t>(
        &self,
        told: &'t mut Option<BTreeSet<String>>,
    ) -> Option<&'t mut BTreeSet<String>> {
        if told.is_none() {
            let listed = self.client.list(&self.keys.worker("")).await.ok()?;
            let names = listed.pairs.iter().filter_map(|pair| match self.keys.about(&pair.key) {
                About::Worker(name) => Some(name.to_owned()),
                About::Leader | About::Router(_) | About::Record(_) | About::Other => None,
            });
            *told = Some(names.collect());
        }
        told.as_mut()
    }
}
