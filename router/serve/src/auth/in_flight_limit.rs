//! How many of a tenant's requests are in flight.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The requests inside, counted whether or not there is a limit, so that a reload can set one.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    inside: AtomicU32,
}

impl InFlight {
    /// Lets one more in, or says how many are inside if those are `most` already.
    pub(super) fn enter(self: &Arc<Self>, most: Option<u32>) -> Result<Pass, u32> {
        let relaxed = Ordering::Relaxed;
        // An update rather than adding first and looking then: whoever is refused must not be
        // counted, even for a moment in which another would be refused because of it.
        let one_more = |inside| (inside < most.unwrap_or(u32::MAX)).then(|| inside + 1);
        self.inside.fetch_update(relaxed, relaxed, one_more)?;
        Ok(Pass { in_flight: Arc::clone(self) })
    }

    pub(super) fn count(&self) -> u32 {
        self.inside.load(Ordering::Relaxed)
    }
}

/// A request that is inside until this is dropped, however it ends.
#[derive(Debug)]
pub struct Pass {
    in_flight: Arc<InFlight>,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.in_flight.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn whoever_leaves_makes_room_for_one() {
        let in_flight = Arc::new(InFlight::default());
        let first = in_flight.enter(Some(2)).unwrap();
        let _second = in_flight.enter(Some(2)).unwrap();
        assert_eq!(in_flight.enter(Some(2)).unwrap_err(), 2);
        drop(first);
        let _third = in_flight.enter(Some(2)).unwrap();
        assert_eq!((in_flight.enter(Some(2)).unwrap_err(), in_flight.count()), (2, 2));
    }

    #[test]
    fn those_let_in_without_a_limit_count_once_there_is_one() {
        let in_flight = Arc::new(InFlight::default());
        let passes: Vec<_> = (0..5).map(|_| in_flight.enter(None).unwrap()).collect();
        assert_eq!(in_flight.enter(Some(3)).unwrap_err(), 5);
        drop(passes);
        assert!(in_flight.enter(Some(3)).is_ok());
    }

    #[test]
    fn a_crowd_never_gets_in_beyond_the_limit_and_leaves_nothing_behind() {
        const MOST: u32 = 3;
        let in_flight = Arc::new(InFlight::default());
        let rush = || {
            let entered = (0..2_000).filter_map(|_| in_flight.enter(Some(MOST)).ok());
            entered.map(|_pass| in_flight.count()).max().unwrap_or(0)
        };
        let most = thread::scope(|scope| {
            let crowd: Vec<_> = (0..8).map(|_| scope.spawn(rush)).collect();
            crowd.into_iter().map(|one| one.join().unwrap()).max()
        });
        assert!(most.is_some_and(|most| (1..=MOST).contains(&most)), "{most:?} inside at once");
        assert_eq!(in_flight.count(), 0);
    }
}
