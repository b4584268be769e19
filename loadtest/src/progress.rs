//! The run as it goes, on one line of a terminal.

use std::{
    io::Write,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::JoinHandle,
};

use crate::{engine::Live, table::millis};

/// Writes what it is told from a thread of its own, so that a slow terminal cannot delay a request.
pub struct Progress {
    writer: Option<(SyncSender<Live>, JoinHandle<()>)>,
}

impl Progress {
    /// Silent unless there is someone to look.
    pub fn new(someone_looks: bool) -> Self {
        let writer = someone_looks.then(|| {
            let (sender, receiver) = sync_channel(4);
            (sender, std::thread::spawn(move || write(&receiver)))
        });
        Self { writer }
    }

    pub fn tell(&self, live: Live) {
        if let Some((sender, _)) = &self.writer {
            // A full channel means a slow terminal: the next state replaces this one anyway.
            let _ = sender.try_send(live);
        }
    }

    pub fn finish(self) {
        if let Some((sender, writer)) = self.writer {
            drop(sender);
            let _ = writer.join();
        }
    }
}

fn write(receiver: &Receiver<Live>) {
    let mut terminal = std::io::stderr();
    while let Ok(live) = receiver.recv() {
        let _ = write!(terminal, "\r\x1b[K{}", line(&live));
        let _ = terminal.flush();
    }
    let _ = write!(terminal, "\r\x1b[K");
}

fn line(live: &Live) -> String {
    let covers = live.covers.as_secs_f64().max(f64::MIN_POSITIVE);
    format!(
        "{:>6.1} s  {:>7.0}/s  {:>5} in flight  p50 {} ms  p99 {} ms  {:.1} % in time  {:.0} refused/s",
        live.elapsed.as_secs_f64(),
        live.ended.offered() as f64 / covers,
        live.in_flight,
        millis(live.p50.as_secs_f64() * 1e3),
        millis(live.p99.as_secs_f64() * 1e3),
        100.0 * live.ended.share_in_time(),
        live.ended.refused as f64 / covers,
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tally::Counts;

    #[test]
    fn the_line_shows_rates_of_the_time_it_covers() {
        let live = Live {
            elapsed: Duration::from_secs(3),
            in_flight: 7,
            ended: Counts { in_time: 90, refused: 10, ..Counts::default() },
            covers: Duration::from_millis(250),
            p50: Duration::from_millis(2),
            p99: Duration::from_millis(15),
        };
        assert_eq!(
            line(&live),
            "   3.0 s      400/s      7 in flight  p50 2.00 ms  p99 15.0 ms  90.0 % in time  40 refused/s"
        );
    }
}
