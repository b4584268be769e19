//! The connections of one run, bounded, the warmest used first.

use std::{net::SocketAddr, os::fd::OwnedFd};

use rustix::io::Errno;
use wire::Secure;

use super::socket::Socket;

/// Every connection, by slot. A token is a slot and the number of connections ever opened before,
/// so an event for a connection that is gone cannot be taken for its successor's.
pub(super) struct Pool {
    address: SocketAddr,
    secure: Option<Secure>,
    slots: Vec<Option<Socket>>,
    free: Vec<usize>,
    idle: Vec<u64>,
    most: usize,
    opened: u64,
    high: usize,
}

impl Pool {
    pub(super) fn new(address: SocketAddr, secure: Option<Secure>, most: usize) -> Self {
        let slots = std::iter::repeat_with(|| None).take(most).collect();
        let free = (0..most).rev().collect();
        Self { address, secure, slots, free, idle: Vec::new(), most, opened: 0, high: 0 }
    }

    pub(super) fn open(&mut self, epoll: &OwnedFd) -> Option<Result<&mut Socket, Errno>> {
        let slot = self.free.pop()?;
        let token = (self.opened << 32) | slot as u64;
        self.opened += 1;
        self.high = self.high.max(self.most - self.free.len());
        let opened = Socket::open(epoll, self.address, token);
        match opened.and_then(|socket| socket.over(self.secure.as_ref())) {
            Ok(socket) => Some(Ok(self.slots[slot].insert(socket))),
            Err(error) => {
                self.free.push(slot);
                Some(Err(error))
            }
        }
    }

    /// The connection used last of those that are idle.
    pub(super) fn take_idle(&mut self) -> Option<u64> {
        loop {
            let token = self.idle.pop()?;
            if self.get(token).is_some() {
                return Some(token);
            }
        }
    }

    pub(super) fn put_idle(&mut self, token: u64) {
        self.idle.push(token);
    }

    pub(super) fn get(&mut self, token: u64) -> Option<&mut Socket> {
        let socket = self.slots.get_mut(slot_of(token))?.as_mut()?;
        (socket.token() == token).then_some(socket)
    }

    pub(super) fn close(&mut self, token: u64) -> Option<Socket> {
        self.get(token)?;
        let slot = slot_of(token);
        self.free.push(slot);
        self.slots[slot].take()
    }

    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    pub(super) fn high(&self) -> usize {
        self.high
    }

    pub(super) fn is_open(&self) -> bool {
        self.free.len() < self.most
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.slots.iter().flatten()
    }
}

fn slot_of(token: u64) -> usize {
    (token & u64::from(u32::MAX)) as usize
}
