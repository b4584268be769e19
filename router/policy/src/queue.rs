//! Requests waiting for one model, earliest deadline first.
//!
//! Requests that can share a batch stand in one queue. Arrivals come almost in deadline order, so a
//! queue is a ring kept sorted by insertion from its end: the common insertion moves nothing.

use std::collections::VecDeque;

use crate::moment::Moment;

/// How readily a waiting request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Of those that cannot be in time any more: takes only what is left after all others.
    Late,
    /// Of the batch class: takes only the room that others leave.
    Low,
    /// Of a tenant at or above its share.
    Normal,
    /// Of a tenant that asks for less than its share: others take only the room it leaves.
    Protected,
}

/// Until when an answer is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// When it should be there: arrival and objective.
    pub due: Moment,
    /// When it is given up. Later than `due`, a late answer is wanted; sooner, the caller's own limit
    /// is shorter than the objective.
    pub deadline: Moment,
}

impl Until {
    /// An answer that should be there by `due` and is not wanted later.
    pub const fn both(due: Moment) -> Self {
        Self { due, deadline: due }
    }

    /// By when it is in time for its caller and for the objective.
    pub fn in_time(self) -> Moment {
        self.due.min(self.deadline)
    }

    pub fn wants_late(self) -> bool {
        self.deadline > self.due
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Unique; also the tie-breaker between equal deadlines.
    pub id: u64,
    pub arrived: Moment,
    pub until: Until,
    pub rows: u32,
    pub tenant: u32,
    pub priority: Priority,
    /// The most requests its batch may hold: halved each time its batch is spoilt by one of them.
    pub company: u32,
    /// How often its replica failed it; a death counts twice.
    pub strikes: u32,
}

impl Waiting {
    /// What it is scheduled by: when it must be done to be in time, or at all if that is past.
    pub fn by(&self) -> Moment {
        match self.priority {
            Priority::Late => self.until.deadline,
            Priority::Low | Priority::Normal | Priority::Protected => self.until.in_time(),
        }
    }

    /// The same, given up as in time; none if its caller does not want it late.
    pub fn made_late(self) -> Option<Self> {
        let may = self.priority != Priority::Late && self.until.wants_late();
        may.then_some(Self { priority: Priority::Late, ..self })
    }

    /// The same as what it can be if it is done at `finish`; none if that is too late for it.
    pub fn done_at(self, finish: Moment) -> Option<Self> {
        if finish <= self.by() {
            return Some(self);
        }
        self.made_late().filter(|late| finish <= late.by())
    }
}

/// Requests of one batch key, served or filling up, earliest deadline first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    entries: VecDeque<Waiting>,
    rows: u64,
}

impl Line {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn head(&self) -> Option<&Waiting> {
        self.entries.front()
    }

