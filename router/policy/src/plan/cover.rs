//! The cheapest slots that serve one model alone, at given prices.

#[derive(Clone, Copy, Debug)]
pub(super) struct Need<'a> {
    pub(super) demand_rps: f64,
    /// Requests per second of each slot; 0 where the model cannot be.
    pub(super) capacities: &'a [f64],
    pub(super) replicas: (u32, u32),
    /// What turns on each slot are worth; where given, a part of one may be bought.
    pub(super) turns: Option<&'a [Turns]>,
}

/// What turns on a slot are worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// Requests per second of all of the slot's time; 0 where the model cannot be.
    pub(super) rps: f64,
    /// The part of the slot's time that it takes to have a turn at all, beside that of its rows.
    pub(super) start: f64,
    /// No turn takes a smaller part of the slot's time, rows and all.
    pub(super) least: f64,
}

impl Turns {
    /// The part of the slot's time that `rate_rps` takes.
    fn part(&self, rate_rps: f64) -> f64 {
        (rate_rps / self.rps + self.start).max(self.least)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cover {
    pub(super) slots: Vec<(usize, u32)>,
    /// Slot and the part of it, where turns are taken.
    pub(super) part: Option<(usize, f64)>,
    pub(super) cost: f64,
    pub(super) least_cost: f64,
}

impl Cover {
    /// Slots and how many of each, parts included.
    pub(super) fn counts(&self) -> impl Iterator<Item = (usize, f64)> {
        let whole = self.slots.iter().map(|(slot, count)| (*slot, f64::from(*count)));
        whole.chain(self.part)
    }
}

/// What finding one counts as, in rounds of turns tried.
pub(super) const COVER_WORK: u64 = 5;
/// A search that takes longer keeps the best it has; its bound is then that of what was not tried.
const NODES: u32 = 500;
/// A cover that would be cheaper by no more than this part is not looked for.
const NEAR: f64 = 1e-4;
/// Beyond this many slots the bulk is bought at the best price per request; only the end matters.
const LARGE: f64 = 12.0;
/// How much of the bulk is left to the search.
const END: u32 = 4;
/// Makes fewer slots the better of two equal costs.
const SLOT_COST: f64 = 1e-9;

/// The cheapest cover by `available` slots, or nothing if there is none.
pub(super) fn cheapest(
    need: &Need<'_>,
    prices: &[f64],
    available: Option<&[u32]>,
) -> Option<Cover> {
    let mut items: Vec<Item> = Vec::new();
    for (slot, capacity) in need.capacities.iter().enumerate() {
        let left = available.map_or(u32::MAX, |available| available[slot]);
        if *capacity > 0.0 && left > 0 {
            let price = prices[slot].max(0.0) + SLOT_COST;
            items.push(Item { slot, price, capacity: *capacity, left, ratio: price / capacity });
        }
    }
    if available.is_none() {
        drop_dominated(&mut items);
    }
    items.sort_by(|a, b| {
        a.ratio
            .total_cmp(&b.ratio)
            .then(b.capacity.total_cmp(&a.capacity))
            .then(a.slot.cmp(&b.slot))
    });
    let parts = need.turns.map_or_else(Vec::new, |turns| parts(turns, prices, available));
    let first = items.first().map_or(f64::INFINITY, |item| item.ratio);
    let part_ratio = parts.iter().map(|part| part.ratio).fold(f64::INFINITY, f64::min);
    let ratio = first.min(part_ratio);
    let bulk = Bulk::buy(need, &mut items);
    let (min, max) = need.replicas;
    let mut search = Search {
        suffixes: suffixes(&items),
        items,
        parts,
        part_ratio,
        limits: (min.saturating_sub(bulk.count), max.saturating_sub(bulk.count)),
        chosen: Vec::new(),
        best: None,
        least_untried: f64::INFINITY,
        nodes: NODES,
    };
    search.visit(0, State { rest: bulk.rest, cost: 0.0, count: 0 });
    let least_untried = search.least_untried;
    let Best { cost, mut slots, part } = search.best?;
    for (bought, count) in bulk.slots {
        match slots.iter_mut().find(|(slot, _)| *slot == bought) {
            Some((_, more)) => *more += count,
            None => slots.push((bought, count)),
        }
    }
    slots.sort_unstable();
    let cost = cost + bulk.cost;
    let least_cost =
        if bulk.count == 0 { cost.min(least_untried) } else { cost.min(need.demand_rps * ratio) };
    Some(Cover { slots, part, cost, least_cost })
}

/// Slots bought before the search, because there are too many to search.
struct Bulk {
    slots: Vec<(usize, u32)>,
    count: u32,
    cost: f64,
    rest: f64,
}

impl Bulk {
    /// Buys at the best price per request until only a few slots are missing.
    fn buy(need: &Need<'_>, items: &mut [Item]) -> Self {
        let mut bulk = Self { slots: Vec::new(), count: 0, cost: 0.0, rest: need.demand_rps };
        for item in items {
            let count = bulk.rest / item.capacity;
            if count <= LARGE || count > f64::from(need.replicas.1) {
                break;
            }
            let taken = (count as u32 - END).min(item.left);
            item.left -= taken;
            bulk.slots.push((item.slot, taken));
            bulk.count += taken;
            bulk.cost += f64::from(taken) * item.price;
            bulk.rest -= f64::from(taken) * item.capacity;
        }
        bulk
    }
}

/// The parts of slots worth considering: none both starts and goes on at no higher cost.
fn parts(turns: &[Turns], prices: &[f64], available: Option<&[u32]>) -> Vec<Part> {
    let there = |slot: usize| available.is_none_or(|available| available[slot] > 0);
    let each = turns.iter().zip(prices).enumerate();
    let each = each.filter(|(slot, (turns, _))| turns.rps > 0.0 && there(*slot));
    let mut parts: Vec<Part> = each
        .map(|(slot, (turns, price))| {
            let price = price.max(0.0);
            let (ratio, fixed) = (price / turns.rps, price * turns.part(0.0));
            Part { slot, turns: *turns, price, ratio, fixed }
        })
        .collect();
    parts.sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then(a.fixed.total_cmp(&b.fixed)));
    let mut least = f64::INFINITY;
    parts.retain(|part| {
        let better = part.fixed < least;
        least = least.min(part.fixed);
        better
    });
    parts
}

#[derive(Clone, Copy)]
struct Part {
    slot: usize,
    turns: Turns,
    price: f64,
    ratio: f64,
    fixed: f64,
}

struct Best {
    cost: f64,
    slots: Vec<(usize, u32)>,
    part: Option<(usize, f64)>,
}

#[derive(Clone, Copy)]
struct Item {
    slot: usize,
    price: f64,
    capacity: f64,
    left: u32,
    ratio: f64,
}

#[derive(Clone, Copy)]
struct State {
    rest: f64,
    cost: f64,
    count: u32,
}

/// Depth first, best price per request first, cut where even fractions would cost too much.
struct Search {
    items: Vec<Item>,
    /// The largest capacity and the lowest price from each item on.
    suffixes: Vec<(f64, f64)>,
    parts: Vec<Part>,
    /// What a request per second costs at least in parts.
    part_ratio: f64,
    limits: (u32, u32),
    chosen: Vec<(usize, u32)>,
    best: Option<Best>,
    /// No cover that was cut off costs less.
    least_untried: f64,
    nodes: u32,
}

impl Search {
    fn visit(&mut self, index: usize, state: State) {
        if state.rest <= 1e-9 {
            self.finish(state);
            return;
        }
        let room = self.limits.1 - state.count;
        for part in 0..self.parts.len() {
            self.finish_with(self.parts[part], state, room);
        }
        let Some(item) = self.items.get(index).copied() else { return };
        let largest = self.suffixes[index].0;
        let short = self.parts.is_empty() && state.rest > f64::from(room) * largest + 1e-9;
        let least = self.in_fractions(index, state).max(self.in_whole(index, state));
        if short || self.too_dear(least) {
            return;
        }
        if self.nodes == 0 {
            self.least_untried = self.least_untried.min(least);
            return;
        }
        self.nodes -= 1;
        let most = (state.rest / item.capacity - 1e-12).ceil().max(0.0) as u32;
        for count in (0..=most.min(item.left).min(room)).rev() {
            let next = State {
                rest: state.rest - f64::from(count) * item.capacity,
                cost: state.cost + f64::from(count) * item.price,
                count: state.count + count,
            };
            // Fewer of this one are dearer still, unless parts are cheaper than it.
            let least = self.in_fractions(index + 1, next);
            if next.rest > 1e-9 && self.part_ratio >= item.ratio && self.too_dear(least) {
                break;
            }
            if count > 0 {
                self.chosen.push((item.slot, count));
            }
            self.visit(index + 1, next);
            if count > 0 {
                self.chosen.pop();
            }
        }
    }

