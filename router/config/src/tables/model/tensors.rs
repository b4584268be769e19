//! Tensors that a model takes and gives.

use oip::{Datatype, TensorSpec};

use serde_json::{Value, json};
use toml::{Spanned, de::DeValue};

use crate::{
    problems::{At, Notes, Place},
    tree::{Read, Section},
};

/// Elements of one row of one tensor; more is a mistake.
const MAX_ROW_ELEMENTS: i64 = 1 << 28;

const TENSORS: &str = "[{ name = \"x\", datatype = \"FP32\", shape = [-1, 16] }]";

/// One of `inputs` or `outputs`.
pub(crate) struct TensorDraft {
    name: Option<At<String>>,
    datatype: Option<At<String>>,
    shape: Option<At<Vec<At<i64>>>>,
}

impl Read for Vec<TensorDraft> {
    fn read(key: &str, value: &Spanned<DeValue<'_>>, notes: &mut Notes<'_>) -> Option<Self> {
        let place = Place::Offset(value.span().start);
        let Some(items) = value.get_ref().as_array() else {
            notes.problem(place, format!("{key} is not a list; give {TENSORS}"));
            return None;
        };
        let mut tensors = Vec::with_capacity(items.len());
        for item in items.iter() {
            let place = Place::Offset(item.span().start);
            let Some(table) = item.get_ref().as_table() else {
                notes.problem(place, format!("{key} holds something else; give {TENSORS}"));
                continue;
            };
            let mut section = Section::new(table, "a tensor", place);
            tensors.push(TensorDraft {
                name: section.needed("name", notes),
                datatype: section.needed("datatype", notes),
                shape: section.needed("shape", notes),
            });
            section.finish(notes);
        }
        (tensors.len() == items.len()).then_some(tensors)
    }
}

/// Checks one list of tensors.
pub(super) fn check(
    key: &str,
    given: &At<Vec<TensorDraft>>,
    notes: &mut Notes<'_>,
) -> Option<Vec<TensorSpec>> {
    if given.value.is_empty() {
        notes.problem(given.place, format!("{key} is empty; give at least one tensor"));
        return None;
    }
    let mut names: Vec<&str> = Vec::new();
    for At { value, place } in given.value.iter().filter_map(|tensor| tensor.name.as_ref()) {
        if value.is_empty() {
            notes.problem(*place, "a tensor's name is empty");
        } else if names.contains(&value.as_str()) {
            notes.problem(*place, format!("{key} has {value:?} twice"));
        }
        names.push(value);
    }
    let specs: Vec<_> = given.value.iter().filter_map(|tensor| spec(tensor, notes)).collect();
    (specs.len() == given.value.len()).then_some(specs)
}

fn spec(draft: &TensorDraft, notes: &mut Notes<'_>) -> Option<TensorSpec> {
    let datatype = draft.datatype.as_ref().and_then(|given| datatype(given, notes));
    let shape = draft.shape.as_ref().and_then(|given| shape(given, notes));
    Some(TensorSpec {
        name: draft.name.as_ref()?.value.clone(),
        datatype: datatype?,
        shape: shape?,
    })
}

/// Our name for a type of numpy's or of a programming language.
fn numpy(name: &str) -> Option<&'static str> {
    Some(match name.to_lowercase().as_str() {
        "float" | "float32" | "f32" | "single" => "FP32",
        "double" | "float64" | "f64" => "FP64",
        "half" | "float16" | "f16" => "FP16",
        "bfloat16" => "BF16",
        "int" | "long" | "i64" => "INT64",
        "i32" => "INT32",
        "byte" | "u8" => "UINT8",
        "str" | "string" | "object" | "text" => "BYTES",
        "boolean" => "BOOL",
        _ => return None,
    })
}

fn datatype(given: &At<String>, notes: &mut Notes<'_>) -> Option<Datatype> {
    let read = given.value.parse().ok();
    if read.is_none() {
        let known: Vec<_> = Datatype::ALL.iter().map(|datatype| datatype.name()).collect();
        let meant = numpy(&given.value).map_or_else(String::new, |ours| format!("{ours:?}: "));
        let known = known.join(", ");
        let message = format!("datatype is {:?}; give {meant}one of {known}", given.value);
        notes.problem(given.place, message);
    }
    read
}

fn shape(given: &At<Vec<At<i64>>>, notes: &mut Notes<'_>) -> Option<Vec<i64>> {
    let sizes: Vec<i64> = given.value.iter().map(|size| size.value).collect();
    let Some((-1, row)) = sizes.split_first().map(|(first, row)| (*first, row)) else {
        let message = format!("shape is {sizes:?}; its first size is the batch and must be -1");
        notes.problem(given.place, message);
        return None;
    };
    if row.len() + 1 > oip::MAX_RANK {
        let message = format!("shape has {} sizes; give at most {}", sizes.len(), oip::MAX_RANK);
        notes.problem(given.place, message);
        return None;
    }
    for At { value, place } in &given.value[1..] {
        if *value < -1 || *value == 0 {
            notes.problem(*place, format!("shape has {value}; give 1 or more, or -1 for any"));
        }
    }
    let fixed = row.iter().map(|size| (*size).max(1));
    let elements = fixed.fold(1_i64, i64::saturating_mul);
    if elements > MAX_ROW_ELEMENTS {
        let message =
            format!("shape has {elements} elements per row; give at most {MAX_ROW_ELEMENTS}");
        notes.problem(given.place, message);
        return None;
    }
    Some(sizes)
}

/// An output of any size must echo an input, else nothing says how large it is.
pub(super) fn sized(
    given: &At<Vec<TensorDraft>>,
    inputs: &[TensorSpec],
    outputs: &[TensorSpec],
    notes: &mut Notes<'_>,
) {
    for (output, draft) in outputs.iter().zip(&given.value) {
        let echoes = inputs
            .iter()
            .any(|input| input.datatype == output.datatype && input.shape == output.shape);
        if output.shape[1..].contains(&-1) && !echoes {
            let place = draft.shape.as_ref().map_or(given.place, |shape| shape.place);
            let message = format!(
                "output {:?} has a size of -1 but no input has its shape and datatype to echo",
                output.name
            );
            notes.problem(place, message);
        }
    }
}

/// Tensors as the file has them.
pub(super) fn shown(specs: &[TensorSpec]) -> Value {
    let tensor = |spec: &TensorSpec| {
        let datatype = spec.datatype.name();
        json!({ "name": spec.name, "datatype": datatype, "shape": spec.shape })
    };
    specs.iter().map(tensor).collect()
}
