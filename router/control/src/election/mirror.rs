//! What is in etcd, as it changes: who leads, what the other routers are asked for, and jobs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use etcd::{Listed, WatchError};
use store::{Change, Records};
use tokio::time::sleep;

use super::{Election, Event};
use crate::{
    leader::Leader,
    records::{About, record},
};

/// Waits before something is tried again double up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long a watch may be silent; every router says something each second.
const SILENCE: Duration = Duration::from_secs(10);

/// Follows what is in etcd, for ever.
pub(super) async fn run(election: Arc<Election>) {
    let mut wait = FIRST_WAIT;
    loop {
        let Ok(listed) = election.client.list(election.keys.all()).await else {
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            continue;
        };
        wait = FIRST_WAIT;
        election.learn(&listed).await;
        tokio::select! {
            () = follow(&election, listed.revision.saturating_add(1)) => {}
            () = election.outdated.notified() => {}
        }
        sleep(FIRST_WAIT).await;
    }
}

/// Takes in changes from revision `next` on, until they must be listed anew.
async fn follow(election: &Election, mut next: u64) {
    // Without a watch there is nothing to go by but a listing.
    while let Ok(mut watch) = election.client.watch(election.keys.all(), next).await {
        loop {
            match watch.next(SILENCE).await {
                Ok(events) => election.take(&events).await,
                Err(error @ WatchError::Compacted { .. }) => {
                    tracing::info!(%error, "reading all etcd records again");
                    return;
                }
                Err(error @ WatchError::Ended { .. }) => {
                    tracing::warn!(%error, "etcd watch ended; watching again");
                    break;
                }
            }
        }
        next = watch.next_revision();
        sleep(FIRST_WAIT).await;
    }
}

impl Election {
    async fn learn(&self, listed: &Listed) {
        let (mut records, mut routers) = (Records::new(), BTreeSet::new());
        let mut leader = None;
        for pair in &listed.pairs {
            match self.keys.about(&pair.key) {
                About::Leader => leader = serde_json::from_str(&pair.value).ok(),
                About::Router(name) if !self.is_me(name) => {
                    routers.insert(name);
                    self.hear(name, &pair.value);
                }
                About::Record(key) => record(key, &pair.value, &mut records),
                About::Router(_) | About::Worker(_) | About::Other => {}
            }
        }
        self.leadership.peers().retain(|name| routers.contains(name));
        self.name(leader);
        if self.leadership.term().is_none() {
            self.say(Event::Read(records)).await;
        }
    }

    async fn take(&self, events: &[etcd::Event]) {
        let mut change = Change::default();
        for event in events {
            self.check(event);
            let (key, value) = match event {
                etcd::Event::Put(pair) => (&pair.key, Some(&*pair.value)),
                etcd::Event::Deleted { key } => (key, None),
            };
            match (self.keys.about(key), value) {
                (About::Leader, value) => {
                    self.name(value.and_then(|value| serde_json::from_str(value).ok()));
                }
                (About::Router(name), Some(value)) if !self.is_me(name) => self.hear(name, value),
                (About::Router(name), None) => self.leadership.peers().forget(name),
                (About::Record(key), Some(value)) => {
                    if let Ok(value) = serde_json::from_str(value) {
                        change = change.put(key, value);
                    }
                }
                (About::Record(key), None) => change = change.delete(key),
                (About::Router(_) | About::Worker(_) | About::Other, _) => {}
            }
        }
        if self.leadership.term().is_none() && !change.is_empty() {
            self.say(Event::Changed(change)).await;
        }
    }

    /// Leads no more if another has come to lead since, which only a key changed by hand can bring about
    /// before its lease has ended.
    fn check(&self, event: &etcd::Event) {
        if let (etcd::Event::Put(pair), Some(term)) = (event, self.leadership.term())
            && self.keys.about(&pair.key) == About::Leader
            && pair.created > term
        {
            self.leadership.depose(Some(term));
        }
    }

    fn name(&self, leader: Option<Leader>) {
        let vacant = leader.is_none();
        self.leadership.set_leader(leader);
        if vacant {
            self.vacant.notify_one();
        }
    }

    fn hear(&self, name: &str, value: &str) {
        match serde_json::from_str(value) {
            Ok(registration) => self.leadership.peers().hear(name, registration),
            Err(error) => {
                tracing::warn!(router = name, %error, "ignored router registration: unknown format")
            }
        }
    }
}