    /// What a cover costs at least if the rest is bought in fractions of the items from `index` on.
    fn in_fractions(&self, index: usize, state: State) -> f64 {
        let ratio = self.items.get(index).map_or(f64::INFINITY, |item| item.ratio);
        state.cost + state.rest * ratio.min(self.part_ratio)
    }

    /// What a cover costs at least if the rest is bought in whole items from `index` on, or in parts.
    fn in_whole(&self, index: usize, state: State) -> f64 {
        let Some((largest, cheapest)) = self.suffixes.get(index) else { return f64::INFINITY };
        let several = if state.rest <= *largest { *cheapest } else { 2.0 * cheapest };
        state.cost + several.min(state.rest * self.part_ratio)
    }

    /// Whether no cover that costs `least` or more is cheaper than the best by enough to be tried.
    fn too_dear(&mut self, least: f64) -> bool {
        let too_dear = self.best.as_ref().is_some_and(|best| least >= best.cost * (1.0 - NEAR));
        if too_dear {
            self.least_untried = self.least_untried.min(least);
        }
        too_dear
    }

    /// Takes the slots chosen and buys the rest in part.
    fn finish_with(&mut self, part: Part, state: State, room: u32) {
        let count = part.turns.part(state.rest);
        let cost = state.cost + count * part.price;
        if count <= f64::from(room)
            && self.best.as_ref().is_none_or(|best| cost < best.cost - 1e-12)
        {
            let slots = self.chosen.clone();
            self.best = Some(Best { cost, slots, part: Some((part.slot, count)) });
        }
    }

