//! Clockwork's rule: the largest of a few fixed sizes that can be filled with requests it can save.
//!
//! Requests too tight for a large batch stay for a smaller one and time out unanswered, as in the
//! original; the internal deadline stands a twentieth of the objective before the real one, as five
//! milliseconds do in its default of a hundred.

use super::{Bound, Decision, Guard, Rule, View};
use crate::moment::Moment;

const BUFFER: u32 = 20;

/// Sends the largest power of two that is full and in time.
#[derive(Clone, Copy, Debug)]
pub struct Deadline;

impl Rule for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn decide(&self, view: &View<'_>) -> Decision {
        let mut size = prev_power_of_two(view.limit);
        loop {
            let finish = view.start + view.latency.high(size) + view.objective / BUFFER;
            let skip = view.line.iter().take_while(|waiting| waiting.by() < finish).count();
            let fit = view.fit(skip, size);
            if skip < view.line.len() && (fit.rows >= size || size == 1) {
                let all = skip + fit.count == view.line.len();
                let bound = if all { Bound::Waiting } else { Bound::Limit };
                return Decision::Send { skip, take: fit.count, drop_skipped: false, bound };
            }
            if size == 1 {
                return Decision::Wait { until: Moment::NEVER };
            }
            size /= 2;
        }
    }

    fn guard(&self) -> Guard {
        Guard::Off
    }

    fn predicts(&self) -> bool {
        false
    }
}

fn prev_power_of_two(value: u32) -> u32 {
    1 << value.max(1).ilog2()
}
