//! What one connection is doing, and how long it may go on doing it.
//!
//! hyper knows one timeout, for the head of a request, and counts a quiet keep-alive connection
//! against it; a client that sends nothing at all is not timed while the protocol is still being
//! guessed. So the connection keeps its own books: the stream notes when bytes come and when a write
//! blocks, each request holds a [`Busy`] until its last byte is written, and [`Clock`] arms a single
//! timer. Requests that arrive whole never touch the timer.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::Limits;

const NOT_STALLED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Nothing was asked for a while: close politely.
    Idle,
    /// A head did not arrive whole, or a reply is not being read: hang up.
    Stuck,
}

/// The books of one connection, shared by its stream, its requests and its clock.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    in_flight: AtomicU32,
    head_begun: AtomicBool,
    http2: AtomicBool,
    since_us: AtomicU64,
    stalled_us: AtomicU64,
}

impl Activity {
    /// A connection just opened, whose first head is awaited.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            in_flight: AtomicU32::new(0),
            head_begun: AtomicBool::new(true),
            http2: AtomicBool::new(false),
            since_us: AtomicU64::new(0),
            stalled_us: AtomicU64::new(NOT_STALLED),
        })
    }

    /// A request's head is read; the connection is busy until the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.head_begun.store(false, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        Busy(Arc::clone(self))
    }

    /// Bytes came from the client.
    pub(super) fn heard(&self) {
        if self.in_flight.load(Relaxed) == 0 && !self.head_begun.swap(true, Relaxed) {
            self.since_us.store(self.micros_open(), Relaxed);
        }
    }

    /// The client speaks HTTP/2, where heads are small and streams, not bytes, make a connection
    /// busy.
    pub(super) fn speaks_http2(&self) {
        self.http2.store(true, Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    /// A write was tried; `blocked` if the client is not reading.
    pub(super) fn wrote(&self, blocked: bool) {
        let stalled = self.stalled_us.load(Relaxed) != NOT_STALLED;
        match (stalled, blocked) {
            (false, true) => self.stalled_us.store(self.micros_open(), Relaxed),
            (true, false) => self.stalled_us.store(NOT_STALLED, Relaxed),
            (false, false) | (true, true) => {}
        }
    }

    /// Whether a request is on its way that a polite close would lose.
    pub(super) fn expects_request(&self) -> bool {
        self.in_flight.load(Relaxed) == 0
            && self.head_begun.load(Relaxed)
            && !self.http2.load(Relaxed)
    }

    /// When the connection will have taken too long, if nothing changes; never while it is busy.
    fn due(&self, limits: &Limits) -> Option<(Instant, Overdue)> {
        let stalled_us = self.stalled_us.load(Relaxed);
        if stalled_us != NOT_STALLED {
            return Some((self.after(stalled_us, limits.body_timeout), Overdue::Stuck));
        }
        if self.in_flight.load(Relaxed) > 0 {
            return None;
        }
        let since_us = self.since_us.load(Relaxed);
        if self.head_begun.load(Relaxed) && !self.http2.load(Relaxed) {
            Some((self.after(since_us, limits.header_timeout), Overdue::Stuck))
        } else {
            Some((self.after(since_us, limits.idle_timeout), Overdue::Idle))
        }
    }

    fn after(&self, since_us: u64, allowed: Duration) -> Instant {
        self.opened + Duration::from_micros(since_us) + allowed
    }

    fn micros_open(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(NOT_STALLED - 1)
    }
}

/// Held by a request from its head to the last byte of its reply.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.since_us.store(self.0.micros_open(), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

/// The connection's one timer, armed for the earliest moment that could matter.
///
/// It is moved forward when something becomes due sooner, and otherwise left to fire and look again.
pub(super) struct Clock {
    activity: Arc<Activity>,
    sleep: Pin<Box<Sleep>>,
}

impl Clock {
    pub(super) fn new(activity: Arc<Activity>, limits: &Limits) -> Self {
        let first = activity.opened + limits.header_timeout;
        Self { activity, sleep: Box::pin(sleep_until(first)) }
    }

    /// Ready when the connection is overdue. Poll after the connection itself.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, limits: &Limits) -> Poll<Overdue> {
        loop {
            let due = self.activity.due(limits);
            if let Some((due, _)) = due
                && due < self.sleep.deadline()
            {
                self.sleep.as_mut().reset(due);
            }
            ready!(self.sleep.as_mut().poll(cx));
            let now = Instant::now();
            match due {
                Some((due, overdue)) if due <= now => return Poll::Ready(overdue),
                Some((due, _)) => self.sleep.as_mut().reset(due),
                None => self.sleep.as_mut().reset(now + limits.idle_timeout),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::advance;

    use super::*;

    const LIMITS: Limits = Limits {
        max_connections: 1,
        max_header_bytes: 8_192,
        max_body_bytes: 1,
        header_timeout: Duration::from_secs(10),
        body_timeout: Duration::from_secs(30),
        idle_timeout: Duration::from_secs(75),
    };

    async fn overdue(activity: &Arc<Activity>) -> (Overdue, Duration) {
        let from = Instant::now();
        let mut clock = Clock::new(Arc::clone(activity), &LIMITS);
        let overdue = poll_fn(|cx| clock.poll(cx, &LIMITS)).await;
        (overdue, from.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_nothing_is_stuck_after_the_header_timeout() {
        assert_eq!(overdue(&Activity::new()).await, (Overdue::Stuck, LIMITS.header_timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_is_idle_from_its_last_reply() {
        let activity = Activity::new();
        let busy = activity.begin();
        advance(Duration::from_secs(500)).await;
        drop(busy);
        assert_eq!(overdue(&activity).await, (Overdue::Idle, LIMITS.idle_timeout));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_head_has_the_header_timeout_from_its_first_byte() {
        let activity = Activity::new();
        drop(activity.begin());
        advance(Duration::from_secs(60)).await;
        activity.heard();
        advance(Duration::from_secs(9)).await;
        activity.heard();
        assert_eq!(overdue(&activity).await, (Overdue::Stuck, Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_never_overdue() {
        let activity = Activity::new();
        let _busy = activity.begin();
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, overdue(&activity)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_nobody_reads_is_stuck_even_while_busy() {
        let activity = Activity::new();
        let _busy = activity.begin();
        activity.wrote(true);
        assert_eq!(overdue(&activity).await, (Overdue::Stuck, LIMITS.body_timeout));
        activity.wrote(false);
        assert!(tokio::time::timeout(LIMITS.body_timeout * 2, overdue(&activity)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_http2_connection_without_streams_is_idle_not_stuck() {
        let activity = Activity::new();
        activity.speaks_http2();
        activity.heard();
        assert_eq!(overdue(&activity).await, (Overdue::Idle, LIMITS.idle_timeout));
    }
}