    /// Takes the cover found, with the cheapest further slots up to the fewest replicas.
    fn finish(&mut self, mut state: State) {
        if self.best.as_ref().is_some_and(|best| state.cost >= best.cost - 1e-12) {
            return;
        }
        let mut slots = self.chosen.clone();
        let mut by_price: Vec<&Item> = Vec::new();
        if state.count < self.limits.0 {
            by_price.extend(&self.items);
            by_price.sort_by(|a, b| a.price.total_cmp(&b.price).then(a.slot.cmp(&b.slot)));
        }
        for item in by_price {
            let missing = self.limits.0.saturating_sub(state.count);
            if missing == 0 {
                break;
            }
            let used = slots.iter().find(|(slot, _)| *slot == item.slot).map_or(0, |(_, n)| *n);
            let more = missing.min(item.left - used);
            state.count += more;
            state.cost += f64::from(more) * item.price;
            match slots.iter_mut().find(|(slot, _)| *slot == item.slot) {
                Some((_, count)) => *count += more,
                None if more > 0 => slots.push((item.slot, more)),
                None => {}
            }
        }
        if state.count >= self.limits.0
            && self.best.as_ref().is_none_or(|best| state.cost < best.cost - 1e-12)
        {
            self.best = Some(Best { cost: state.cost, slots, part: None });
        }
    }
}

/// Drops what something no dearer serves at least as well.
fn drop_dominated(items: &mut Vec<Item>) {
    items.sort_by(|a, b| a.price.total_cmp(&b.price).then(b.capacity.total_cmp(&a.capacity)));
    let mut most = 0.0;
    items.retain(|item| {
        let better = item.capacity > most;
        most = item.capacity.max(most);
        better
    });
}

fn suffixes(items: &[Item]) -> Vec<(f64, f64)> {
    let mut suffixes = vec![(0.0, 0.0); items.len()];
    let (mut most, mut least) = (0.0_f64, f64::INFINITY);
    for (suffix, item) in suffixes.iter_mut().zip(items).rev() {
        (most, least) = (most.max(item.capacity), least.min(item.price));
        *suffix = (most, least);
    }
    suffixes
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITIES: [f64; 3] = [100.0, 220.0, 400.0];
    const PRICES: [f64; 3] = [1.0, 2.0, 4.0];

    fn cover(demand_rps: f64, replicas: (u32, u32), available: Option<&[u32]>) -> Option<Cover> {
        cheapest(
            &Need { demand_rps, capacities: &CAPACITIES, replicas, turns: None },
            &PRICES,
            available,
        )
    }

    #[test]
    fn the_cheapest_mix_is_found() {
        assert_eq!(cover(320.0, (1, 99), None).unwrap().slots, [(0, 1), (1, 1)]);
        assert_eq!(cover(100.0, (1, 99), None).unwrap().slots, [(0, 1)]);
        let large = cover(22_100.0, (1, 999), None).unwrap();
        assert_eq!(large.slots, [(0, 1), (1, 100)]);
        assert!(large.least_cost <= large.cost);
    }

    #[test]
    fn replicas_stay_within_their_limits() {
        assert_eq!(cover(100.0, (3, 99), None).unwrap().slots, [(0, 3)]);
        assert_eq!(cover(600.0, (1, 2), None).unwrap().slots, [(1, 1), (2, 1)]);
        assert_eq!(cover(900.0, (1, 2), None), None);
    }

    #[test]
    fn only_available_slots_are_used() {
        assert_eq!(cover(320.0, (1, 99), Some(&[9, 0, 9])).unwrap().slots, [(2, 1)]);
        assert_eq!(cover(320.0, (1, 99), Some(&[3, 0, 0])), None);
    }
}
