//! Requests waiting for one model, earliest deadline first.
//!
//! Requests that can share a batch stand in one lane. Arrivals come almost in deadline order, so a
//! lane is a ring kept sorted by insertion from its end: the common insertion moves nothing.

use std::collections::VecDeque;

use crate::moment::Moment;

/// How readily a waiting request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Of the batch class: takes only the room that others leave.
    Low,
    /// Of a tenant at or above its share.
    Normal,
    /// Of a tenant below its share: never skipped for the sake of a larger batch.
    Protected,
}

/// One waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The caller's name for it; also the tie-breaker between equal deadlines.
    pub id: u64,
    /// When it came.
    pub arrived: Moment,
    /// When its answer is due.
    pub deadline: Moment,
    /// Rows it adds to a batch.
    pub rows: u32,
    /// Whose it is.
    pub tenant: u32,
    /// How readily it is shed.
    pub standing: Standing,
    /// Whether it must have a batch to itself, because it spoilt one or was in one that was spoilt.
    pub alone: bool,
}

/// Requests of one batch key and standing, earliest deadline first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    entries: VecDeque<Waiting>,
    rows: u64,
}

impl Line {
    /// Requests waiting.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Rows waiting.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The request with the earliest deadline.
    pub fn head(&self) -> Option<&Waiting> {
        self.entries.front()
    }

    /// The `index`-th by deadline.
    pub fn get(&self, index: usize) -> Option<&Waiting> {
        self.entries.get(index)
    }

    /// All, by deadline.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiting> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Rows due at or before `deadline`.
    pub fn rows_due_by(&self, deadline: Moment) -> u64 {
        match self.entries.back() {
            Some(last) if last.deadline <= deadline => self.rows,
            Some(_) | None => self
                .entries
                .iter()
                .take_while(|entry| entry.deadline <= deadline)
                .map(|entry| u64::from(entry.rows))
                .sum(),
        }
    }

    /// Adds a request in its place.
    pub fn insert(&mut self, waiting: Waiting) {
        let place = self
            .entries
            .iter()
            .rposition(|entry| key(entry) <= key(&waiting))
            .map_or(0, |before| before + 1);
        self.rows += u64::from(waiting.rows);
        self.entries.insert(place, waiting);
    }

    /// Takes out the request `id` due at `deadline`, if it is here.
    pub fn remove(&mut self, deadline: Moment, id: u64) -> Option<Waiting> {
        let place = self.entries.binary_search_by_key(&(deadline, id), key).ok()?;
        self.remove_at(place)
    }

    /// Takes out the `index`-th by deadline.
    pub fn remove_at(&mut self, index: usize) -> Option<Waiting> {
        let removed = self.entries.remove(index)?;
        self.rows -= u64::from(removed.rows);
        Some(removed)
    }

    /// Takes the first `count`.
    pub fn take(&mut self, count: usize) -> impl Iterator<Item = Waiting> + '_ {
        let taken: u64 = self.entries.iter().take(count).map(|entry| u64::from(entry.rows)).sum();
        self.rows -= taken;
        self.entries.drain(..count)
    }
}

/// Requests that may share a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lane {
    /// Those served in their own right.
    pub main: Line,
    /// Those that fill what room is left.
    pub low: Line,
}

impl Lane {
    /// The line in which `standing` waits.
    pub fn line(&mut self, standing: Standing) -> &mut Line {
        match standing {
            Standing::Low => &mut self.low,
            Standing::Normal | Standing::Protected => &mut self.main,
        }
    }

    /// The line a batch starts from: the main one unless it is empty.
    pub fn leading(&self) -> &Line {
        if self.main.is_empty() { &self.low } else { &self.main }
    }

    /// Requests waiting in both lines.
    pub fn len(&self) -> usize {
        self.main.len() + self.low.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn key(entry: &Waiting) -> (Moment, u64) {
    (entry.deadline, entry.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64, due_us: u64) -> Waiting {
        Waiting {
            id,
            arrived: Moment::default(),
            deadline: Moment::from_micros(due_us),
            rows: 2,
            tenant: 0,
            standing: Standing::Normal,
            alone: false,
        }
    }

    fn line(due: &[u64]) -> Line {
        let mut line = Line::default();
        for (id, due_us) in due.iter().enumerate() {
            line.insert(waiting(id as u64, *due_us));
        }
        line
    }

    #[test]
    fn requests_leave_by_deadline_whatever_their_order_of_arrival() {
        let mut line = line(&[50, 10, 30, 10, 40]);
        let order: Vec<u64> = line.take(5).map(|entry| entry.id).collect();
        assert_eq!(order, [1, 3, 2, 4, 0]);
        assert_eq!(line, Line::default());
    }

    #[test]
    fn a_removed_request_leaves_no_trace() {
        let mut line = line(&[10, 20, 30]);
        assert_eq!(line.remove(Moment::from_micros(20), 1).map(|entry| entry.id), Some(1));
        assert_eq!(line.remove(Moment::from_micros(20), 1), None);
        assert_eq!(line.rows(), 4);
        line.remove(Moment::from_micros(10), 0);
        line.remove(Moment::from_micros(30), 2);
        assert_eq!(line, Line::default());
    }

    #[test]
    fn only_work_due_no_later_counts_as_ahead() {
        let line = line(&[10, 20, 30]);
        assert_eq!(line.rows_due_by(Moment::from_micros(9)), 0);
        assert_eq!(line.rows_due_by(Moment::from_micros(20)), 4);
        assert_eq!(line.rows_due_by(Moment::from_micros(99)), 6);
    }
}
