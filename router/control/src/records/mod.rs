//! What must outlive a router, kept in etcd, where the next one finds it.

mod keeping;
mod keys;

use std::{path::Path, sync::Arc};

use etcd::{Client, EtcdError, Txn};
use store::{Change, CommitError, OpenError, Records, Schema, Store};
use tokio::runtime::Handle;

pub(crate) use self::{
    keeping::Keeping,
    keys::{About, Keys},
};
use crate::leader::{Leader, Leadership};

/// Changes in one transaction; etcd takes 128 unless told otherwise.
const AT_ONCE: usize = 100;

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    File(#[from] CommitError),
    /// Nobody could be asked, so that it may have been kept or not.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another process has the store at the moment.
    #[error("this router is being replaced by a new one; try again in a second")]
    HandingOver,
    /// Only the router that leads may change it.
    #[error("this router does not lead; {}", whom(.leader.as_ref()))]
    Follows { leader: Option<Leader> },
}

fn whom(leader: Option<&Leader>) -> String {
    leader.map_or_else(
        || "nobody is known to".to_owned(),
        |leader| format!("{} does, at {}", leader.name, leader.admin),
    )
}

/// Records in etcd, which only the leader may change.
#[derive(Clone, Debug)]
pub struct SharedRecords {
    pub(crate) client: Arc<Client>,
    pub(crate) keys: Keys,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) runtime: Handle,
}

impl SharedRecords {
    /// Makes `change` durable, or says why not. Blocks: only for a thread that may.
    ///
    /// Where it is large, some of it may have been made durable though the rest failed: records
    /// stand for themselves, and what a leader is not told of it writes anew.
    pub fn commit(&self, change: Change) -> Result<(), KeepError> {
        let follows = || KeepError::Follows { leader: self.leadership.leader() };
        let term = self.leadership.acts().ok_or_else(follows)?;
        let (put, delete) = change.into_parts();
        let mut steps = put
            .into_iter()
            .map(|(key, value)| (key, Some(value.to_string())))
            .chain(delete.into_iter().map(|key| (key, None)))
            .peekable();
        while steps.peek().is_some() {
            let mut txn = Txn::guarded(&self.keys.leader(), term);
            for (key, value) in steps.by_ref().take(AT_ONCE) {
                let key = self.keys.record(&key);
                txn = match value {
                    Some(value) => txn.put(&key, &value),
                    None => txn.delete(&key),
                };
            }
            let done = self.runtime.block_on(self.client.transact(&txn))?;
            if !done.held {
                tracing::warn!(term, "etcd rejected a write: this router lost leadership");
                self.leadership.depose(Some(term));
                return Err(follows());
            }
        }
        Ok(())
    }
}

/// Opens the store at `path`, and logs what was set aside.
pub(crate) fn open(path: &Path, schema: &Schema) -> Result<Store, OpenError> {
    let opened = Store::open(path, schema)?;
    if let Some(torn) = &opened.torn {
        tracing::warn!(kept = %torn.display(), "set aside an unfinished write");
    }
    Ok(opened.store)
}

/// The record of a pair; nothing if it is not JSON, which no router writes.
pub(crate) fn record(key: &str, value: &str, records: &mut Records) {
    match serde_json::from_str(value) {
        Ok(value) => {
            records.insert(key.to_owned(), value);
        }
        Err(error) => tracing::error!(key, %error, "skipped etcd record: invalid JSON"),
    }
}
