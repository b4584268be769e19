//! One GPU as a bar of its slices, each as wide as the memory it has and where it is.

use router::state::{GpuState, ReplicaPhase, SliceState};

use super::paint::{Paint, Tone};

/// Columns of one memory slice, its border included: eight fit in 80 columns.
const CELL: usize = 9;

/// The GPU's name, then two lines: profiles, and the models on them.
pub(super) fn gpu(gpu: &GpuState, paint: Paint) -> String {
    let (mut profiles, mut models) = ("  |".to_owned(), "  |".to_owned());
    let mut at = 0;
    for slice in &gpu.slices {
        let start = usize::from(slice.start);
        if start > at {
            gap(start - at, paint, [&mut profiles, &mut models]);
        }
        let cells = usize::from(slice.memory_slices);
        profiles += &format!("{}|", fitted(&format!(" {}", slice.profile), cells));
        models += &format!("{}|", paint.paint(tone(slice), &fitted(&who(slice), cells)));
        at = start + cells;
    }
    if at < usize::from(gpu.memory_slices) {
        gap(usize::from(gpu.memory_slices) - at, paint, [&mut profiles, &mut models]);
    }
    let name = paint.paint(Tone::Strong, &gpu.gpu);
    let kind = gpu.what();
    let power = gpu.power_w.map_or_else(String::new, |watts| format!(", {watts:.0} W"));
    let heat = gpu.temperature_c.map_or_else(String::new, |celsius| format!(", {celsius} C"));
    let mut text = format!("{name} {kind}{power}{heat}\n");
    if !gpu.slices.is_empty() || gpu.memory_slices > 0 && gpu.problem.is_none() {
        text += &format!("{profiles}\n{models}\n");
    }
    if let Some(problem) = &gpu.problem {
        text += &format!("  {}\n", paint.paint(Tone::Bad, problem));
    }
    text
}

fn gap(cells: usize, paint: Paint, lines: [&mut String; 2]) {
    let [profiles, models] = lines;
    *profiles += &format!("{}|", paint.paint(Tone::Faint, &fitted(" free", cells)));
    *models += &format!("{}|", fitted("", cells));
}

/// Truncated or padded to the width of `cells`, without the last border.
fn fitted(text: &str, cells: usize) -> String {
    let width = (cells * CELL).saturating_sub(1);
    format!("{text:<width$.width$}")
}

/// The models on a slice, each once, marked where not all is well.
fn who(slice: &SliceState) -> String {
    if let Some(job) = slice.job {
        return format!(" job {job}");
    }
    if slice.replicas.is_empty() {
        return " idle".to_owned();
    }
    let mut names: Vec<&str> = Vec::new();
    for replica in &slice.replicas {
        if !names.contains(&&*replica.model) {
            names.push(&replica.model);
        }
    }
    let mark = match tone(slice) {
        Tone::Bad => "!",
        Tone::Unsettled => "~",
        Tone::Good | Tone::Faint | Tone::Strong => " ",
    };
    format!("{mark}{}", names.join(" + "))
}

fn tone(slice: &SliceState) -> Tone {
    let any = |phase| slice.replicas.iter().any(|replica| replica.state == phase);
    if slice.replicas.is_empty() {
        Tone::Faint
    } else if any(ReplicaPhase::Failed) {
        Tone::Bad
    } else if slice.replicas.iter().all(|replica| replica.state == ReplicaPhase::Ready) {
        Tone::Good
    } else {
        Tone::Unsettled
    }
}
