//! `[router]`.

use std::{net::SocketAddr, path::Path, time::Duration};

use super::{
    super::{
        AccessLog, Environment, RouterSettings,
        draft::RouterDraft,
        problems::{At, Notes, Place},
    },
    one_of, within, within_u32,
};

/// A day, in seconds: longer waits are mistakes of unit.
const DAY_S: u64 = 86_400;

/// Lets the environment overrule the file where hosts differ.
pub(super) fn from_environment(draft: &mut RouterDraft, environment: &Environment) {
    let over = |field: &mut Option<At<String>>, name, value: &Option<String>| {
        if let Some(value) = value {
            *field = Some(At { value: value.clone(), place: Place::Environment(name) });
        }
    };
    over(&mut draft.listen, "SLUICE_LISTEN", &environment.listen);
    over(&mut draft.admin_listen, "SLUICE_ADMIN_LISTEN", &environment.admin_listen);
}

pub(super) fn check(draft: &RouterDraft, base_dir: &Path, notes: &mut Notes<'_>) -> RouterSettings {
    let listen = address("listen", draft.listen.as_ref(), 8000, notes);
    let admin_listen = address("admin_listen", draft.admin_listen.as_ref(), 8002, notes);
    if let (Ok(listen), Ok(admin)) = (listen, admin_listen) {
        apart(draft, listen, admin, notes);
    }
    let join_listen = draft
        .join_listen
        .as_ref()
        .and_then(|given| address("join_listen", Some(given), 8003, notes).ok());
    joinable(draft, notes);
    let bytes = |key, given: &Option<At<u64>>, most, default, notes: &mut Notes<'_>| {
        within(key, given.as_ref(), 1024..=most, default, notes)
    };
    let ms = |key, given: &Option<At<u64>>, default, notes: &mut Notes<'_>| {
        Duration::from_millis(within(key, given.as_ref(), 1..=DAY_S * 1000, default, notes))
    };
    let s = |key, given: &Option<At<u64>>, least, default, notes: &mut Notes<'_>| {
        Duration::from_secs(within(key, given.as_ref(), least..=DAY_S, default, notes))
    };
    let settings = RouterSettings {
        listen: listen.unwrap_or_else(|default| default),
        admin_listen: admin_listen.unwrap_or_else(|default| default),
        join_listen,
        join_token_file: draft.join_token_file.as_ref().map(|file| base_dir.join(&file.value)),
        state_dir: draft.state_dir.as_ref().map(|dir| base_dir.join(&dir.value)),
        max_body_bytes: bytes("max_body_bytes", &draft.max_body_bytes, 4 << 30, 64 << 20, notes),
        max_decompressed_bytes: bytes(
            "max_decompressed_bytes",
            &draft.max_decompressed_bytes,
            16 << 30,
            256 << 20,
            notes,
        ),
        max_buffered_bytes: bytes(
            "max_buffered_bytes",
            &draft.max_buffered_bytes,
            1 << 40,
            1 << 30,
            notes,
        ),
        max_header_bytes: bytes(
            "max_header_bytes",
            &draft.max_header_bytes,
            1 << 20,
            64 << 10,
            notes,
        ),
        max_connections: within_u32(
            "max_connections",
            draft.max_connections.as_ref(),
            1..=1_000_000,
            10_000,
            notes,
        ),
        header_timeout: ms("header_timeout_ms", &draft.header_timeout_ms, 10_000, notes),
        body_timeout: ms("body_timeout_ms", &draft.body_timeout_ms, 30_000, notes),
        idle_timeout: s("idle_timeout_s", &draft.idle_timeout_s, 1, 75, notes),
        drain_delay: s("drain_delay_s", &draft.drain_delay_s, 0, 5, notes),
        drain_timeout: s("drain_timeout_s", &draft.drain_timeout_s, 0, 30, notes),
        access_log: access_log(draft.access_log.as_ref(), notes),
    };
    reachable_limits(draft, &settings, notes);
    settings
}

/// The address in force, or the default where a wrong one was given and noted.
fn address(
    key: &str,
    given: Option<&At<String>>,
    port: u16,
    notes: &mut Notes<'_>,
) -> Result<SocketAddr, SocketAddr> {
    let default = SocketAddr::from(([127, 0, 0, 1], port));
    let Some(At { value, place }) = given else { return Ok(default) };
    value.parse().map_err(|_| {
        let message = format!("{key} is {value:?}; give an IP address and port, such as {default}");
        notes.problem(*place, message);
        default
    })
}

fn apart(draft: &RouterDraft, listen: SocketAddr, admin: SocketAddr, notes: &mut Notes<'_>) {
    let anywhere = listen.ip().is_unspecified() || admin.ip().is_unspecified();
    let same = listen.port() == admin.port() && (anywhere || listen.ip() == admin.ip());
    if same && listen.port() != 0 {
        let at = draft.admin_listen.as_ref().or(draft.listen.as_ref());
        let place = at.map_or(Place::Offset(0), |at| at.place);
        let message = format!("listen {listen} and admin_listen {admin} are the same port");
        notes.problem(place, message);
    }
}

/// A door needs a lock, and a lock a door.
fn joinable(draft: &RouterDraft, notes: &mut Notes<'_>) {
    match (&draft.join_listen, &draft.join_token_file) {
        (Some(listen), None) => {
            let message = "join_listen without join_token_file: workers must know a token; \
                           make one with `openssl rand -hex 32 > FILE`";
            notes.problem(listen.place, message);
        }
        (None, Some(file)) => {
            notes.problem(file.place, "join_token_file without join_listen has no effect");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

fn access_log(given: Option<&At<String>>, notes: &mut Notes<'_>) -> AccessLog {
    let choices =
        [AccessLog::Off, AccessLog::Errors, AccessLog::All].map(|choice| (choice.name(), choice));
    given
        .and_then(|given| one_of("access_log", given, &choices, notes))
        .unwrap_or(AccessLog::Errors)
}

fn reachable_limits(draft: &RouterDraft, settings: &RouterSettings, notes: &mut Notes<'_>) {
    let (body, decompressed) = (settings.max_body_bytes, settings.max_decompressed_bytes);
    if body > decompressed {
        let at = draft.max_body_bytes.as_ref().or(draft.max_decompressed_bytes.as_ref());
        let message = format!(
            "a compressed body can never reach max_body_bytes {body}: \
             max_decompressed_bytes is {decompressed}"
        );
        notes.warn(at.map_or(Place::Offset(0), |at| at.place), message);
    }
    let (largest, buffered) = (body.max(decompressed), settings.max_buffered_bytes);
    if buffered < largest {
        let at = draft.max_buffered_bytes.as_ref().or(draft.max_decompressed_bytes.as_ref());
        let message = format!(
            "max_buffered_bytes {buffered} is less than one body may be, {largest}: \
             it would be refused even alone"
        );
        notes.warn(at.map_or(Place::Offset(0), |at| at.place), message);
    }
}
