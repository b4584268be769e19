//! What becomes known of a request on its way, for its line in the access log.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::request::Spent;

/// What the layers within learn of a request for its line.
#[derive(Debug, Default)]
pub struct Note(Mutex<Noted>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) spent: Option<Spent>,
}

impl Note {
    pub(crate) fn noted(&self) -> Noted {
        self.0.lock().clone()
    }

    pub(crate) fn tenant(&self, name: Option<Arc<str>>) {
        self.0.lock().tenant = name;
    }

    pub(crate) fn reason(&self, reason: &'static str) {
        self.0.lock().reason = Some(reason);
    }

    pub(crate) fn spent(&self, spent: Spent) {
        self.0.lock().spent = Some(spent);
    }
}

/// Why a request failed, on a response that was made behind the layers.
#[derive(Clone, Copy, Debug)]
pub struct Reason(pub &'static str);
