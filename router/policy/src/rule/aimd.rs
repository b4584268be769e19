//! Clipper's rule: whatever waits, up to a limit found by additive increase.

use super::{Decision, Guard, Rule, View, send_prefix};

#[derive(Clone, Copy, Debug)]
pub struct Aimd;

impl Rule for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        send_prefix(view, view.limit)
    }

    fn guard(&self) -> Guard {
        Guard::Execution
    }

    fn predicts(&self) -> bool {
        false
    }
}