    pub fn get(&self, index: usize) -> Option<&Waiting> {
        self.entries.get(index)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiting> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Rows due at or before `deadline`.
    ///
    /// Counted from the nearer end: most arrivals are due last, and cost nothing.
    pub fn rows_due_by(&self, deadline: Moment) -> u64 {
        if self.entries.back().is_none_or(|last| last.by() <= deadline) {
            return self.rows;
        }
        let rows = |from, to| self.entries.range(from..to).map(|entry| u64::from(entry.rows)).sum();
        let (place, len) = (self.due_by(deadline), self.entries.len());
        if place <= len / 2 { rows(0, place) } else { self.rows - rows(place, len) }
    }

    pub fn due_by(&self, deadline: Moment) -> usize {
        self.entries.partition_point(|entry| entry.by() <= deadline)
    }

    pub fn insert(&mut self, waiting: Waiting) {
        let place = match self.entries.back() {
            Some(last) if key(last) > key(&waiting) => {
                self.entries.partition_point(|entry| key(entry) <= key(&waiting))
            }
            Some(_) | None => self.entries.len(),
        };
        self.rows += u64::from(waiting.rows);
        self.entries.insert(place, waiting);
    }

    /// Takes out the request `id` scheduled by `moment`, if it is here.
    pub fn remove(&mut self, moment: Moment, id: u64) -> Option<Waiting> {
        let place = self.entries.binary_search_by_key(&(moment, id), key).ok()?;
        self.remove_at(place)
    }

    pub fn remove_at(&mut self, index: usize) -> Option<Waiting> {
        let removed = self.entries.remove(index)?;
        self.rows -= u64::from(removed.rows);
        Some(removed)
    }

    pub fn take(&mut self, count: usize) -> impl Iterator<Item = Waiting> + '_ {
        let taken: u64 = self.entries.iter().take(count).map(|entry| u64::from(entry.rows)).sum();
        self.rows -= taken;
        self.entries.drain(..count)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// Those of tenants below their share, served as if the others were not there.
    pub protected: Line,
    /// Those served in their own right where these leave room.
    pub main: Line,
    /// Those that fill what room is left then.
    pub low: Line,
    /// Those that can only be late, served when nobody else is.
    pub late: Line,
}

impl Queue {
    pub fn of(&self, priority: Priority) -> &Line {
        match priority {
            Priority::Late => &self.late,
            Priority::Low => &self.low,
            Priority::Normal => &self.main,
            Priority::Protected => &self.protected,
        }
    }

    pub fn line(&mut self, priority: Priority) -> &mut Line {
        match priority {
            Priority::Late => &mut self.late,
            Priority::Low => &mut self.low,
            Priority::Normal => &mut self.main,
            Priority::Protected => &mut self.protected,
        }
    }

    /// All its lines, in the order in which a batch takes from them.
    pub fn lines(&self) -> [&Line; 4] {
        [&self.protected, &self.main, &self.low, &self.late]
    }

    pub fn lines_mut(&mut self) -> [&mut Line; 4] {
        [&mut self.protected, &mut self.main, &mut self.low, &mut self.late]
    }

    /// Whose line a batch may start from, first choice first: one of the batch class only if nobody
    /// else waits, and of the late only if not even that.
    pub fn leaders(&self) -> impl Iterator<Item = Priority> + use<> {
        let protected = (!self.protected.is_empty()).then_some(Priority::Protected);
        let main = (!self.main.is_empty()).then_some(Priority::Normal);
        let alone = protected.is_none() && main.is_none();
        let low = (alone && !self.low.is_empty()).then_some(Priority::Low);
        let late = alone && low.is_none() && !self.late.is_empty();
        [protected, main, low, late.then_some(Priority::Late)].into_iter().flatten()
    }

    /// Whether somebody waits in it who can be in time.
    pub fn has_timely(&self) -> bool {
        !(self.protected.is_empty() && self.main.is_empty() && self.low.is_empty())
    }

    /// Rows that do not belong to the batch class.
    pub fn interactive_rows(&self) -> u64 {
        self.protected.rows() + self.main.rows()
    }

    /// When the first of those that do not belong to the batch class is due.
    pub fn interactive_due(&self) -> Option<Moment> {
        let heads = self.protected.head().into_iter().chain(self.main.head());
        heads.map(Waiting::by).min()
    }

