//! Pausing the control rounds, while another process takes over or has not handed over yet.

use tokio::sync::watch;

/// Whether rounds run, and how many have.
#[derive(Debug)]
pub struct Pause {
    wanted: watch::Sender<bool>,
    paused: watch::Sender<bool>,
    rounds: watch::Sender<u64>,
}

impl Default for Pause {
    fn default() -> Self {
        let [wanted, paused] = [(); 2].map(|()| watch::Sender::new(false));
        Self { wanted, paused, rounds: watch::Sender::new(0) }
    }
}

impl Pause {
    /// Has rounds stop, and returns when the one under way has ended and what was learned is stored.
    pub async fn begin(&self) {
        self.wanted.send_replace(true);
        // An error would mean that the sender is gone, which is here.
        let _ = self.paused.subscribe().wait_for(|paused| *paused).await;
    }

    /// Has no round begin before [`Pause::end`]. For a control plane whose rounds have not started.
    pub fn from_the_start(&self) {
        self.wanted.send_replace(true);
    }

    /// Lets rounds run again.
    pub fn end(&self) {
        self.paused.send_replace(false);
        self.wanted.send_replace(false);
    }

    /// Returns when a round has run from its beginning to its end.
    pub async fn one_round(&self) {
        let mut rounds = self.rounds.subscribe();
        // The one under way may have begun with less than is known now.
        let enough = *rounds.borrow_and_update() + 1;
        let _ = rounds.wait_for(|count| *count >= enough).await;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        *self.wanted.borrow()
    }

    pub(crate) fn changed(&self) -> watch::Receiver<bool> {
        self.wanted.subscribe()
    }

    /// Notes that nothing runs; unless rounds were asked for again meanwhile.
    pub(crate) fn paused(&self) {
        let wanted = self.is_wanted();
        self.paused.send_if_modified(|paused| !std::mem::replace(paused, wanted) && wanted);
    }

    pub(crate) fn ran(&self) {
        self.rounds.send_modify(|count| *count += 1);
    }
}
