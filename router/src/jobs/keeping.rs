//! Where jobs are kept, if anywhere.

use store::{Change, Store};

use crate::lead::{KeepError, SharedRecords};

/// Where jobs are kept.
#[derive(Debug)]
pub(super) enum Keeping {
    /// Gone with the process.
    Nowhere,
    File(Store),
    Etcd(SharedRecords),
}

impl Keeping {
    /// Makes `change` durable.
    pub(super) fn commit(&mut self, change: Change) -> Result<(), KeepError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(store) => Ok(store.commit(change)?),
            Self::Etcd(records) => records.commit(change),
        }
    }
}
