//! The whole program as its users meet it: real processes, real sockets, nothing stood in for.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bad_input;
mod client;
mod command_line;
mod drain;
mod endpoints;
mod etcd;
mod exposition;
mod faults;
mod fleet;
mod folder;
mod ha;
mod ha_orders;
mod hangs;
mod hangups;
mod hostile_clients;
mod hostile_jobs;
mod jobs;
mod kept;
mod killed_jobs;
mod loans;
mod maintenance;
mod messages;
mod metrics;
mod objective;
mod overload;
mod placement;
mod process;
mod program;
mod relay;
mod reload;
mod reshape;
mod scarce;
mod scopes;
mod secrets;
mod serving;
mod setup;
mod simulate;
mod sleeping;
mod split;
mod tenants;
mod tls;
mod tracing;
mod training;
mod wait;
