//! `[log]`: what a process says on stderr.

use logging::Filter;

use crate::{
    key::{
        Effect, Given, TableSpec,
        kinds::{Own, display},
        table,
    },
    problems::Notes,
    tree::Read,
};

pub(crate) const LOG: TableSpec = TableSpec {
    name: "log",
    title: "[log]",
    about: "What a router or a worker logs. Absent: every default.",
    whole: Effect::Live,
};

table! {
    /// What a process logs.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Log {
        /// Least severe level that is logged; `info,control=debug` sets another for a part of the program. `--log` overrides it. Absent: `RUST_LOG`, else `info`.
        level: Option<Filter> = "level" maybe, Own(read_level, display, "`off`, `error`, `warn`, `info`, `debug` or `trace`, or a list"), Live, "SLUICE_LOG";
    }
}

fn read_level(given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Filter> {
    let text = String::read(given.key, given.value, notes)?;
    match text.parse() {
        Ok(filter) => Some(filter),
        Err(error) => {
            notes.problem(given.place, format!("level: {error}"));
            None
        }
    }
}
