//! The tables of the file: what each key is, and the rules between keys of one table.

pub(crate) mod access;
pub(crate) mod etcd;
pub(crate) mod loans;
pub(crate) mod log;
pub(crate) mod model;
pub(crate) mod planner;
pub(crate) mod router;
pub(crate) mod tls;
pub(crate) mod tracing;
pub(crate) mod worker;
