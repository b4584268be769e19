//! What inference needs of the slices over time, and what it is expected to need.

use std::time::Duration;

use policy::{
    loan::{Held, Keep, Slice, Wanted},
    moment::Moment,
};

use super::{Habits, Rise};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug)]
pub(super) struct Inference<'a> {
    /// How many slices are needed, from each moment on.
    course: &'a [(Moment, u32)],
    next: usize,
    needs: u32,
    has: u32,
    span: Duration,
    reserve: u32,
    /// What it had when the round began.
    before: u32,
    rises: Vec<Rise>,
}

impl<'a> Inference<'a> {
    pub(super) fn new(course: &'a [(Moment, u32)], habits: &Habits) -> Self {
        let (span, reserve) = (habits.forecast, habits.reserve);
        let rises = Vec::new();
        Self { course, next: 0, needs: 0, has: 0, span, reserve, before: 0, rises }
    }

    pub(super) fn begin(&mut self, slices: &mut [Slice], now: Moment) {
        self.demand(slices, now);
        self.before = self.needs;
        self.serve(slices, now);
    }

    pub(super) fn has(&self) -> u32 {
        self.has
    }

    pub(super) fn into_rises(self) -> Vec<Rise> {
        self.rises
    }

    pub(super) fn short(&self) -> u32 {
        self.needs.saturating_sub(self.has)
    }

    /// What it must have back now. What it no longer needs is idle at once.
    pub(super) fn demand(&mut self, slices: &mut [Slice], now: Moment) -> Vec<Wanted> {
        while let Some((from, needs)) = self.course.get(self.next)
            && *from <= now
        {
            self.needs = *needs;
            self.next += 1;
        }
        let mut surplus = self.has.saturating_sub(self.needs);
        for slice in slices.iter_mut().rev() {
            if surplus > 0 && slice.held == Held::Inference {
                slice.held = Held::Free;
                surplus -= 1;
            }
        }
        self.has = self.has.min(self.needs);
        self.before = self.has;
        if self.short() == 0 {
            return Vec::new();
        }
        let others = slices.iter().enumerate().filter(|(_, slice)| slice.held != Held::Inference);
        let slices = others.map(|(index, _)| index).collect();
        vec![Wanted { slices, count: self.short(), by: now }]
    }

    pub(super) fn serve(&mut self, slices: &mut [Slice], now: Moment) {
        for slice in slices {
            if self.has < self.needs && slice.held == Held::Free {
                slice.held = Held::Inference;
                self.has += 1;
            }
        }
        if self.before < self.needs {
            self.rises.push(Rise { at: now, before: self.before, has: self.has });
        }
    }

    /// What must stay idle: the most that the need rose within the forecast's span in the last day.
    pub(super) fn keep(&self, slices: &[Slice], now: Moment) -> Keep {
        let past = &self.course[..self.next];
        let recent = &past[past.partition_point(|(at, _)| *at + DAY < now)..];
        let mut rise = 0;
        for (index, (at, needs)) in recent.iter().enumerate() {
            let within = recent[index..].iter().take_while(|(later, _)| *later <= *at + self.span);
            let most = within.map(|(_, needs)| *needs).max().unwrap_or(0);
            rise = rise.max(most.saturating_sub(*needs));
        }
        let compute = |count: u32| {
            let each = slices.first().map_or(0, |slice| slice.compute);
            count.saturating_mul(u32::from(each))
        };
        Keep { forecast: compute(rise), reserve: compute(self.reserve), by: now + self.span }
    }
}
