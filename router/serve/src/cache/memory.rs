//! Answers in the order of their last use, within a bound in bytes.

use std::{collections::HashMap, sync::Arc};

use slab::Slab;

use super::{PlaceHash, View, entry::Entry};

/// Never holds more than its room; what was not used for longest goes first.
#[derive(Debug)]
pub(super) struct Memory {
    room_bytes: usize,
    bytes: usize,
    places: HashMap<u64, usize, PlaceHash>,
    nodes: Slab<Node>,
    newest: Option<usize>,
    oldest: Option<usize>,
}

/// An answer between its neighbours in the order of use.
#[derive(Debug)]
struct Node {
    entry: Arc<Entry>,
    newer: Option<usize>,
    older: Option<usize>,
}

impl Memory {
    pub(super) fn new(room_bytes: usize) -> Self {
        Self {
            room_bytes,
            bytes: 0,
            places: HashMap::default(),
            nodes: Slab::new(),
            newest: None,
            oldest: None,
        }
    }

    /// What stands at `hash`, which is now the newest.
    pub(super) fn get(&mut self, hash: u64) -> Option<Arc<Entry>> {
        let place = *self.places.get(&hash)?;
        if self.newest != Some(place) {
            self.unlink(place);
            self.link(place);
        }
        Some(Arc::clone(&self.nodes[place].entry))
    }

    /// Keeps `entry` in place of the oldest, and of what stood at its hash; not if it never fits.
    pub(super) fn insert(&mut self, entry: Arc<Entry>) {
        let Some(rest) = self.room_bytes.checked_sub(entry.bytes()) else { return };
        let hash = entry.key().hash();
        if let Some(place) = self.places.get(&hash) {
            self.remove(*place);
        }
        self.shrink(rest);
        self.bytes += entry.bytes();
        let place = self.nodes.insert(Node { entry, newer: None, older: None });
        self.places.insert(hash, place);
        self.link(place);
    }

    pub(super) fn resize(&mut self, room_bytes: usize) {
        self.room_bytes = room_bytes;
        self.shrink(room_bytes);
        self.nodes.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.room_bytes);
    }

    pub(super) fn view(&self) -> View {
        View { answers: self.nodes.len(), bytes: self.bytes, room_bytes: self.room_bytes }
    }

    fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes {
            let oldest = self.oldest.expect("what takes room has an oldest");
            self.remove(oldest);
        }
    }

    fn remove(&mut self, place: usize) {
        self.unlink(place);
        let node = self.nodes.remove(place);
        self.places.remove(&node.entry.key().hash());
        self.bytes -= node.entry.bytes();
    }

    /// Makes `place` the newest.
    fn link(&mut self, place: usize) {
        let older = self.newest.replace(place);
        self.nodes[place].older = older;
        match older {
            Some(older) => self.nodes[older].newer = Some(place),
            None => self.oldest = Some(place),
        }
    }

    fn unlink(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        let (newer, older) = (node.newer.take(), node.older.take());
        match newer {
            Some(newer) => self.nodes[newer].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.nodes[older].newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use foldhash::quality::FixedState;
    use oip::{Datatype, Tensor};
    use proptest::prelude::*;

    use super::*;
    use crate::{cache::key::Key, request::Answer};

    fn entry(hash: u64, data_bytes: usize) -> Arc<Entry> {
        let data = Bytes::from(vec![0; data_bytes]);
        let tensor = Tensor::new("y", Datatype::Uint8, vec![data_bytes as u64], data).unwrap();
        let key = Key::new(&[], &FixedState::default()).placed(hash);
        Arc::new(Entry::new(&key, &Answer { outputs: vec![tensor], spent: None }))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { hash: u64, data_bytes: usize },
        Get { hash: u64 },
        Resize { room_bytes: usize },
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => (0..24_u64, 0..6_000_usize)
                .prop_map(|(hash, data_bytes)| Step::Insert { hash, data_bytes }),
            10 => (0..24_u64).prop_map(|hash| Step::Get { hash }),
            2 => (0..20_000_usize).prop_map(|room_bytes| Step::Resize { room_bytes }),
            1 => Just(Step::Clear),
        ]
    }

    /// The same by the obvious means: hashes and bytes, the oldest first.
    #[derive(Debug, Default)]
    struct Plain {
        room_bytes: usize,
        order: Vec<(u64, usize)>,
    }

    impl Plain {
        fn bytes(&self) -> usize {
            self.order.iter().map(|(_, bytes)| bytes).sum()
        }

        fn shrink(&mut self, room_bytes: usize) {
            while self.bytes() > room_bytes {
                self.order.remove(0);
            }
        }

        fn take(&mut self, hash: u64) -> Option<(u64, usize)> {
            let place = self.order.iter().position(|(known, _)| *known == hash)?;
            Some(self.order.remove(place))
        }

        fn insert(&mut self, hash: u64, bytes: usize) {
            if bytes <= self.room_bytes {
                self.take(hash);
                self.shrink(self.room_bytes - bytes);
                self.order.push((hash, bytes));
            }
        }
    }

    fn order(memory: &Memory) -> Vec<(u64, usize)> {
        let newest_first = std::iter::successors(memory.newest, |at| memory.nodes[*at].older);
        let seen = |at: usize| {
            let entry = &memory.nodes[at].entry;
            (entry.key().hash(), entry.bytes())
        };
        let mut order: Vec<_> = newest_first.map(seen).collect();
        order.reverse();
        order
    }

    proptest! {
        #[test]
        fn the_bytes_never_exceed_the_room_and_the_oldest_goes_first(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut memory = Memory::new(10_000);
            let mut plain = Plain { room_bytes: 10_000, ..Plain::default() };
            for step in steps {
                match step {
                    Step::Insert { hash, data_bytes } => {
                        let entry = entry(hash, data_bytes);
                        plain.insert(hash, entry.bytes());
                        memory.insert(entry);
                    }
                    Step::Get { hash } => {
                        let known = plain.take(hash);
                        plain.order.extend(known);
                        let found = memory.get(hash).map(|entry| (hash, entry.bytes()));
                        prop_assert_eq!(found, known);
                    }
                    Step::Resize { room_bytes } => {
                        plain.room_bytes = room_bytes;
                        plain.shrink(room_bytes);
                        memory.resize(room_bytes);
                    }
                    Step::Clear => {
                        plain.order.clear();
                        memory.clear();
                    }
                }
                let view = memory.view();
                prop_assert!(view.bytes <= view.room_bytes, "{:?}", view);
                prop_assert_eq!(view.bytes, plain.bytes());
                prop_assert_eq!(order(&memory), plain.order.clone());
                prop_assert_eq!(memory.places.len(), plain.order.len());
            }
        }
    }
}
