//! Connections to replicas.

pub(crate) mod connection;
