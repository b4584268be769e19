//! Requests that live, each under a name that is never used again.

use policy::{dispatch::Until, moment::Moment};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) stream: u32,
    pub(crate) model: u32,
    pub(crate) arrived: Moment,
    pub(crate) until: Until,
    pub(crate) sent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    generation: u32,
    request: Option<Request>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(crate) fn insert(&mut self, request: Request) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, request: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.request = Some(request);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Request> {
        let index = id as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != id >> 32 {
            return None;
        }
        let request = slot.request.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(request)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Request> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        let current = u64::from(slot.generation) == id >> 32;
        slot.request.as_mut().filter(|_| current)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Request)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let id = u64::from(slot.generation) << 32 | index as u64;
            slot.request.as_ref().map(|request| (id, request))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_once() {
        let request = Request {
            stream: 0,
            model: 0,
            arrived: Moment::default(),
            until: Until::both(Moment::NEVER),
            sent: false,
        };
        let mut slots = Slots::default();
        let first = slots.insert(request);
        assert!(slots.remove(first).is_some() && slots.remove(first).is_none());
        let second = slots.insert(request);
        assert_ne!(first, second);
        assert!(slots.get_mut(first).is_none() && slots.get_mut(second).is_some());
        assert_eq!(slots.len(), 1);
    }
}
