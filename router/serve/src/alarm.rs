//! A timer that rings within a tenth of a millisecond.
//!
//! Tokio's own timer ticks once a millisecond, too coarse for an objective of five. The kernel's
//! timer is not, and one per model, set to the nearest event, is enough: setting it later than it
//! stands is left for when it rings.

use std::{
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use policy::moment::Moment;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

const SHORTEST_NANOS: i64 = 1;

/// One kernel timer.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    rings_at: AtomicU64,
}

impl Alarm {
    /// A silent alarm. Must be made inside a runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that change their descriptor; an OwnedFd cannot"
    )]
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self {
            timer: AsyncFd::with_interest(timer, Interest::READABLE)?,
            rings_at: AtomicU64::new(u64::MAX),
        })
    }

    /// Makes it ring no later than `at`.
    pub fn set(&self, at: Moment, now: Moment) {
        if at.micros() >= self.rings_at.load(Ordering::Relaxed) {
            return;
        }
        self.rings_at.store(at.micros(), Ordering::Relaxed);
        let wait = at.since(now);
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()).max(SHORTEST_NANOS),
        };
        let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: interval, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)
            .expect("a valid time on our own timer can always be set");
    }

    /// Waits for it to ring, once.
    pub async fn rings(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut count = [0; 8];
            let read = rustix::io::read(self.timer.get_ref(), &mut count);
            // What was read is spent, and setting the timer anew takes back a ring not yet read.
            ready.clear_ready();
            match read {
                Ok(_) => break,
                Err(rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.rings_at.store(u64::MAX, Ordering::Relaxed);
        Ok(())
    }
}
