//! Memory for request bodies, which all requests share.
//!
//! One body has a limit of its own; thousands that keep it can still be more than the machine has,
//! above all when they unpack to a thousand times what was sent. So every body is charged to one
//! account while its request lives, and what would overdraw it is refused.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::error::InferError;

/// The bytes of bodies held now.
#[derive(Debug, Default)]
pub(crate) struct BufferBudget(AtomicU64);

/// What one request holds of a [`BufferBudget`], given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<BufferBudget>,
    limit_bytes: u64,
    bytes: u64,
}

impl BufferBudget {
    /// Nothing yet of what may be `limit_bytes` in all.
    pub(crate) fn share(self: &Arc<Self>, limit_bytes: u64) -> Share {
        Share { budget: Arc::clone(self), limit_bytes, bytes: 0 }
    }
}

impl Share {
    /// Takes `bytes` more, if all requests together have room for them.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), InferError> {
        let held_bytes = self.budget.0.fetch_add(bytes, Relaxed).saturating_add(bytes);
        self.bytes += bytes;
        let limit_bytes = self.limit_bytes;
        if held_bytes > limit_bytes {
            return Err(InferError::OutOfRoom { held_bytes, limit_bytes });
        }
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_request_holds_another_cannot_until_it_is_given_back() {
        let budget = Arc::new(BufferBudget::default());
        let (mut one, mut two) = (budget.share(100), budget.share(100));
        assert!(one.grow(60).is_ok() && one.grow(40).is_ok());
        assert_eq!(two.grow(1).unwrap_err().status(), 503);
        drop((one, two));
        assert!(budget.share(100).grow(100).is_ok());
    }
}
