//! Stopping without losing requests.
//!
//! A router that is told to stop first says it is not ready and goes on serving, because balancers
//! learn of it only by asking; then it stops accepting and finishes what it has; then it ends. The
//! order is the whole point, so it is in one place: [`Drain::run`] moves the phase, everyone else
//! looks at it. A person at a terminal, who sends SIGINT, has no balancer to wait for.

use std::{
    future::Future,
    io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc, watch},
    time::{sleep, timeout},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// Not ready, but still accepting; HTTP/1.1 replies ask the client to reconnect elsewhere.
    Leaving,
    /// Another process accepts in place of this one. Connections end with their next response.
    HandedOver,
    /// No longer accepting; requests in flight are finished.
    Closing,
    /// Time is up: what is left is dropped.
    Cut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the request to stop until the listener closes.
    pub delay: Duration,
    /// From then until requests still in flight are dropped.
    pub timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM, from a supervisor.
    Terminate,
    /// SIGINT, from a terminal: the listener closes at once.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Every request in flight was answered.
    Finished,
    /// Some were dropped, since the time was up.
    Cut,
    Hurried,
}

/// How long connections have for a last response when a drain after a handover has timed out.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// The phase of this process, and who may move it.
#[derive(Debug)]
pub struct Drain {
    phase: watch::Sender<Phase>,
    draining: AtomicBool,
    asked: Notify,
    /// Whether listeners accept connections. Those that wait are in the kernel's queue.
    accepting: watch::Sender<bool>,
}

impl Default for Drain {
    fn default() -> Self {
        let (phase, accepting) = (watch::Sender::new(Phase::Serving), watch::Sender::new(true));
        Self { phase, draining: AtomicBool::new(false), asked: Notify::new(), accepting }
    }
}

impl Drain {
    /// Whether a stop has begun. Cheap enough for every request.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The phase now and as it changes.
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Has all listeners accept, or leave new connections in the kernel's queue.
    pub fn accept(&self, accepting: bool) {
        self.accepting.send_replace(accepting);
    }

    /// Whether listeners accept, now and as it changes.
    pub fn accepting(&self) -> watch::Receiver<bool> {
        self.accepting.subscribe()
    }

    /// Asks for a stop as one signal would. Asking again changes nothing.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Waits for a signal or [`Drain::ask`], then stops in order.
    ///
    /// `times` is asked when the stop begins, so a reload before it counts. `served` must end once
    /// the listener is closed and its last connection is done.
    pub async fn run(
        &self,
        signals: &mut mpsc::Receiver<StopSignal>,
        times: impl FnOnce() -> Times,
        served: impl Future,
    ) -> Ended {
        tokio::pin!(served);
        let signal = tokio::select! {
            signal = next(signals) => signal,
            () = self.asked.notified() => StopSignal::Terminate,
        };
        let mut times = times();
        if signal == StopSignal::Interrupt {
            times.delay = Duration::ZERO;
        }
        self.enter(Phase::Leaving);
        let (delay_s, timeout_s) = (times.delay.as_secs_f64(), times.timeout.as_secs_f64());
        match signal {
            StopSignal::Terminate => tracing::info!(
                delay_s,
                timeout_s,
                "draining: not ready, still accepting; a second signal stops at once"
            ),
            StopSignal::Interrupt => tracing::info!(
                timeout_s,
                "draining requests in flight; press Ctrl-C again to stop at once"
            ),
        }
        tokio::select! {
            () = sleep(times.delay) => {}
            _ = next(signals) => return self.hurry(),
        }
        self.enter(Phase::Closing);
        tracing::info!("draining: listener closed, finishing requests in flight");
        let finished = tokio::select! {
            finished = timeout(times.timeout, served) => finished.is_ok(),
            _ = next(signals) => return self.hurry(),
        };
        if finished {
            tracing::info!("drained");
            return Ended::Finished;
        }
        self.enter(Phase::Cut);
        tracing::warn!(timeout_s, "drain timed out; requests still in flight were dropped");
        Ended::Cut
    }

    /// Ends in order after another process has taken the listeners over.
    ///
    /// Idle HTTP/1.1 connections stay until their client asks once more or `timeout` is over: a
    /// client whose connection closes as it sends can't tell whether its request was served.
    pub async fn hand_over(
        &self,
        signals: &mut mpsc::Receiver<StopSignal>,
        timeout_after: Duration,
        served: impl Future,
    ) -> Ended {
        tokio::pin!(served);
        self.enter(Phase::HandedOver);
        tracing::info!(
            timeout_s = timeout_after.as_secs_f64(),
            "handed over: finishing requests in flight"
        );
        let steps = [(timeout_after, Phase::Closing), (LAST_RESPONSES, Phase::Cut)];
        for (wait, then) in steps {
            tokio::select! {
                finished = timeout(wait, &mut served) => if finished.is_ok() {
                    tracing::info!("drained");
                    return Ended::Finished;
                },
                _ = next(signals) => return self.hurry(),
            }
            self.enter(then);
        }
        tracing::warn!("drain timed out; requests still in flight were dropped");
        Ended::Cut
    }

    fn hurry(&self) -> Ended {
        self.enter(Phase::Cut);
        tracing::warn!("second signal: ending at once");
        Ended::Hurried
    }

