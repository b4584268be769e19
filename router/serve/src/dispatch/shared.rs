//! Requests that several callers wait for, each of them counted for itself.

use std::{sync::Arc, time::Duration};

use policy::moment::Moment;
use tokio::time::Instant;

use super::{Dispatcher, state::Counted};
use crate::{
    cache::{Lookup, Source},
    count::Outcome,
    error::InferError,
    request::{Answer, Request},
};

/// Someone who waits for an answer. Dropped before it is [told](Caller::told), it has hung up.
#[derive(Debug)]
pub struct Caller<'d> {
    dispatcher: &'d Dispatcher,
    arrived: Moment,
    told: bool,
}

impl Caller<'_> {
    pub fn told(mut self, result: &Result<Answer, InferError>) {
        self.told = true;
        let took = self.dispatcher.clock.now().since(self.arrived);
        let mut state = self.dispatcher.state.lock();
        self.dispatcher.count(&mut state, took, result.as_ref().err());
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.dispatcher.metrics.ended(Outcome::Abandoned);
        }
    }
}

impl Dispatcher {
    pub fn caller(&self, arrived: Instant) -> Caller<'_> {
        Caller { dispatcher: self, arrived: self.clock.moment(arrived), told: false }
    }
}

impl Source for Arc<Dispatcher> {
    async fn compute(self, request: Request) -> Result<Answer, InferError> {
        self.take_in(request, Counted::ByCaller)?.answer().await
    }

    /// One that joins is a hit in `/stats`, which knows no third: it spares the model a request.
    fn looked_up(&self, lookup: Lookup, took: Duration) {
        let mut state = self.state.lock();
        match lookup {
            Lookup::Hit | Lookup::Joined => state.tally.cache_hit(took),
            Lookup::Miss => state.tally.cache_miss(took),
        }
        drop(state);
        match lookup {
            Lookup::Hit => self.metrics.cache_hit(),
            Lookup::Joined => self.metrics.cache_joined(),
            Lookup::Miss => self.metrics.cache_miss(),
        }
    }
}
