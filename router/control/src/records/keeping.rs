//! Where jobs and orders are kept, if anywhere.

use store::{Change, Store};

use super::{KeepError, SharedRecords};

#[derive(Debug)]
pub(crate) enum Keeping {
    Nowhere,
    File(Store),
    Etcd(SharedRecords),
    /// With another process, which is taking over from this one or has not handed over yet.
    Elsewhere,
}

impl Keeping {
    /// Makes `change` durable.
    pub(crate) fn commit(&mut self, change: Change) -> Result<(), KeepError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::File(store) => Ok(store.commit(change)?),
            Self::Etcd(records) => records.commit(change),
            Self::Elsewhere => Err(KeepError::HandingOver),
        }
    }
}
