//! The reference page of the configuration, rendered from the declarations.

use std::fmt::Write;

use crate::{
    effective::toml_text,
    key::{Effect, Entry, Found, TableSpec},
    planfile::plan_tables,
    problems::Notes,
    tables::{
        access::{KEY, Key, TENANT, Tenant},
        etcd::{ETCD, Etcd},
        loans::{LOANS, Loans},
        log::{LOG, Log},
        model::{self, MODEL},
        planner::{PLANNER, PlannerKeys},
        router::{ROUTER, RouterSettings},
        tls::{TLS, TlsKeys},
        tracing::{TRACING, TracingKeys},
        worker::{JOIN, JoinKeys, WORKER, WorkerKeys},
    },
    tree::Section,
};

const HEAD: &str = "\
# Configuration reference

Every key of the configuration file, for operators who write one. `sluice check FILE` says everything
that is wrong with a file, and `sluice check FILE --print` shows each value in force and its origin.
After reading a row you can set the key and know how a change takes effect.

The file is TOML. Unknown keys are rejected. Paths are relative to the file. `SIGHUP` and
`POST /admin/v1/reload` read the file again and apply all of it or nothing. *Reload* in the last
column means that a reload applies a change; with a change that needs a *restart*, the reload is
rejected. configs/reference.toml has every key as a file. This page is rendered from the
program's own declarations.
";

type Parts = fn(&mut Section<'_>, &mut Notes<'_>) -> Vec<Found>;

/// Every table of the file and its keys, as declared.
pub(crate) fn tables() -> Vec<(&'static TableSpec, Vec<Entry>)> {
    let tables: [(&'static TableSpec, Parts); 12] = [
        (&ROUTER, |s, n| vec![RouterSettings::read(s, n).1]),
        (&MODEL, model::parts),
        (&TENANT, |s, n| vec![Tenant::read(s, n).1]),
        (&KEY, |s, n| vec![Key::read(s, n).1]),
        (&LOANS, |s, n| vec![Loans::read(s, n).1]),
        (&PLANNER, |s, n| vec![PlannerKeys::read(s, n).1]),
        (&LOG, |s, n| vec![Log::read(s, n).1]),
        (&TRACING, |s, n| vec![TracingKeys::read(s, n).1]),
        (&ETCD, |s, n| vec![Etcd::read(s, n).1]),
        (&TLS, |s, n| vec![TlsKeys::read(s, n).1]),
        (&WORKER, |s, n| vec![WorkerKeys::read(s, n).1]),
        (&JOIN, |s, n| vec![JoinKeys::read(s, n).1]),
    ];
    let entries = |(table, parts): (&'static TableSpec, Parts)| {
        let found = parts(&mut Section::absent(table.title), &mut Notes::unread());
        (table, found.into_iter().flat_map(|part| part.entries).collect())
    };
    tables.into_iter().map(entries).collect()
}

pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for (table, entries) in tables() {
        let whole = effect(table.whole);
        page += &format!("\n## `{}`\n\n{}\n\n", table.title, table.about);
        page += "| key | value | default | meaning | change |\n|---|---|---|---|---|\n";
        entries.iter().for_each(|entry| row(&mut page, entry, effect(entry.key.effect)));
        page += &format!("\nAdding or removing the table: {whole}.\n");
    }
    page += "\n## The plan file\n\n`sluice plan FILE` reads `[planner]` as above, and these tables. In \
             `[[model]]`, other keys of a router's `[[model]]` are ignored.\n";
    for (title, entries) in plan_tables() {
        page += &format!("\n### `{title}` of a plan file\n\n");
        page += "| key | value | default | meaning |\n|---|---|---|---|\n";
        entries.iter().for_each(|entry| row(&mut page, entry, ""));
    }
    page
}

fn row(page: &mut String, entry: &Entry, change: &str) {
    let default = if entry.is_needed {
        "required".to_owned()
    } else if entry.value.is_null() {
        "none".to_owned()
    } else {
        format!("`{}`", toml_text(&entry.value))
    };
    let about = entry.key.about.trim().replace('|', "\\|");
    let variable =
        entry.key.variable.map_or_else(String::new, |name| format!(" `{name}` overrides it."));
    let last = if change.is_empty() { "" } else { &format!(" {change} |") };
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "| `{}` | {} | {default} | {about}{variable} |{last}",
        entry.key.name, entry.range
    );
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "reload",
        Effect::Restart => "restart",
    }
}
