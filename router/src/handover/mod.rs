//! A new router process takes over from the running one on the same host, without losing a request.
//!
//! The running router ([`give`]) listens on a Unix socket for its successor ([`take`]), passes the
//! listening sockets and what it knows, and goes on accepting until the successor has the executors
//! and the state. If the successor fails before, the running router takes all of that back.
//!
//! | step | new | running |
//! |---|---|---|
//! | 1 | reads its file, checks that it can read the state | |
//! | 2 | `hello` | `refused`, or |
//! | 3 | | `offer` with the descriptors of the listeners |
//! | 4 | connects to every replica in rotation, `attached` | |
//! | 5 | | stops planning, closes the state, leaves the executors: `frozen` |
//! | 6 | adopts the executors, opens the state, plans once: `ready` | |
//! | 7 | | stops accepting, `counts`, `go` |
//! | 8 | accepts, `accepting` | closes its listeners |
//! | 9 | adds the counts to its own | answers what it has; `counts` now and then, and last |
//!
//! Until step 8 the running router takes everything back when the connection closes.

pub mod give;
pub mod message;
mod socket;
pub mod take;

pub use self::socket::{Channel, SocketError, path_by, path_in};

/// How listeners are named when they are passed.
pub(crate) const INFERENCE: &str = "inference";
pub(crate) const ADMIN: &str = "admin";
pub(crate) const JOIN: &str = "join";
