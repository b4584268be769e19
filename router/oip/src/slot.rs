//! How errors name the tensor they are about and repeat what the caller wrote.

use std::fmt;

/// The longest piece of a caller's text that a message repeats, in characters.
const QUOTED: usize = 80;

/// Which side of the model a tensor is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Input,
    Output,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// The tensor an error is about, shown as `input "x"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub role: Role,
    /// Its name, cut short if very long.
    pub name: String,
}

impl Slot {
    pub(crate) fn new(role: Role, name: &str) -> Self {
        Self { role, name: clip(name) }
    }

    pub(crate) fn input(name: &str) -> Self {
        Self::new(Role::Input, name)
    }

    pub(crate) fn output(name: &str) -> Self {
        Self::new(Role::Output, name)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.role, self.name)
    }
}

/// A shape as it stands in JSON: `[2,3]`.
pub(crate) fn dims<T: fmt::Display>(shape: &[T]) -> String {
    let dims: Vec<String> = shape.iter().map(T::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// The start of `text`, short enough to repeat in a message.
pub(crate) fn clip(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
