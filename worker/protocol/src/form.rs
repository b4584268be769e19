//! What a message in JSON may hold: to cut a newer one to it, and to mend one that is newer still.

use serde_json::{Map, Value};

/// The form of a value in version 3.
#[derive(Debug)]
pub enum Form {
    /// Any value without parts of its own.
    Plain,
    /// These fields, and no others.
    Fields(&'static [(&'static str, Form)]),
    /// Any number of values of a form. One that cannot be told is left out.
    List(&'static Form),
    /// A value, or null, which also stands for one that cannot be told.
    Maybe(&'static Form),
    /// One of these variants: its name, or an object of the name and what it holds.
    OneOf(&'static [(&'static str, Form)], Otherwise),
    /// A variant of [`Form::OneOf`] that version 3 lacks.
    Newer,
}

/// What stands for a variant that the reader does not know.
#[derive(Clone, Copy, Debug)]
pub enum Otherwise {
    /// Nothing: what holds it cannot be told either, up to the list, the option or the message.
    Nothing,
    /// This variant, which holds nothing.
    Name(&'static str),
    /// This variant, which holds the unknown one's name as `reason`.
    Reason(&'static str),
}

/// Which variants are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    OfVersion3,
    Here,
}

impl Form {
    /// What is left of a value for a reader of version 3, if it can be told at all.
    pub(crate) fn cut(&self, value: Value) -> Option<Value> {
        self.shape(value, Known::OfVersion3)
    }

    /// The same value with a fallback for every variant that is not known here.
    pub(crate) fn mend(&self, value: Value) -> Option<Value> {
        self.shape(value, Known::Here)
    }

    fn shape(&self, value: Value, known: Known) -> Option<Value> {
        match (self, value) {
            (Self::Fields(fields), Value::Object(object)) => fields_of(fields, object, known),
            (Self::List(form), Value::Array(all)) => {
                let all = all.into_iter().filter_map(|one| form.shape(one, known));
                Some(Value::Array(all.collect()))
            }
            (Self::Maybe(form), value) if !value.is_null() => {
                Some(form.shape(value, known).unwrap_or(Value::Null))
            }
            (Self::OneOf(variants, otherwise), value) => {
                variant(variants, *otherwise, value, known)
            }
            (_, value) => Some(value),
        }
    }
}

fn fields_of(fields: &[(&str, Form)], object: Map<String, Value>, known: Known) -> Option<Value> {
    let mut shaped = Map::new();
    for (name, value) in object {
        match fields.iter().find(|(field, _)| *field == name) {
            Some((_, form)) => {
                shaped.insert(name, form.shape(value, known)?);
            }
            None if known == Known::Here => {
                shaped.insert(name, value);
            }
            None => {}
        }
    }
    Some(Value::Object(shaped))
}

fn variant(
    variants: &[(&str, Form)],
    otherwise: Otherwise,
    value: Value,
    known: Known,
) -> Option<Value> {
    let name = match &value {
        Value::String(name) => name.clone(),
        Value::Object(object) if object.len() == 1 => object.keys().next()?.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            return Some(value);
        }
    };
    let form = variants.iter().find(|(variant, _)| *variant == name).map(|(_, form)| form);
    match (form, value) {
        (Some(Form::Newer) | None, _) if known == Known::OfVersion3 || form.is_none() => {
            otherwise.value(&name)
        }
        (Some(form), Value::Object(object)) => {
            let inner = object.into_iter().next()?.1;
            Some(Value::Object(Map::from_iter([(name, form.shape(inner, known)?)])))
        }
        (_, value) => Some(value),
    }
}

impl Otherwise {
    fn value(self, unknown: &str) -> Option<Value> {
        match self {
            Self::Nothing => None,
            Self::Name(name) => Some(Value::String(name.to_owned())),
            Self::Reason(name) => {
                let reason = format!("{unknown}, which this version does not know");
                let held = Map::from_iter([("reason".to_owned(), Value::String(reason))]);
                Some(Value::Object(Map::from_iter([(name.to_owned(), Value::Object(held))])))
            }
        }
    }
}
