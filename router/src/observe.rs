//! Sees changes of the fleet in its state, and notes them as events.

mod seen;

use std::{sync::Arc, time::Duration};

use serve::{doors::oip::ServerState, trace::Build};
use tokio::time::{MissedTickBehavior, interval};

use self::seen::Seen;
use crate::{registry::Registry, state::State};

/// How often the state is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Looks at the state again and again, and notes what became different.
pub(crate) async fn run(shared: Arc<ServerState<Registry>>, build: Build) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = None;
    loop {
        ticks.tick().await;
        let (state, build) = (Arc::clone(&shared), build.clone());
        // A large fleet takes some milliseconds: not between two requests.
        let look = move || Seen::of(&State::read(&state, &build));
        let Ok(now) = tokio::task::spawn_blocking(look).await else { continue };
        let then = before.unwrap_or_default();
        now.since(&then).into_iter().for_each(|change| shared.backend.events().note(change));
        before = Some(now);
    }
}
