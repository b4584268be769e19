//! Which GPU takes which shape, so that as much as possible of what runs stays where it is.
//!
//! GPUs whose slices are divided alike are one source, shapes are the sinks, and what a GPU would lose
//! by taking a shape is the cost: a small transport problem however many GPUs there are.

use std::collections::BTreeMap;

use super::{
    flow::Transport,
    hardware::{Hardware, Layout},
};

/// A GPU with the slices it is to have.
#[derive(Clone, Debug)]
pub(super) struct ShapedGpu<'a> {
    pub(super) gpu: usize,
    pub(super) layout: &'a Layout,
}

/// Gives `counts` of the shapes to GPUs; `kept` holds the slices worth keeping, as masks by GPU.
pub(super) fn shape_gpus<'a>(
    hardware: &'a Hardware,
    counts: &[u32],
    kept: &BTreeMap<usize, u64>,
) -> Vec<ShapedGpu<'a>> {
    let mut shaped = Vec::new();
    for (pool, of_kind) in hardware.pools.iter().enumerate() {
        let shapes: Vec<usize> = (0..hardware.shapes.len())
            .filter(|shape| hardware.shapes[*shape].pool == pool && counts[*shape] > 0)
            .collect();
        let mut alike: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for gpu in of_kind.gpus.iter().rev() {
            alike.entry(kept.get(gpu).copied().unwrap_or(0)).or_default().push(*gpu);
        }
        let layouts: Vec<(u64, &Layout)> = alike
            .keys()
            .flat_map(|mask| shapes.iter().map(|shape| nearest(hardware, *shape, *mask)))
            .collect();
        let transport = Transport {
            supply: alike.values().map(|gpus| gpus.len() as u32).collect(),
            demand: shapes.iter().map(|shape| counts[*shape]).collect(),
            // A GPU in use is taken before an empty one, if it loses nothing.
            costs: layouts.iter().map(|(stays, _)| -(*stays as i64)).collect(),
        };
        let sent = transport.solve();
        let each = alike.values_mut().zip(sent.chunks(shapes.len().max(1)));
        for ((gpus, sent), layouts) in each.zip(layouts.chunks(shapes.len().max(1))) {
            for (count, (_, layout)) in sent.iter().zip(layouts) {
                for _ in 0..*count {
                    shaped.extend(gpus.pop().map(|gpu| ShapedGpu { gpu, layout }));
                }
            }
        }
    }
    shaped.sort_by_key(|gpu| gpu.gpu);
    shaped
}

/// The layout of a shape that keeps most of `mask`, and how many slices it keeps.
fn nearest(hardware: &Hardware, shape: usize, mask: u64) -> (u64, &Layout) {
    let shape = &hardware.shapes[shape];
    let stays = |layout: &Layout| u64::from((layout.mask & mask).count_ones());
    let mut best = (0, &shape.layouts[0]);
    for layout in &shape.layouts {
        if stays(layout) > best.0 {
            best = (stays(layout), layout);
        }
    }
    best
}
