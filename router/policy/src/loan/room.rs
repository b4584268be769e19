//! Who makes room for a job that goes first: shrinks before stops, and no more than needed.

use std::cmp::Reverse;

use super::{Stop, free_slices::Desk, reserve::yields_to};

/// The running jobs that may be told to make room.
pub(super) struct Makers {
    /// Those whose lease is over, the last in the order first.
    contestable: Vec<usize>,
    /// Those of them with more than their fewest slices, the most first.
    wide: Vec<usize>,
}

impl Makers {
    pub(super) fn new(desk: &Desk<'_>) -> Self {
        let jobs = desk.world.jobs;
        let mut contestable: Vec<usize> =
            (0..jobs.len()).filter(|job| desk.contestable(*job)).collect();
        contestable.sort_by(|a, b| desk.places[*b].cmp(&desk.places[*a]));
        let mut wide: Vec<usize> =
            contestable.iter().copied().filter(|job| extras(desk, *job) > 0).collect();
        wide.sort_by_key(|job| (Reverse(extras(desk, *job)), *job));
        Self { contestable, wide }
    }

    /// Has others shrink or stop so that `job` can start; nobody, if that is not enough.
    pub(super) fn make(&self, desk: &mut Desk<'_>, job: usize) -> bool {
        let ask = &desk.world.jobs[job].ask;
        let suits = |slice: &&usize| ask.suits(&desk.world.slices[**slice]);
        let there = desk.available().iter().filter(suits).count();
        let needed = (ask.least as usize).saturating_sub(there);
        let Some(made) = self.plan(desk, job, needed) else { return false };
        let by = desk.world.now + desk.rules.notice;
        let why = Stop::Yields { to: desk.world.jobs[job].id };
        made.shrinks.into_iter().for_each(|(wide, given)| desk.shrink(wide, given, by, why));
        made.stops.into_iter().for_each(|(last, _)| desk.stop(last, by, why));
        true
    }

    fn plan(&self, desk: &Desk<'_>, job: usize, needed: usize) -> Option<Made> {
        let mut short = needed;
        let mut made = Made::default();
        for wide in self.wide.iter().copied() {
            if short == 0 || !desk.contestable(wide) {
                continue;
            }
            let given: Vec<usize> =
                desk.suited(wide, job).take(extras(desk, wide).min(short)).collect();
            short -= given.len();
            if !given.is_empty() {
                made.shrinks.push((wide, given));
            }
        }
        for last in self.contestable.iter().copied() {
            if short == 0 {
                break;
            }
            let given = desk.suited(last, job).count();
            let untold =
                desk.contestable(last) && made.shrinks.iter().all(|(wide, _)| *wide != last);
            if given > 0 && untold && yields_to(desk, last, job) {
                made.stops.push((last, given));
                short = short.saturating_sub(given);
            }
        }
        made.spare(needed);
        (short == 0).then_some(made)
    }
}

#[derive(Default)]
struct Made {
    shrinks: Vec<(usize, Vec<usize>)>,
    /// Jobs, and how many of their slices count.
    stops: Vec<(usize, usize)>,
}

impl Made {
    /// Drops the stops that are not needed, those that stand first in the order before others.
    fn spare(&mut self, needed: usize) {
        let shrunk: usize = self.shrinks.iter().map(|(_, given)| given.len()).sum();
        let stopped: usize = self.stops.iter().map(|(_, given)| given).sum();
        let mut surplus = (shrunk + stopped).saturating_sub(needed);
        for at in (0..self.stops.len()).rev() {
            let (_, given) = self.stops[at];
            if given <= surplus {
                surplus -= given;
                self.stops.remove(at);
            }
        }
    }
}

fn extras(desk: &Desk<'_>, job: usize) -> usize {
    desk.held[job].len().saturating_sub(desk.world.jobs[job].ask.least as usize)
}
