//! What a model is asked and what it gives, whichever door the request came through.

use std::{sync::Arc, time::Duration};

use config::Class;
use oip::Tensor;
use tokio::time::Instant;

use crate::trace::Traced;

/// One inference request, decoded and checked against the model's signature.
#[derive(Clone, Debug)]
pub struct Request {
    /// The inputs, in the order of the signature.
    pub inputs: Vec<Tensor>,
    /// Its rows. At least 1, at most the model's `max_batch`.
    pub rows: u32,
    /// When its head was read. Deadlines count from here.
    pub arrived: Instant,
    /// The client's own limit, if it gave one.
    pub timeout: Option<Duration>,
    /// Who goes first when not all can.
    pub class: Class,
    /// The client, as `auth::Caller::tenant`.
    pub tenant: u32,
    pub traced: Option<Arc<Traced>>,
}

#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The outputs, in the order of the signature.
    pub outputs: Vec<Tensor>,
    /// Where its time went; absent if no batch was run for it.
    pub spent: Option<Spent>,
}

/// Where the time of a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// From its arrival until its batch was sent.
    pub queued: Duration,
    /// In the executor, as that one says.
    pub ran: Duration,
}
