//! Several routers on etcd: one leads and plans, all of them serve.
//!
//! Who leads is decided by [`policy::lead`] over a lease in etcd. Whoever does takes over before it
//! acts: it reads the jobs that are kept there, makes every worker refuse the leader before it, and
//! hears what each has by then. What it writes to etcd is guarded by its term, what it tells workers
//! carries it, so that a leader that was paused changes nothing when it wakes.

mod mirror;
mod name;
mod tell;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use config::Etcd;
use etcd::{Client, EtcdError, Txn};
use policy::lead::{Answer, Ask};
use serde_json::json;
use store::{Change, Records};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use self::name::Name;
use crate::{
    fleet::Fleet,
    leader::{Leader, Leadership, Turn},
    plane::DataPlane,
    records::{About, Keys, SharedRecords, record},
};

/// How many times a member of etcd may be waited for in a lease.
const PATIENCE: u32 = 4;
/// How soon a listing that failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// Events that may wait to be taken in.
const EVENTS: usize = 16;

#[derive(Debug)]
pub struct Election {
    client: Arc<Client>,
    keys: Keys,
    leadership: Arc<Leadership>,
    plane: Arc<dyn DataPlane>,
    fleet: Arc<Fleet>,
    events: mpsc::Sender<Event>,
    /// There is no leader, so that there is no reason to wait.
    vacant: Notify,
    /// What is known must be read anew.
    outdated: Notify,
    lease: Duration,
    me: Leader,
    name: Name,
}

#[derive(Debug)]
pub enum Event {
    /// This router leads, and must take over before it acts.
    Led(Led),
    /// All that is stored, at a router that does not lead.
    Read(Records),
    Changed(Change),
    Deposed,
}

#[derive(Debug)]
pub struct Led {
    pub term: u64,
    pub began: Instant,
    pub records: Records,
    /// The workers that the leader before it knew.
    pub workers: BTreeSet<String>,
}

#[derive(Debug)]
pub struct Candidacy {
    pub election: Arc<Election>,
    /// The tasks behind it; dropped, it stands no more.
    pub tasks: JoinSet<()>,
    pub events: mpsc::Receiver<Event>,
}

/// What an election needs before there is a router.
#[derive(Debug)]
pub struct Ground {
    client: Arc<Client>,
    keys: Keys,
    leadership: Arc<Leadership>,
    lease: Duration,
    me: Leader,
}

impl Ground {
    /// From the configuration, for a router whose admin is at `admin`. Asks nothing yet.
    pub fn new(etcd: &Etcd, admin: std::net::SocketAddr) -> Self {
        let address = etcd.advertise.clone().unwrap_or_else(|| admin.to_string());
        let name = etcd.name.clone().unwrap_or_else(|| address.clone());
        let client = Arc::new(Client::new(etcd.members.clone(), etcd.lease / PATIENCE));
        Self {
            leadership: Leadership::elected(etcd.lease, Arc::clone(&client)),
            client,
            keys: Keys::under(&etcd.prefix),
            lease: etcd.lease,
            me: Leader { name, admin: format!("http://{address}") },
        }
    }

    pub fn leadership(&self) -> &Arc<Leadership> {
        &self.leadership
    }

    /// Where jobs are kept. Must be called inside a runtime.
    pub fn records(&self) -> SharedRecords {
        SharedRecords {
            client: Arc::clone(&self.client),
            keys: self.keys.clone(),
            leadership: Arc::clone(&self.leadership),
            runtime: Handle::current(),
        }
    }

    /// Stands for election from now on, until the tasks are dropped. The other routers are told what
    /// `plane` is asked for, and which workers are in `fleet`.
    pub fn stand(self, plane: Arc<dyn DataPlane>, fleet: Arc<Fleet>) -> Candidacy {
        let (sender, events) = mpsc::channel(EVENTS);
        let election = Arc::new(Election {
            name: Name::new(self.keys.router(&self.me.name)),
            client: self.client,
            keys: self.keys,
            leadership: self.leadership,
            plane,
            fleet,
            events: sender,
            vacant: Notify::new(),
            outdated: Notify::new(),
            lease: self.lease,
            me: self.me,
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&election).run());
        tasks.spawn(Arc::clone(&election).tell());
        tasks.spawn(mirror::run(Arc::clone(&election)));
        Candidacy { election, tasks, events }
    }
}

