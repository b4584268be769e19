//! Memory for request bodies, which all requests share.
//!
//! One body has a limit of its own; thousands that keep it can still be more than the machine has,
//! above all when they unpack to a thousand times what was sent. So every body is charged to one
//! account while its request lives, and what would overdraw it is refused. Before that, requests that
//! can only be late give up theirs.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::error::InferError;

/// How long those who were told to give up their bodies may take to.
const PATIENCE: Duration = Duration::from_millis(100);

/// The bytes of bodies held now.
#[derive(Debug, Default)]
pub(crate) struct BufferBudget {
    held: AtomicU64,
    relief: OnceLock<Relief>,
    freed: Notify,
    /// Those who wait for that.
    waiting: AtomicU32,
}

/// Has requests give up so many bytes, and says how many they will.
struct Relief(Box<dyn Fn(u64) -> u64 + Send + Sync>);

impl fmt::Debug for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relief")
    }
}

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

    /// Whom to ask to give up bytes when it is overdrawn. Only the first counts.
    pub(crate) fn relieve_by(&self, relief: impl Fn(u64) -> u64 + Send + Sync + 'static) {
        self.relief.get_or_init(|| Relief(Box::new(relief)));
    }

    /// Waits until no more than `limit_bytes` are held, if others can give up so much.
    async fn relieved(&self, limit_bytes: u64) -> bool {
        let over = self.held.load(SeqCst).saturating_sub(limit_bytes);
        let Some(Relief(relief)) = self.relief.get() else { return over == 0 };
        if over > 0 && relief(over) < over {
            return false;
        }
        let _counted = Counted::of(&self.waiting);
        let end = Instant::now() + PATIENCE;
        loop {
            let freed = self.freed.notified();
            if self.held.load(SeqCst) <= limit_bytes {
                return true;
            }
            if timeout_at(end, freed).await.is_err() {
                return false;
            }
        }
    }
}

/// One more of those counted, while it lives.
struct Counted<'c>(&'c AtomicU32);

impl<'c> Counted<'c> {
    fn of(count: &'c AtomicU32) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Share {
    /// Takes `bytes` more, if all requests together have room for them or late ones make it.
    pub(crate) async fn grow(&mut self, bytes: u64) -> Result<(), InferError> {
        let Err(full) = self.charge(bytes) else { return Ok(()) };
        if self.budget.relieved(self.limit_bytes).await { Ok(()) } else { Err(full) }
    }

    /// The same on a thread that may wait.
    pub(crate) fn grow_blocking(&mut self, bytes: u64) -> Result<(), InferError> {
        let Err(full) = self.charge(bytes) else { return Ok(()) };
        let Ok(runtime) = Handle::try_current() else { return Err(full) };
        if runtime.block_on(self.budget.relieved(self.limit_bytes)) { Ok(()) } else { Err(full) }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), InferError> {
        let held_bytes = self.budget.held.fetch_add(bytes, SeqCst).saturating_add(bytes);
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
        self.budget.held.fetch_sub(self.bytes, SeqCst);
        if self.budget.waiting.load(SeqCst) > 0 {
            self.budget.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn what_one_request_holds_another_cannot_until_it_is_given_back() {
        let budget = Arc::new(BufferBudget::default());
        let (mut one, mut two) = (budget.share(100), budget.share(100));
        assert!(one.grow(60).await.is_ok() && one.grow(40).await.is_ok());
        assert_eq!(two.grow(1).await.unwrap_err().status(), 503);
        drop((one, two));
        assert!(budget.share(100).grow(100).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_can_only_be_late_makes_room_for_others() {
        let budget = Arc::new(BufferBudget::default());
        let late = Arc::new(Mutex::new(Vec::new()));
        let given_up = Arc::clone(&late);
        budget.relieve_by(move |bytes| {
            // They let go when they run again, not at once.
            let leaving: Vec<Share> = given_up.lock().drain(..).collect();
            let freed = leaving.iter().map(|share: &Share| share.bytes).sum();
            tokio::spawn(async move { drop(leaving) });
            assert!(bytes > 0);
            freed
        });
        for bytes in [30, 60] {
            let mut share = budget.share(100);
            share.grow(bytes).await.unwrap();
            late.lock().push(share);
        }
        let mut timely = budget.share(100);
        timely.grow(100).await.unwrap();
        let full = budget.share(100).grow(1).await.unwrap_err();
        assert_eq!(full.reason(), "overloaded", "nobody is left to make room");
    }
}
