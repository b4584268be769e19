//! A port for a server to listen on.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

/// Ports below those the system gives to outgoing connections, one of which could take a port
/// between this choice and the server's start.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Ports tried before it is said that none is free.
const ATTEMPTS: usize = 64;

/// An address on this machine that nobody listens on.
pub(super) fn free() -> io::Result<SocketAddr> {
    let mut tried = Err(io::Error::from(io::ErrorKind::AddrInUse));
    for _ in 0..ATTEMPTS {
        let mut bytes = [0; 2];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let port = FIRST + u16::from_le_bytes(bytes) % COUNT;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => tried = Err(error),
        }
    }
    tried
}
