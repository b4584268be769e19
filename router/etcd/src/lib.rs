//! A client of etcd, by the JSON over HTTP/1.1 that every member of etcd 3.4 and later speaks.
//!
//! What a router needs of etcd is little: leases, guarded transactions, a listing and a watch. The
//! JSON gateway gives all of it to the HTTP reader that is here already, where gRPC would bring a
//! compiler of its descriptions and a second HTTP stack.
//!
//! Every request is tried at each member in turn and may hence be carried out twice; those of this
//! package may be.

mod base64;
mod client;
mod message;
pub mod read;
mod watch;

pub use client::{Client, Counts, EtcdError};
pub use message::{Lease, Listed, Outcome, Pair, Txn};
pub use read::Event;
pub use watch::{Watch, WatchError};
