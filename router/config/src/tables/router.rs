//! `[router]`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::{
    key::{
        Effect, Found, TableSpec,
        kinds::{Address, DAY_S, File, Millis, OneOf, Seconds, Whole},
        table, whole,
    },
    problems::{Notes, Place},
    tree::Section,
};

pub(crate) const ROUTER: TableSpec = TableSpec {
    name: "router",
    title: "[router]",
    about: "The router's own settings.",
    whole: Effect::Restart,
};

table! {
    /// The router's own settings.
    #[derive(Clone, Debug, PartialEq)]
    pub struct RouterSettings {
        /// Address that serves inference.
        listen: SocketAddr = "listen" or(local(8000)), Address(local(8000)), Restart, "SLUICE_LISTEN";
        /// Address that serves the admin API and `/metrics`.
        admin_listen: SocketAddr = "admin_listen" or(local(8002)), Address(local(8002)), Restart, "SLUICE_ADMIN_LISTEN";
        /// Address where workers of other machines join. Absent: no worker can join.
        join_listen: Option<SocketAddr> = "join_listen" maybe, Address(local(8003)), Restart;
        /// File with the join token of workers; needed with `join_listen`.
        join_token_file: Option<PathBuf> = "join_token_file" maybe, File, Restart;
        /// Directory that stores jobs, overrides and learned model data. Absent: memory only.
        state_dir: Option<PathBuf> = "state_dir" maybe, File, Restart;
        /// Longest request body as it arrives; 413 beyond.
        max_body_bytes: u64 = "max_body_bytes" or(64 << 20), Whole(1024..=4 << 30), Live;
        /// Longest request body once decompressed; 413 beyond.
        max_decompressed_bytes: u64 = "max_decompressed_bytes" or(256 << 20), Whole(1024..=16 << 30), Live;
        /// Most bytes of all request bodies together; 503 beyond.
        max_buffered_bytes: u64 = "max_buffered_bytes" or(1 << 30), Whole(1024..=1 << 40), Live;
        /// Longest request head.
        max_header_bytes: u64 = "max_header_bytes" or(64 << 10), Whole(1024..=1 << 20), Live;
        /// Most connections open at once.
        max_connections: u32 = "max_connections" or(10_000), Whole(1..=1_000_000), Live;
        /// Time for a request's head to arrive.
        header_timeout: Duration = "header_timeout_ms" or(Duration::from_secs(10)), Millis, Live;
        /// Time for a request's body to arrive.
        body_timeout: Duration = "body_timeout_ms" or(Duration::from_secs(30)), Millis, Live;
        /// How long an idle connection stays open.
        idle_timeout: Duration = "idle_timeout_s" or(Duration::from_secs(75)), Seconds(1..=DAY_S), Live;
        /// How long a router still accepts connections after `SIGTERM`, so that load balancers notice first. `SIGINT` skips it.
        drain_delay: Duration = "drain_delay_s" or(Duration::from_secs(5)), Seconds(0..=DAY_S), Live;
        /// How long a stopping router then waits for requests in flight.
        drain_timeout: Duration = "drain_timeout_s" or(Duration::from_secs(30)), Seconds(0..=DAY_S), Live;
        /// When `/readyz` succeeds.
        ready: ReadyWhen = "ready" or(ReadyWhen::Serving), ready_words(), Live;
        /// How long a router that starts waits for a model before it is ready without it. A model server's own `ready_timeout_s` counts if it is longer.
        ready_timeout: Duration = "ready_timeout_s" or(Duration::from_secs(300)), Seconds(1..=DAY_S), Live;
        /// Requests that get a log line.
        access_log: AccessLog = "access_log" or(AccessLog::Errors), access_logs(), Live;
    }
}

/// Requests that get a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// None.
    Off,
    /// Requests that do not succeed.
    Errors,
    /// Every request.
    All,
}

/// When a router is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyWhen {
    /// Once it was ready, for as long as it can answer.
    Serving,
    /// While every model is ready, asleep or unloaded.
    All,
}

fn ready_words() -> OneOf<ReadyWhen> {
    OneOf(vec![("serving", ReadyWhen::Serving), ("all", ReadyWhen::All)])
}

fn access_logs() -> OneOf<AccessLog> {
    OneOf(vec![("off", AccessLog::Off), ("errors", AccessLog::Errors), ("all", AccessLog::All)])
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub(crate) fn read(section: Section<'_>, notes: &mut Notes<'_>) -> (RouterSettings, Found) {
    let (settings, found) = whole(section, notes, RouterSettings::read);
    if found.is_good("listen") && found.is_good("admin_listen") {
        apart(&settings, &found, notes);
    }
    joinable(&found, notes);
    reachable_limits(&settings, &found, notes);
    (settings, found)
}

fn blame(found: &Found, keys: [&str; 2]) -> Place {
    keys.iter().find_map(|key| found.place_of(key)).unwrap_or(Place::Offset(0))
}

fn apart(settings: &RouterSettings, found: &Found, notes: &mut Notes<'_>) {
    let (listen, admin) = (settings.listen, settings.admin_listen);
    let anywhere = listen.ip().is_unspecified() || admin.ip().is_unspecified();
    let same = listen.port() == admin.port() && (anywhere || listen.ip() == admin.ip());
    if same && listen.port() != 0 {
        let message = format!("listen {listen} and admin_listen {admin} are the same port");
        notes.problem(blame(found, ["admin_listen", "listen"]), message);
    }
}

/// A join address needs a token, and a token an address.
fn joinable(found: &Found, notes: &mut Notes<'_>) {
    match (found.place_of("join_listen"), found.place_of("join_token_file")) {
        (Some(listen), None) => {
            let message = "join_listen without join_token_file: workers must know a token; \
                           make one with `openssl rand -hex 32 > FILE`";
            notes.problem(listen, message);
        }
        (None, Some(file)) => {
            notes.problem(file, "join_token_file without join_listen has no effect");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn reachable_limits(settings: &RouterSettings, found: &Found, notes: &mut Notes<'_>) {
    let (body, decompressed) = (settings.max_body_bytes, settings.max_decompressed_bytes);
    if body > decompressed {
        let message = format!(
            "a compressed body can never reach max_body_bytes {body}: \
             max_decompressed_bytes is {decompressed}"
        );
        notes.warn(blame(found, ["max_body_bytes", "max_decompressed_bytes"]), message);
    }
    let (largest, buffered) = (body.max(decompressed), settings.max_buffered_bytes);
    if buffered < largest {
        let message = format!(
            "max_buffered_bytes {buffered} is less than one body may be, {largest}: \
             it would be refused even alone"
        );
        notes.warn(blame(found, ["max_buffered_bytes", "max_decompressed_bytes"]), message);
    }
}