    pub fn len(&self) -> usize {
        self.lines().iter().map(|line| line.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.lines().iter().all(|line| line.is_empty())
    }
}

/// All who wait for one model, by batch key.
///
/// Queues are kept once made, and those in use are listed, so that a model with a thousand shapes
/// costs no more than one of them while only one is asked for.
#[derive(Clone, Debug, Default)]
pub struct Queues {
    queues: Vec<Queue>,
    /// Every key whose queue is not empty, and perhaps others until the next [`Queues::tidy`].
    used: Vec<usize>,
}

impl Queues {
    pub fn len(&self) -> usize {
        self.used.iter().map(|key| self.queues[*key].len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.used.iter().all(|key| self.queues[*key].is_empty())
    }

    pub fn get(&self, key: usize) -> Option<&Queue> {
        self.queues.get(key)
    }

    pub fn get_mut(&mut self, key: usize) -> Option<&mut Queue> {
        self.queues.get_mut(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (usize, &Queue)> {
        self.used.iter().map(|key| (*key, &self.queues[*key]))
    }

    pub fn insert(&mut self, key: usize, waiting: Waiting) {
        if key >= self.queues.len() {
            self.queues.resize_with(key + 1, Queue::default);
        }
        if self.queues[key].is_empty() && !self.used.contains(&key) {
            self.used.push(key);
        }
        self.queues[key].line(waiting.priority).insert(waiting);
    }

    /// Takes out the request `id` wanted `until` then from the queue of `key`, if it is there.
    pub fn remove(&mut self, key: usize, until: Until, id: u64) -> Option<Waiting> {
        let queue = self.queues.get_mut(key)?;
        let Queue { protected, main, low, late } = queue;
        let mut timely = [protected, main, low].into_iter();
        let removed = timely.find_map(|line| line.remove(until.in_time(), id));
        removed.or_else(|| late.remove(until.deadline, id))
    }

    /// Takes out, from the head of every line, those for whom `leaves` holds, with their keys.
    pub fn shed(
        &mut self,
        leaves: impl Fn(usize, &Waiting) -> bool,
        mut left: impl FnMut(usize, Waiting),
    ) {
        for key in &self.used {
            for line in self.queues[*key].lines_mut() {
                while line.head().is_some_and(|head| leaves(*key, head)) {
                    line.remove_at(0).into_iter().for_each(|waiting| left(*key, waiting));
                }
            }
        }
    }

    /// Takes out the one of those that can only be late that is furthest from being given up.
    pub fn remove_last_late(&mut self) -> Option<Waiting> {
        let last = |key: &&usize| self.queues[**key].late.iter().next_back().map(Waiting::by);
        let key = *self.used.iter().filter(|key| last(key).is_some()).max_by_key(last)?;
        let late = &mut self.queues[key].late;
        late.remove_at(late.len() - 1)
    }

    pub fn tidy(&mut self) {
        self.used.retain(|key| !self.queues[*key].is_empty());
    }
}

fn key(entry: &Waiting) -> (Moment, u64) {
    (entry.by(), entry.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(id: u64, due_us: u64) -> Waiting {
        Waiting {
            id,
            arrived: Moment::default(),
            until: Until::both(Moment::from_micros(due_us)),
            rows: 2,
            tenant: 0,
            priority: Priority::Normal,
            company: u32::MAX,
            strikes: 0,
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
    fn lanes_that_have_emptied_are_not_listed() {
        let mut queues = Queues::default();
        queues.insert(900, waiting(1, 10));
        queues.insert(3, waiting(2, 20));
        queues.insert(3, waiting(3, 30));
        assert_eq!((queues.len(), queues.iter().count()), (3, 2));
        assert!(queues.remove(900, Until::both(Moment::from_micros(10)), 1).is_some());
        queues.tidy();
        assert_eq!(queues.iter().map(|(key, _)| key).collect::<Vec<_>>(), [3]);
        queues.insert(900, waiting(4, 10));
        let mut shed = Vec::new();
        queues.shed(|_, head| head.by() <= Moment::from_micros(20), |_, left| shed.push(left.id));
        assert_eq!(shed, [2, 4]);
        assert_eq!(queues.len(), 1);
    }

    #[test]
    fn only_work_due_no_later_counts_as_ahead() {
        let line = line(&[10, 20, 30]);
        assert_eq!(line.rows_due_by(Moment::from_micros(9)), 0);
        assert_eq!(line.rows_due_by(Moment::from_micros(20)), 4);
        assert_eq!(line.rows_due_by(Moment::from_micros(29)), 4);
        assert_eq!(line.rows_due_by(Moment::from_micros(99)), 6);
    }
}
