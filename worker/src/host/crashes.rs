//! Models that end their executor when they load.
//!
//! The code of a foreign library may crash, and would do so again: after three times the model has
//! failed, until it is another model. Only loading and warming count. A crash while it serves may be
//! one request's doing, and is no reason to stop serving all the others.

use std::collections::BTreeMap;

use protocol::{ExecutorState, ReplicaState};

const ENOUGH: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Crashes(BTreeMap<u32, Crash>);

#[derive(Debug)]
struct Crash {
    digest: u64,
    count: u32,
    how: String,
}

impl Crashes {
    /// Counts a crash of the executor that last said `state`, against the model that was loading.
    pub(super) fn count(&mut self, state: &ExecutorState, how: &str) {
        for one in &state.replicas {
            if !matches!(one.state, ReplicaState::Loading | ReplicaState::Warming { .. }) {
                continue;
            }
            let (digest, how) = (one.digest, how.to_owned());
            let before = self.0.get(&one.replica).filter(|known| known.digest == digest);
            let count = before.map_or(0, |known| known.count) + 1;
            self.0.insert(one.replica, Crash { digest, count, how });
        }
    }

    /// What was loaded after all is no longer counted.
    pub(super) fn hear(&mut self, state: &ExecutorState) {
        if self.0.is_empty() {
            return;
        }
        for one in &state.replicas {
            if matches!(one.state, ReplicaState::Ready(_)) {
                self.0.remove(&one.replica);
            }
        }
    }

    /// Forgets what is not wished for any more.
    pub(super) fn keep(&mut self, is_wished: impl Fn(u32, u64) -> bool) {
        self.0.retain(|id, crash| is_wished(*id, crash.digest));
    }

    /// The replicas that are not tried again, with the digests of their models.
    pub(super) fn given_up(&self) -> impl Iterator<Item = (u32, u64)> {
        let enough = self.0.iter().filter(|(_, crash)| crash.count >= ENOUGH);
        enough.map(|(id, crash)| (*id, crash.digest))
    }

    /// Why `replica` is not tried again, if it is not.
    pub(super) fn why(&self, replica: u32) -> Option<String> {
        let Crash { count, how, .. } = self.0.get(&replica).filter(|one| one.count >= ENOUGH)?;
        Some(format!(
            "its executor crashed {count} times while it loaded the model, last by {how}; it is \
             tried again when the model changes or the worker is started again"
        ))
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ExecutorId, LoadedReplica, VERSION};

    use super::*;

    fn loading(state: ReplicaState) -> ExecutorState {
        let seat = ExecutorId { gpu: 0, position: "7g.80gb@0".into(), lane: 0 };
        let replica = LoadedReplica {
            replica: 4,
            model: "m".into(),
            version: "1".into(),
            memory_mib: 1,
            digest: 7,
            state,
        };
        let (slice, replicas) = ("gpu0:7g@0".into(), vec![replica]);
        ExecutorState { version: VERSION, seat, slice, pid: 1, device: None, busy_us: 0, replicas }
    }

    #[test]
    fn a_model_that_crashes_three_times_is_given_up() {
        let mut crashes = Crashes::default();
        for count in 1..=3 {
            assert_eq!(crashes.why(4), None, "after {} crashes", count - 1);
            crashes.count(&loading(ReplicaState::Warming { batch: 2 }), "signal: 6 (SIGABRT)");
        }
        assert!(crashes.why(4).unwrap().contains("3 times"), "{crashes:?}");
        assert_eq!(crashes.given_up().collect::<Vec<_>>(), [(4, 7)]);
        crashes.keep(|_, digest| digest == 8);
        assert_eq!(crashes.why(4), None, "another model is tried");
    }

    #[test]
    fn crashes_of_a_model_that_serves_are_not_counted() {
        let mut crashes = Crashes::default();
        for _ in 0..5 {
            crashes.count(&loading(ReplicaState::Draining), "signal: 11 (SIGSEGV)");
        }
        assert_eq!(crashes.given_up().count(), 0);
    }
}
