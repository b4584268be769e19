//! What the other routers are asked for: whoever plans must provide for all of it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use policy::fleet::Traffic;
use serde::{Deserialize, Serialize};

/// What one router was asked for, of one model, since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    pub arrived: u64,
    /// Of those, the ones that did not get it in time.
    pub late: u64,
    pub eligible: u64,
    /// Of those, the ones within it.
    pub within: u64,
    pub waiting: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    pub(crate) admin: String,
    pub(crate) models: BTreeMap<String, Load>,
}

#[derive(Debug, Default)]
pub struct Peers {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    routers: BTreeMap<String, Registration>,
    /// What was added since each was first heard of, those that are gone included.
    heard: BTreeMap<String, Load>,
}

impl From<&Traffic> for Load {
    fn from(traffic: &Traffic) -> Self {
        let Traffic { arrived, late, eligible, within, waiting, .. } = *traffic;
        Self { arrived, late, eligible, within, waiting }
    }
}

impl Load {
    /// This and `other` together.
    pub fn with(self, other: Self) -> Self {
        Self {
            arrived: self.arrived.saturating_add(other.arrived),
            late: self.late.saturating_add(other.late),
            eligible: self.eligible.saturating_add(other.eligible),
            within: self.within.saturating_add(other.within),
            waiting: self.waiting.saturating_add(other.waiting),
        }
    }

    /// What came since `before`; all of it if the router has started anew since.
    fn since(self, before: Self) -> Self {
        if self.eligible < before.eligible {
            return self;
        }
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            arrived: less(self.arrived, before.arrived),
            late: less(self.late, before.late),
            eligible: less(self.eligible, before.eligible),
            within: less(self.within, before.within),
            waiting: self.waiting,
        }
    }
}

impl Peers {
    /// What all of them were asked for of a model since they were first heard of. It only rises,
    /// what waits excepted.
    pub fn load(&self, model: &str) -> Load {
        let known = self.known.lock();
        let mine = known.routers.values().filter_map(|router| router.models.get(model));
        let waiting = mine.fold(0_u64, |all, load| all.saturating_add(load.waiting));
        Load { waiting, ..known.heard.get(model).copied().unwrap_or_default() }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.known.lock().routers.keys().cloned().collect()
    }

    pub(crate) fn hear(&self, name: &str, registration: Registration) {
        let mut known = self.known.lock();
        let Known { routers, heard } = &mut *known;
        if let Some(before) = routers.get(name) {
            for (model, load) in &registration.models {
                let before = before.models.get(model).copied().unwrap_or_default();
                let total = heard.entry(model.clone()).or_default();
                *total = total.with(load.since(before));
            }
        }
        routers.insert(name.to_owned(), registration);
    }

    pub(crate) fn forget(&self, name: &str) {
        self.known.lock().routers.remove(name);
    }

    pub(crate) fn retain(&self, there: impl Fn(&str) -> bool) {
        self.known.lock().routers.retain(|name, _| there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arrived: u64, waiting: u64) -> Registration {
        let load = Load { arrived, eligible: arrived, waiting, ..Load::default() };
        Registration { admin: String::new(), models: [("m".to_owned(), load)].into() }
    }

    #[test]
    fn what_others_are_asked_for_is_counted_from_when_they_are_first_heard_of() {
        let peers = Peers::default();
        peers.hear("a", asked(1000, 3));
        assert_eq!(peers.load("m"), Load { waiting: 3, ..Load::default() });
        peers.hear("a", asked(1010, 2));
        peers.hear("b", asked(7, 1));
        let seen = |peers: &Peers| (peers.load("m").arrived, peers.load("m").waiting);
        assert_eq!(seen(&peers), (10, 3));
        peers.hear("a", asked(4, 0));
        assert_eq!(seen(&peers), (14, 1), "it has started anew");
        peers.forget("a");
        assert_eq!(seen(&peers), (14, 1), "what was asked for was asked for");
    }

    #[test]
    fn a_router_that_says_it_was_asked_for_more_than_can_be_counted_is_borne() {
        let peers = Peers::default();
        for name in ["a", "b"] {
            peers.hear(name, asked(0, 0));
            peers.hear(name, asked(u64::MAX, u64::MAX));
        }
        assert_eq!((peers.load("m").arrived, peers.load("m").waiting), (u64::MAX, u64::MAX));
    }
}