impl Election {
    /// Lets another lead at once.
    pub async fn resign(&self) {
        let lease = self.leadership.lease();
        self.leadership.depose(None);
        if let Some(lease) = lease {
            // Without it, the others wait until the lease has ended.
            let _ = self.client.revoke(lease).await;
        }
    }

    async fn run(self: Arc<Self>) {
        let mut readings = JoinSet::new();
        while let Some((ask, at)) = self.leadership.next() {
            tokio::select! {
                () = sleep_until(at) => {}
                () = self.vacant.notified() => continue,
            }
            let sent = Instant::now();
            let answer = self.put(ask).await;
            match self.leadership.answered(ask, answer, sent) {
                Some(Turn::Began { term }) => {
                    tracing::info!(term, "this router leads");
                    self.leadership.set_leader(Some(self.me.clone()));
                    readings.abort_all();
                    readings.spawn(Arc::clone(&self).read(term));
                }
                Some(Turn::Ended { term }) => {
                    tracing::warn!(term, "lost leadership; still serving, planning stopped");
                    readings.abort_all();
                    self.leadership.set_leader(None);
                    self.outdated.notify_one();
                    self.say(Event::Deposed).await;
                }
                None => {}
            }
            while readings.try_join_next().is_some() {}
        }
    }

    async fn put(&self, ask: Ask) -> Answer {
        let asked = match ask {
            Ask::Grant { before } => self.grant(before).await,
            Ask::Campaign { lease } => self.campaign(lease).await,
            Ask::Renew { lease } => {
                let renewed = self.client.renew(lease).await;
                renewed.map(|left| left.map_or(Answer::Gone, |_| Answer::Renewed))
            }
        };
        let (answer, problem) = match asked {
            Ok(answer) => (answer, None),
            Err(EtcdError::Refused { words }) if words.contains("lease not found") => {
                (Answer::Gone, None)
            }
            Err(error) => (Answer::Failed, Some(error.to_string())),
        };
        if self.leadership.set_problem(problem.clone()) {
            match problem {
                Some(error) => tracing::warn!(error, "etcd unavailable; inference continues"),
                None => tracing::info!("etcd available again"),
            }
        }
        answer
    }

    async fn grant(&self, before: Option<u64>) -> Result<Answer, EtcdError> {
        if let Some(before) = before {
            // It may have ended by itself.
            let _ = self.client.revoke(before).await;
        }
        let lease = self.client.grant(self.lease).await?;
        Ok(Answer::Granted { lease: lease.id, ttl: lease.ttl })
    }

    async fn campaign(&self, lease: u64) -> Result<Answer, EtcdError> {
        // Nobody could tell two leaders of one name apart.
        if !self.name.is_ours(lease) && !self.hold_name(lease).await? {
            return Ok(Answer::Lost);
        }
        let (key, me) = (self.keys.leader(), json!(self.me).to_string());
        let txn = Txn::guarded(&key, 0).put_leased(&key, &me, lease);
        let done = self.client.transact(&txn).await?;
        Ok(match done.found {
            _ if done.held => Answer::Won { term: done.revision },
            // An answer before was lost on its way.
            Some(found) if found.lease == lease => Answer::Won { term: found.created },
            Some(found) => {
                self.leadership.set_leader(serde_json::from_str(&found.value).ok());
                Answer::Lost
            }
            None => Answer::Lost,
        })
    }

    /// Reads what a leader must know before it acts.
    async fn read(self: Arc<Self>, term: u64) {
        let began = Instant::now();
        let listed = loop {
            match self.client.list(self.keys.all()).await {
                Ok(listed) => break listed,
                Err(_) if self.leadership.term() == Some(term) => sleep(AGAIN).await,
                Err(_) => return,
            }
        };
        let (mut records, mut workers) = (Records::new(), BTreeSet::new());
        for pair in &listed.pairs {
            match self.keys.about(&pair.key) {
                About::Record(key) => record(key, &pair.value, &mut records),
                About::Worker(name) => {
                    workers.insert(name.to_owned());
                }
                About::Leader | About::Router(_) | About::Other => {}
            }
        }
        self.say(Event::Led(Led { term, began, records, workers })).await;
    }

    /// Tells whoever follows the election; if nobody does any more, the router ends.
    async fn say(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    fn is_me(&self, name: &str) -> bool {
        name == self.me.name
    }
}
