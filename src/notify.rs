//! Readiness notifications for systemd, if `NOTIFY_SOCKET` is set.

use std::{
    env,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

pub(crate) fn ready() {
    say("READY=1");
}

/// Ready in place of the process that was the main one before.
pub(crate) fn replaced() {
    say(&format!("MAINPID={}\nREADY=1", std::process::id()));
}

pub(crate) fn stopping() {
    say("STOPPING=1");
}

fn say(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, state, "failed to notify systemd");
    }
}
