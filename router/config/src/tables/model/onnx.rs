//! How an ONNX model is run, and how a model of free dimensions is warmed.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};
use toml::{Spanned, de::DeValue};

use super::Draft;
use crate::{
    files,
    key::{
        Given,
        kinds::{File, OneOf, Own, Whole},
        table,
    },
    problems::{At, Notes, Place},
    tree::{Read, wrong_kind},
};

const WARMUP: &str = "{ x = [3, 320, 320] }";
/// The most shapes that a model is warmed at: each takes its time before the model is ready.
const MAX_SHAPES: usize = 16;
/// The most elements of a dimension; more is a mistake.
const MAX_DIMENSION: u64 = 1 << 28;

table! {
    /// The keys of engine `onnx`, and of warming up.
    pub(crate) struct OnnxKeys {
        /// What an ONNX model computes on. `auto`: the slice's GPU where ONNX Runtime has CUDA, else the CPU.
        device: Device = "device" or(Device::Auto), devices(), Live;
        /// Threads of one batch of an ONNX model. Absent: the cores of the slice; on a slice of a GPU 1.
        threads: Option<u32> = "threads" maybe, Whole(1..=256), Live;
        /// Dimensions of each input to warm the model at, without the batch, as `{ x = [3, 320, 320] }` or a list of such; for a model of free dimensions.
        warmup: Vec<Shape> = "warmup" or(Vec::new()), Own(read_shapes, shown, "dimensions by input, or a list of such"), Live;
        /// File of a request to warm the model with: JSON as for `/v2/models/NAME/infer`, or npz with an array for each input.
        warmup_file: Option<PathBuf> = "warmup_file" maybe, File, Live;
    }
}

/// The dimensions of each input, without the batch.
pub type Shape = BTreeMap<String, Vec<u64>>;

/// What an ONNX model computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The GPU if there is one for it, else the CPU.
    #[default]
    Auto,
    Cpu,
    Gpu,
}

impl Device {
    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }
}

fn devices() -> OneOf<Device> {
    OneOf([Device::Auto, Device::Cpu, Device::Gpu].map(|one| (one.name(), one)).to_vec())
}

/// How a model is warmed, where its dimensions alone do not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Warmup {
    pub shapes: Vec<Shape>,
    /// Found to exist.
    pub file: Option<PathBuf>,
}

fn shown(shapes: &Vec<Shape>, _given: Option<&Given<'_>>) -> Value {
    match shapes.as_slice() {
        [] => Value::Null,
        [one] => json!(one),
        all => json!(all),
    }
}

fn read_shapes(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<Shape>> {
    let value = given.value;
    let Some(items) = value.get_ref().as_array() else {
        return read_shape(given.key, value, notes).map(|shape| vec![shape]);
    };
    if items.is_empty() || items.len() > MAX_SHAPES {
        let (key, count) = (given.key, items.len());
        let message = format!("{key} has {count} shapes; give 1 to {MAX_SHAPES}, as {WARMUP}");
        notes.problem(given.place, message);
        return None;
    }
    let read: Vec<_> = items.iter().filter_map(|item| read_shape(given.key, item, notes)).collect();
    (read.len() == items.len()).then_some(read)
}

fn read_shape(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Shape> {
    let Some(table) = value.get_ref().as_table() else {
        wrong_kind(key, value, &format!("the dimensions of each input, as {WARMUP}"), notes);
        return None;
    };
    if table.is_empty() {
        let message = format!("{key} names no input; give {WARMUP}");
        notes.problem(Place::Offset(value.span().start), message);
        return None;
    }
    let mut shape = Shape::new();
    for (name, value) in table {
        let name = name.get_ref().to_string();
        let sizes: Vec<At<u64>> = Read::read(&format!("{key}.{name}"), value, notes)?;
        for At { value, place } in &sizes {
            if !(1..=MAX_DIMENSION).contains(value) {
                let message = format!("{key}.{name} has {value}; give 1 to {MAX_DIMENSION}");
                notes.problem(*place, message);
            }
        }
        shape.insert(name, sizes.into_iter().map(|size| size.value).collect());
    }
    Some(shape)
}

/// How the model is warmed, and what is wrong with that for `engine`.
pub(super) fn warmup(draft: &Draft, engine: &str, notes: &mut Notes<'_>) -> Warmup {
    let (keys, found) = (&draft.onnx, &draft.onnx_found);
    let only = |key: &str, engines: &[&str], notes: &mut Notes<'_>| {
        if let Some(place) = found.place_of(key).filter(|_| !engines.contains(&engine)) {
            let engines: Vec<_> = engines.iter().map(|name| format!("{name:?}")).collect();
            let message = format!("{key} is only for engine {}", engines.join(" and "));
            notes.problem(place, message);
        }
    };
    only("device", &["onnx"], notes);
    only("threads", &["onnx"], notes);
    only("warmup", &["onnx", "server"], notes);
    only("warmup_file", &["onnx", "server"], notes);
    if let (Some(place), Some(_)) = (found.place_of("warmup"), found.place_of("warmup_file")) {
        notes.problem(place, "warmup and warmup_file are two ways to say one thing; give one");
    }
    Warmup { shapes: keys.warmup.clone(), file: file(draft, notes) }
}

fn file(draft: &Draft, notes: &mut Notes<'_>) -> Option<PathBuf> {
    let path = draft.onnx.warmup_file.clone()?;
    let place = draft.onnx_found.place_of("warmup_file")?;
    let kinds = ["json", "npz"];
    let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    let problem = match std::fs::metadata(&path) {
        Ok(found) if found.is_file() && kinds.contains(&kind) => return Some(path),
        Ok(found) if found.is_file() => "its name ends in neither .json nor .npz".to_owned(),
        Ok(_) => "not a file".to_owned(),
        Err(error) => files::explain(&error),
    };
    notes.problem(place, format!("warmup_file {}: {problem}", path.display()));
    None
}
