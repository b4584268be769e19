//! The tree keeps its own rules: those of size, of dependency, of documents, that no compiler
//! checks. Every failing test lists all it found, as `path:line: what`.

mod code;
mod dashboards;
mod dependencies;
mod documents;
mod house;
mod reference;
mod samples;
mod tree;
mod words;
