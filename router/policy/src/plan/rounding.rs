//! A plan straight from the relaxed program: each model takes one of the purchases in use.
//!
//! The relaxed program mixes a few purchases, each of which serves every model. A model cannot take a
//! mixture, but many can divide the purchases among each other: from the largest to the smallest, each
//! takes the one that keeps all taken so far nearest to the mixture. What is left in the end is a few
//! slots, however many models there are (Shapley and Folkman), so the more models, the better.

use std::collections::BTreeSet;

use super::{
    cover::Cover,
    fill::{self, Filling, Terms},
    hardware::{Hardware, Shape},
    master::Relaxed,
    relax::Hint,
    search::{self, Found, Way},
};

/// How often the program is solved anew with more room for what rounding adds.
const TRIES: u32 = 6;

/// Gives every model its slots, or nothing if the fleet has too few GPUs of some kind for it.
pub(super) fn rounded(way: &Way<'_>) -> Option<Found> {
    let hardware = way.terms.hardware;
    let mut limits = hardware.limits();
    let mut anew: Option<Relaxed> = None;
    for room in 0..TRIES {
        let relaxed = anew.as_ref().unwrap_or(way.relaxed);
        let terms = Terms { prices: &relaxed.prices, ..*way.terms };
        let filling = fill::settle(&terms, &divided(&terms, relaxed))?;
        match enclosing(hardware, &need(&terms, &filling), relaxed) {
            Ok(counts) => return Some(Found { counts, filling }),
            Err(pools) => {
                for pool in pools {
                    limits[pool] = limits[pool].saturating_sub(2 << room);
                }
                let Relaxed { prices, purchases, .. } = relaxed;
                anew = search::prices(&terms.demand, hardware, &limits, Hint { prices, purchases });
                anew.as_ref()?;
            }
        }
    }
    None
}

/// How many slots of each type are taken.
fn need(terms: &Terms<'_>, filling: &Filling) -> Vec<u32> {
    let mut need = vec![0; terms.demand.slots];
    for (_, slot, count) in &filling.whole {
        need[*slot] += count;
    }
    for shared in &filling.shared {
        need[shared.slot] += 1;
    }
    need
}

/// One of the purchases for each model.
fn divided<'a>(terms: &Terms<'_>, relaxed: &'a Relaxed) -> Vec<(usize, &'a Cover)> {
    let models = relaxed.purchases.first().map_or(0, |(_, purchase)| purchase.covers.len());
    let offers = |index: usize| {
        let each = relaxed.purchases.iter();
        each.map(move |(part, purchase)| (*part, &purchase.covers[index].1))
    };
    let mut order: Vec<(f64, usize)> = (0..models)
        .map(|index| (offers(index).map(|(part, cover)| part * cover.cost).sum(), index))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut beyond = vec![0.0; terms.demand.slots];
    let mut taken = Vec::with_capacity(models);
    for (_, index) in order {
        for (part, cover) in offers(index) {
            cover.counts().for_each(|(slot, count)| beyond[slot] -= part * count);
        }
        // Only what the cover itself changes differs between offers.
        let worse = |cover: &Cover| -> f64 {
            let change = |(slot, count): (usize, f64)| {
                relaxed.prices[slot].powi(2) * count * (2.0 * beyond[slot] + count)
            };
            cover.counts().map(change).sum()
        };
        let nearest = offers(index).map(|(_, cover)| (worse(cover), cover));
        let Some((_, cover)) = nearest.reduce(|a, b| if b.0 < a.0 { b } else { a }) else {
            continue;
        };
        cover.counts().for_each(|(slot, count)| beyond[slot] += count);
        let model = terms.demand.only[index];
        taken.push((model, cover));
    }
    taken
}

/// Shapes that have all the slots needed: those of the relaxed program, and what is then missing.
///
/// If that takes more GPUs than there are, the pools that have too few.
fn enclosing(
    hardware: &Hardware,
    need: &[u32],
    relaxed: &Relaxed,
) -> Result<Vec<u32>, BTreeSet<usize>> {
    let limits = hardware.limits();
    let mut counts: Vec<u32> = relaxed.used.iter().map(|used| (used + 1e-6) as u32).collect();
    let mut supply = hardware.supply(&counts);
    loop {
        let missing: Vec<f64> = need
            .iter()
            .zip(&supply)
            .map(|(need, supply)| f64::from(need.saturating_sub(*supply)))
            .collect();
        let mut best: Option<((f64, f64), usize)> = None;
        for (index, shape) in hardware.shapes.iter().enumerate() {
            let gain = gain(shape, &missing, &relaxed.prices);
            let room = hardware.used(&counts, shape.pool) < limits[shape.pool];
            if room && gain.0 > 0.0 && best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, index));
            }
        }
        let Some((_, index)) = best else {
            let short = (0..need.len()).filter(|slot| missing[*slot] > 0.0);
            let pools: BTreeSet<usize> = short.map(|slot| hardware.slots[slot].pool).collect();
            if pools.is_empty() {
                break;
            }
            return Err(pools);
        };
        counts[index] += 1;
        for (slots, more) in supply.iter_mut().zip(&hardware.shapes[index].counts) {
            *slots += more;
        }
    }
    drop_spare(hardware, need, &mut counts);
    Ok(counts)
}

/// What a GPU of this shape would add to what is missing, and what it is worth at all.
fn gain(shape: &Shape, missing: &[f64], prices: &[f64]) -> (f64, f64) {
    let mut gain = (0.0, 0.0);
    for ((count, missing), price) in shape.counts.iter().zip(missing).zip(prices) {
        // Even a slot worth nothing must be found somewhere.
        let price = price + 1e-6;
        gain.0 += price * missing.min(f64::from(*count));
        gain.1 += price * f64::from(*count);
    }
    gain
}

/// Takes away the GPUs without which there are still enough slots.
fn drop_spare(hardware: &Hardware, need: &[u32], counts: &mut [u32]) {
    for index in 0..counts.len() {
        while counts[index] > 0 {
            counts[index] -= 1;
            let supply = hardware.supply(counts);
            if need.iter().zip(&supply).any(|(need, supply)| need > supply) {
                counts[index] += 1;
                break;
            }
        }
    }
}
