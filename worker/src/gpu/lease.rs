//! Slices in use by this worker.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

#[derive(Debug)]
pub struct Lease {
    uuid: String,
    leases: Leases,
}

impl Lease {
    pub fn uuid(&self) -> &str {
        &self.uuid
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut counts = self.leases.0.lock();
        if let Some(count) = counts.get_mut(&self.uuid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uuid);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Leases(Arc<Mutex<BTreeMap<String, usize>>>);

impl Leases {
    pub(super) fn take(&self, uuid: &str) -> Lease {
        *self.0.lock().entry(uuid.to_owned()).or_default() += 1;
        Lease { uuid: uuid.to_owned(), leases: self.clone() }
    }

    pub(super) fn has(&self, uuid: &str) -> bool {
        self.0.lock().contains_key(uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_leased_until_its_last_lease_is_dropped() {
        let leases = Leases::default();
        let first = leases.take("MIG-a");
        let second = leases.take("MIG-a");
        assert_eq!(first.uuid(), "MIG-a");
        assert!(!leases.has("MIG-b"));
        drop(first);
        assert!(leases.has("MIG-a"));
        drop(second);
        assert!(!leases.has("MIG-a"));
    }
}
