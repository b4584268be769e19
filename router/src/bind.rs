//! Listening, and whose fault it is where that fails.

use std::{
    fmt, fs, io,
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
    process,
};

use tokio::net::TcpListener;

/// A listener's address, with where an operator changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Inference,
    Admin,
    Join,
}

impl Port {
    /// The key, and what overrides it.
    fn setting(self) -> &'static str {
        match self {
            Self::Inference => "listen of [router], SLUICE_LISTEN or --listen",
            Self::Admin => "admin_listen of [router], SLUICE_ADMIN_LISTEN or --admin-listen",
            Self::Join => "join_listen of [router]",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {why}; give another address in {}", .port.setting())]
pub struct BindError {
    pub port: Port,
    pub address: SocketAddr,
    pub why: Why,
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub enum Why {
    /// With who has it, where that can be read.
    InUse {
        holder: Option<Holder>,
    },
    NotOurs {
        ip: IpAddr,
    },
    Privileged {
        port: u16,
    },
    Other(io::Error),
}

/// A process that listens on a port.
#[derive(Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { holder: Some(Holder { pid, .. }) } if *pid == process::id() => {
                f.write_str("the port is in use by another listener of this router")
            }
            Self::InUse { holder: Some(Holder { pid, name }) } => {
                write!(f, "the port is in use by {name} (pid {pid})")
            }
            Self::InUse { holder: None } => f.write_str(
                "the port is in use by a process of another user or container \
                 (`ss -ltnp` as root names it)",
            ),
            Self::NotOurs { ip } => write!(f, "no interface of this machine has the address {ip}"),
            Self::Privileged { port } => {
                write!(f, "port {port} is below 1024, which needs CAP_NET_BIND_SERVICE")
            }
            Self::Other(error) => error.fmt(f),
        }
    }
}

pub(crate) async fn bind(port: Port, address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| BindError { port, address, why: why(address, error) })
}

fn why(address: SocketAddr, error: io::Error) -> Why {
    let (kind, port) = (error.kind(), address.port());
    if kind == io::ErrorKind::AddrInUse {
        Why::InUse { holder: holder(port) }
    } else if kind == io::ErrorKind::AddrNotAvailable {
        Why::NotOurs { ip: address.ip() }
    } else if kind == io::ErrorKind::PermissionDenied && port < 1024 {
        Why::Privileged { port }
    } else {
        Why::Other(error)
    }
}

/// The process that listens on `port`, if this user may see it.
fn holder(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let tables = tables.into_iter().flatten();
    let sockets: Vec<String> = tables.flat_map(|table| listening(&table, port)).collect();
    let mut pids: Vec<u32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    // Children that inherited the socket are younger.
    pids.sort_unstable();
    let pid = pids.into_iter().find(|pid| has_any(*pid, &sockets))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, name: name.trim().to_owned() })
}

/// Listening sockets on `port`, in the kernel's table, as `/proc/PID/fd` names them.
fn listening(table: &str, port: u16) -> Vec<String> {
    let ends = format!(":{port:04X}");
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&ends) && *fields.get(3)? == "0A";
        listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

fn has_any(pid: u32, sockets: &[String]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        sockets.iter().any(|socket| socket.as_bytes() == target.as_os_str().as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_names_its_holder_and_the_setting() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        assert_eq!(holder(address.port()).unwrap().pid, process::id());
        let error = bind(Port::Admin, address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "cannot listen on {address}: the port is in use by another listener of this router; give \
                 another address in admin_listen of [router], SLUICE_ADMIN_LISTEN or --admin-listen"
            )
        );
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_told_apart_from_a_taken_port() {
        // Of the block for documentation: no machine has it.
        let error = bind(Port::Inference, "192.0.2.1:0".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error.why, Why::NotOurs { .. }), "{error}");
    }

    #[test]
    fn only_sockets_that_listen_on_the_port_count() {
        let table = "  sl  local_address rem_address   st tx rx tr tm retrnsmt uid timeout inode\n\
             0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 111 1\n\
             1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000 0 0 222 1\n\
             2: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 333 1\n";
        assert_eq!(listening(table, 8000), ["socket:[111]"]);
    }
}
