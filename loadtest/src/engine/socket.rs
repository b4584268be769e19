//! One connection and the request it carries.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt},
};
use tls::ClientConnection;
use wire::{Answer, Reader, Secure};

use crate::clock;

#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) stream: usize,
    pub(super) variant: usize,
    /// When it was due, by the machine's clock.
    pub(super) due: Duration,
    /// Whether it has been sent on a connection that turned out to be dead.
    pub(super) again: bool,
}

pub(super) enum Progress {
    Waiting,
    Answered(Answer),
    /// The connection is of no more use.
    Broken,
}

pub(super) struct Socket {
    fd: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    token: u64,
    reader: Reader,
    written: usize,
    answered: u64,
    watching_writes: bool,
    pub(super) connecting: bool,
    pub(super) flight: Option<Flight>,
}

impl Socket {
    /// Begins to connect. The socket reports by `token` when it can be written to.
    pub(super) fn open(epoll: &OwnedFd, address: SocketAddr, token: u64) -> Result<Self, Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&fd, true)?;
        match net::connect(&fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        epoll::add(epoll, &fd, EventData::new_u64(token), EventFlags::IN | EventFlags::OUT)?;
        Ok(Self {
            fd,
            tls: None,
            token,
            reader: Reader::default(),
            written: 0,
            answered: 0,
            watching_writes: true,
            connecting: true,
            flight: None,
        })
    }

    pub(super) fn over(mut self, secure: Option<&Secure>) -> Result<Self, Errno> {
        if let Some(secure) = secure {
            let mut tls = secure.begin().map_err(|_| Errno::PROTO)?;
            // A request is handed over whole, and waits there while the kernel takes no more.
            tls.set_buffer_limit(None);
            self.tls = Some(Box::new(tls));
        }
        Ok(self)
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Whether a request lost here may be sent again: an idle connection can close under us.
    pub(super) fn may_resend(&self) -> bool {
        self.answered > 0 && self.reader.is_fresh()
    }

    pub(super) fn connected(&mut self, epoll: &OwnedFd) -> bool {
        self.connecting = false;
        let healthy = matches!(sockopt::socket_error(&self.fd), Ok(Ok(())));
        healthy && self.watch_writes(epoll, false)
    }

    /// Sends what is left of `request`; gives the moment sending began.
    pub(super) fn send(&mut self, epoll: &OwnedFd, request: &[u8]) -> Result<Duration, Errno> {
        let began = clock::now();
        if let Some(tls) = &mut self.tls {
            if self.written == 0 {
                tls.writer().write_all(request).map_err(|_| Errno::PROTO)?;
                self.written = request.len();
            }
            self.flush(epoll)?;
            return Ok(began);
        }
        while self.written < request.len() {
            match net::send(&self.fd, &request[self.written..], SendFlags::NOSIGNAL) {
                Ok(sent) => self.written += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !self.watching_writes && !self.watch_writes(epoll, true) {
                        return Err(Errno::BADF);
                    }
                    return Ok(began);
                }
                Err(error) => return Err(error),
            }
        }
        if self.watching_writes && !self.watch_writes(epoll, false) {
            return Err(Errno::BADF);
        }
        Ok(began)
    }

    pub(super) fn is_sending(&self) -> bool {
        self.watching_writes
    }

    pub(super) fn receive(&mut self, epoll: &OwnedFd, buffer: &mut [u8]) -> Progress {
        if self.tls.is_some() {
            return self.receive_tls(epoll, buffer);
        }
        loop {
            match net::recv(&self.fd, &mut *buffer, RecvFlags::empty()) {
                Ok((_, 0)) => {
                    return match self.reader.closed() {
                        Ok(Some(answer)) => self.answer(answer),
                        Ok(None) | Err(_) => Progress::Broken,
                    };
                }
                Ok((_, got)) => match self.reader.feed(&buffer[..got], &mut |_| ()) {
                    Ok(Some(answer)) => return self.answer(answer),
                    Ok(None) if got < buffer.len() => return Progress::Waiting,
                    Ok(None) => {}
                    Err(_) => return Progress::Broken,
                },
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Progress::Waiting,
                Err(_) => return Progress::Broken,
            }
        }
    }

    fn receive_tls(&mut self, epoll: &OwnedFd, buffer: &mut [u8]) -> Progress {
        loop {
            let Some(tls) = &mut self.tls else { return Progress::Broken };
            let came = tls.read_tls(&mut Raw(&self.fd));
            if tls.process_new_packets().is_err() {
                return Progress::Broken;
            }
            match tls.reader().read(buffer) {
                Ok(0) => {
                    return match self.reader.closed() {
                        Ok(Some(answer)) => self.answer(answer),
                        Ok(None) | Err(_) => Progress::Broken,
                    };
                }
                Ok(got) => match self.reader.feed(&buffer[..got], &mut |_| ()) {
                    Ok(Some(answer)) => return self.answer(answer),
                    Ok(None) => continue,
                    Err(_) => return Progress::Broken,
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Progress::Broken,
            }
            // What the handshake held back can be sent once it is done.
            if tls.wants_write() && self.flush(epoll).is_err() {
                return Progress::Broken;
            }
            match came {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting;
                }
                Ok(0) | Err(_) => return Progress::Broken,
            }
        }
    }

    /// Sends what TLS has ready, or asks to be told when the kernel takes more.
    fn flush(&mut self, epoll: &OwnedFd) -> Result<(), Errno> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut full = false;
        while tls.wants_write() && !full {
            match tls.write_tls(&mut Raw(&self.fd)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => full = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Errno::PIPE),
            }
        }
        if full != self.watching_writes && !self.watch_writes(epoll, full) {
            return Err(Errno::BADF);
        }
        Ok(())
    }

    fn answer(&mut self, answer: Answer) -> Progress {
        self.answered += 1;
        // An answer before the request was whole leaves the connection in no known state.
        let close = answer.close || self.watching_writes;
        self.written = 0;
        Progress::Answered(Answer { close, ..answer })
    }

    fn watch_writes(&mut self, epoll: &OwnedFd, on: bool) -> bool {
        self.watching_writes = on;
        let flags = if on { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        epoll::modify(epoll, &self.fd, EventData::new_u64(self.token), flags).is_ok()
    }
}

struct Raw<'a>(&'a OwnedFd);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(net::recv(self.0, buffer, RecvFlags::empty()).map(|(_, got)| got)?)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
