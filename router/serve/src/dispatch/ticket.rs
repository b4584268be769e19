//! A caller's hold on its request.

use std::sync::Arc;

use policy::dispatch::Until;
use tokio::sync::oneshot;

use super::Dispatcher;
use crate::{error::InferError, request::Answer};

/// A request in the dispatcher. Dropping it takes the request out again.
#[derive(Debug)]
pub struct Ticket {
    dispatcher: Arc<Dispatcher>,
    id: u64,
    key: u32,
    until: Until,
    receiver: oneshot::Receiver<Result<Answer, InferError>>,
    answered: bool,
}

impl Ticket {
    pub(super) fn new(
        dispatcher: Arc<Dispatcher>,
        id: u64,
        key: u32,
        until: Until,
        receiver: oneshot::Receiver<Result<Answer, InferError>>,
    ) -> Self {
        Self { dispatcher, id, key, until, receiver, answered: false }
    }

    /// Waits for the answer, which comes once.
    pub async fn answer(mut self) -> Result<Answer, InferError> {
        let answer = (&mut self.receiver).await;
        self.answered = true;
        answer.unwrap_or(Err(InferError::Internal { what: "a request was dropped unanswered" }))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered {
            self.dispatcher.abandon(self.id, self.key, self.until);
        }
    }
}
