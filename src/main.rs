//! One program.
fn main() {}