    fn enter(&self, phase: Phase) {
        self.draining.store(true, Ordering::Relaxed);
        self.phase.send_replace(phase);
    }
}

/// The next signal; never, once no more can come.
async fn next(signals: &mut mpsc::Receiver<StopSignal>) -> StopSignal {
    match signals.recv().await {
        Some(signal) => signal,
        None => std::future::pending().await,
    }
}

pub fn stop_signals() -> io::Result<mpsc::Receiver<StopSignal>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => StopSignal::Terminate,
                _ = interrupt.recv() => StopSignal::Interrupt,
            };
            if sender.send(signal).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{sync::oneshot, time::Instant};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    struct Stopping {
        drain: Arc<Drain>,
        signal: mpsc::Sender<StopSignal>,
        served: oneshot::Sender<()>,
        ended: tokio::task::JoinHandle<Ended>,
        phase: watch::Receiver<Phase>,
    }

    fn start(delay: Duration, timeout: Duration) -> Stopping {
        let drain = Arc::new(Drain::default());
        let (signal, mut signals) = mpsc::channel(4);
        let (served, on_served) = oneshot::channel::<()>();
        let phase = drain.watch();
        let running = Arc::clone(&drain);
        let ended = tokio::spawn(async move {
            running.run(&mut signals, || Times { delay, timeout }, on_served).await
        });
        Stopping { drain, signal, served, ended, phase }
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_fails_at_once_and_the_listener_closes_after_the_delay() {
        for delay in [Duration::from_millis(700), Duration::from_secs(23)] {
            let mut stopping = start(delay, HOUR);
            assert!(!stopping.drain.is_draining());
            stopping.signal.send(StopSignal::Terminate).await.unwrap();
            let begun = Instant::now();
            stopping.phase.wait_for(|phase| *phase == Phase::Leaving).await.unwrap();
            assert!(stopping.drain.is_draining());
            assert_eq!(begun.elapsed(), Duration::ZERO);
            stopping.phase.wait_for(|phase| *phase == Phase::Closing).await.unwrap();
            assert_eq!(begun.elapsed(), delay);
            stopping.served.send(()).unwrap();
            assert_eq!(stopping.ended.await.unwrap(), Ended::Finished);
            assert_eq!(begun.elapsed(), delay, "nothing in flight, nothing to wait for");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn interrupt_closes_the_listener_without_the_delay() {
        let mut stopping = start(HOUR, HOUR);
        let begun = Instant::now();
        stopping.signal.send(StopSignal::Interrupt).await.unwrap();
        stopping.phase.wait_for(|phase| *phase == Phase::Closing).await.unwrap();
        stopping.served.send(()).unwrap();
        assert_eq!(stopping.ended.await.unwrap(), Ended::Finished);
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_in_flight_are_dropped_only_after_the_timeout() {
        for timeout in [Duration::from_secs(2), Duration::from_secs(31)] {
            let delay = Duration::from_secs(5);
            let stopping = start(delay, timeout);
            let begun = Instant::now();
            stopping.drain.ask();
            assert_eq!(stopping.ended.await.unwrap(), Ended::Cut);
            assert_eq!(begun.elapsed(), delay + timeout);
            assert_eq!(*stopping.phase.borrow(), Phase::Cut);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_at_once_whenever_it_comes() {
        for (delay, wait_for) in [(HOUR, Phase::Leaving), (Duration::ZERO, Phase::Closing)] {
            let mut stopping = start(delay, HOUR);
            stopping.signal.send(StopSignal::Terminate).await.unwrap();
            stopping.phase.wait_for(|phase| *phase == wait_for).await.unwrap();
            let second = Instant::now();
            stopping.signal.send(StopSignal::Terminate).await.unwrap();
            assert_eq!(stopping.ended.await.unwrap(), Ended::Hurried);
            assert_eq!(second.elapsed(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn handover_closes_idle_connections_only_after_the_timeout() {
        let (drain, minute) = (Arc::new(Drain::default()), Duration::from_secs(60));
        let (_signal, mut signals) = mpsc::channel(4);
        let (served, on_served) = oneshot::channel::<()>();
        let mut phase = drain.watch();
        let (running, begun) = (Arc::clone(&drain), Instant::now());
        let ended =
            tokio::spawn(async move { running.hand_over(&mut signals, minute, on_served).await });
        phase.wait_for(|phase| *phase == Phase::HandedOver).await.unwrap();
        assert!(drain.is_draining());
        phase.wait_for(|phase| *phase == Phase::Closing).await.unwrap();
        assert_eq!(begun.elapsed(), minute);
        served.send(()).unwrap();
        assert_eq!(ended.await.unwrap(), Ended::Finished);
    }

    #[tokio::test(start_paused = true)]
    async fn asking_twice_over_http_does_not_hurry() {
        let mut stopping = start(Duration::from_secs(5), HOUR);
        stopping.drain.ask();
        stopping.phase.wait_for(|phase| *phase == Phase::Leaving).await.unwrap();
        stopping.drain.ask();
        stopping.phase.wait_for(|phase| *phase == Phase::Closing).await.unwrap();
        stopping.served.send(()).unwrap();
        assert_eq!(stopping.ended.await.unwrap(), Ended::Finished);
    }
}
