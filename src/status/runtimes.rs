//! What runs the ONNX models, and on what.

use std::collections::{BTreeMap, BTreeSet};

use router::state::State;

const WIDTH: usize = 80;
const INDENT: &str = "  ";

/// A paragraph for each runtime; none without an ONNX model.
pub(super) fn runtimes(state: &State) -> String {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let gpus = state.workers.iter().flat_map(|worker| &worker.gpus);
    for replica in gpus.flat_map(|gpu| &gpu.slices).flat_map(|slice| &slice.replicas) {
        if let Some(runtime) = &replica.runtime {
            all.entry(runtime).or_default().insert(&replica.model);
        }
    }
    let mut text = if all.is_empty() { String::new() } else { "\n".to_owned() };
    for (runtime, models) in all {
        let verb = if models.len() == 1 { "runs" } else { "run" };
        let models: Vec<_> = models.into_iter().collect();
        text += &wrapped(&format!("{} {verb} on {runtime}", models.join(", ")));
    }
    text
}

fn wrapped(line: &str) -> String {
    let (mut text, mut used) = (String::new(), 0);
    for word in line.split_whitespace() {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > WIDTH {
            text = text + "\n" + INDENT;
            used = INDENT.len();
        } else if used > 0 {
            text.push(' ');
            used += 1;
        }
        text += word;
        used += length;
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let line = ["word"; 40].join(" ");
        let text = wrapped(&line);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }
}
