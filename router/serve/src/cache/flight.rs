//! A request under way that equal ones may join.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};

use super::{Cache, Outcome, Source, entry::Entry, key::Key};
use crate::request::{Answer, Request};

/// What all who wait for one computation hold; dropping the last gives it up.
pub(super) type Underway = Shared<BoxFuture<'static, Outcome>>;

/// A computation that others wait for.
#[derive(Clone)]
pub(super) struct Flight {
    key: Arc<Key>,
    underway: WeakShared<BoxFuture<'static, Outcome>>,
}

impl Flight {
    /// A flight for the board, and the first hold on it. Nothing is computed before that is polled.
    pub(super) fn new<S: Source>(
        cache: &Arc<Cache>,
        key: &Arc<Key>,
        source: S,
        request: Request,
    ) -> (Self, Underway) {
        let landing = Landing { cache: Arc::clone(cache), key: Arc::clone(key) };
        let computing = async move {
            let outcome = source.compute(request).await;
            if let Ok(answer) = &outcome {
                landing.remember(answer);
            }
            outcome
        };
        let underway = computing.boxed().shared();
        let weak = underway.downgrade().expect("it has not been polled");
        (Self { key: Arc::clone(key), underway: weak }, underway)
    }

    pub(super) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// One more hold on it; none if nobody waits for it any more.
    pub(super) fn join(&self) -> Option<Underway> {
        self.underway.upgrade()
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Takes a flight off the board however it ends.
struct Landing {
    cache: Arc<Cache>,
    key: Arc<Key>,
}

impl Landing {
    /// Puts the answer where the flight was, so that no equal request finds neither.
    fn remember(&self, answer: &Answer) {
        let room = self.cache.room_bytes.load(Ordering::Relaxed);
        if Entry::bytes_of(&self.key, answer) > room {
            return;
        }
        let entry = Arc::new(Entry::new(&self.key, answer));
        let mut known = self.cache.known.lock();
        if known.land(&self.key) {
            known.memory.insert(entry);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.cache.known.lock().land(&self.key);
    }
}
