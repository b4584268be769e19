//! The whole file: its tables, and the rules between them.
//!
//! A mistake is noted and reading goes on with some other value. None of those escapes, because one
//! problem is enough to reject the whole.

use std::{collections::HashMap, path::Path};

use crate::{
    effective::Effective,
    files::{self, Unreadable},
    key::{Found, TableSpec, whole},
    problems::{Notes, Place, Problems, Warnings},
    source::{Environment, Source},
    tables::{
        access::{KEY, Key, Scope, TENANT, Tenant},
        etcd::{ETCD, Etcd},
        loans::{self, LOANS, Loans},
        log::{LOG, Log},
        model::{self, MODEL, Model, ReadModel},
        planner::{self, PLANNER, Planner},
        router::{self, ROUTER, RouterSettings},
        tls::{self, TLS, Tls},
        tracing::{self, TRACING, Tracing},
        worker::{self, JOIN, Join, Slice, WORKER, Worker},
    },
    tree::{self, Section},
};

/// The demo's configuration; its model paths are relative to the directory given to [`demo`].
pub const DEMO: &str = include_str!("../../../configs/demo.toml");

const MAX_FILE_BYTES: u64 = 4 << 20;
/// The most tables of one kind. Names become metric labels, which must stay few.
const MAX_TABLES: usize = 1000;

#[derive(Clone, Debug)]
pub struct Config {
    pub router: RouterSettings,
    pub models: Vec<Model>,
    /// Who may infer; with none, inference is open.
    pub tenants: Vec<Tenant>,
    /// Who may use jobs and admin; with none, both answer on loopback only.
    pub keys: Vec<Key>,
    /// Terms for training jobs; absent, there are none.
    pub loans: Option<Loans>,
    pub planner: Planner,
    pub log: Log,
    /// Where traces go; absent, nowhere.
    pub tracing: Option<Tracing>,
    /// Where several routers agree on who leads; absent, this one is alone.
    pub etcd: Option<Etcd>,
    /// TLS on every listener; absent, plain.
    pub tls: Option<Tls>,
    /// How this machine's worker joins a router; in a worker's file only.
    pub join: Option<Join>,
    pub workers: Vec<Worker>,
    /// Every value in force and where it came from.
    pub effective: Effective,
}

/// Reads a configuration under this process's environment, or says everything wrong with it.
pub fn parse(path: &Path, text: &str, base_dir: &Path) -> Result<(Config, Warnings), Problems> {
    parse_source(&Source { path, text, base_dir, environment: Environment::of_process() })
}

/// As [`parse`], under the environment given.
pub fn parse_source(source: &Source<'_>) -> Result<(Config, Warnings), Problems> {
    let mut notes = Notes::new(source);
    let root = tree::parse(source.content(), &mut notes);
    let mut root = Section::new(root.get_ref(), "the file", Place::Offset(0));
    let tables = Tables::read(&mut root, &mut notes);
    root.finish(&mut notes);
    tables.check(&mut notes);
    let config = tables.into_config(&notes);
    notes.into_result(config)
}

pub fn load(path: &Path) -> Result<(Config, Warnings), Problems> {
    let text = read(path)?;
    parse(path, &text, path.parent().unwrap_or(path))
}

/// Reads the built-in demo, whose model files are under `base_dir`.
pub fn demo(base_dir: &Path) -> Result<(Config, Warnings), Problems> {
    parse(Path::new("built-in demo"), DEMO, base_dir)
}

pub(crate) fn read(path: &Path) -> Result<String, Problems> {
    files::read(path, MAX_FILE_BYTES).map_err(|unreadable| match unreadable {
        Unreadable::Unopened(why) => Problems::of_file(path, why),
        Unreadable::NotText(valid) => {
            Problems::of_text(path, &valid, "not UTF-8 from here on; save the file as UTF-8")
        }
    })
}

/// Every table as it was read, and where its values were found.
struct Tables {
    router: (RouterSettings, Found),
    models: Vec<ReadModel>,
    tenants: Vec<(Tenant, Found)>,
    keys: Vec<(Key, Found)>,
    loans: Option<(Loans, Found)>,
    planner: (Planner, Found),
    log: (Log, Found),
    tracing: Option<(Tracing, Found)>,
    etcd: Option<(Etcd, Found)>,
    tls: Option<(Option<Tls>, Found)>,
    join: Option<(Join, Found)>,
    workers: Vec<(Option<Worker>, Found)>,
}

impl Tables {
    fn read(root: &mut Section<'_>, notes: &mut Notes<'_>) -> Self {
        Self {
            router: always(&ROUTER, root, notes, router::read),
            models: each(&MODEL, root, notes, model::read),
            tenants: each(&TENANT, root, notes, |one, notes| whole(one, notes, Tenant::read)),
            keys: each(&KEY, root, notes, |one, notes| whole(one, notes, Key::read)),
            loans: maybe(&LOANS, root, notes, loans::read),
            planner: always(&PLANNER, root, notes, planner::read),
            log: always(&LOG, root, notes, |one, notes| whole(one, notes, Log::read)),
            tracing: maybe(&TRACING, root, notes, tracing::read),
            etcd: maybe(&ETCD, root, notes, |one, notes| whole(one, notes, Etcd::read)),
            tls: maybe(&TLS, root, notes, tls::read),
            join: maybe(&JOIN, root, notes, worker::read_join),
            workers: each(&WORKER, root, notes, worker::read),
        }
    }

    fn check(&self, notes: &mut Notes<'_>) {
        self.count(notes);
        let (router, etcd) = (&self.router.0, self.etcd.as_ref());
        let is_stored = router.state_dir.is_some() || etcd.is_some() || self.join.is_some();
        if let Some((loans, found)) = &self.loans
            && !loans.allow.is_empty()
            && !is_stored
        {
            let message =
                "without state_dir in [router], jobs and what they kept go with the router";
            notes.warn(found.place, message);
        }
        if let (Some((_, found)), Some(_)) = (etcd, &router.state_dir) {
            let message =
                "jobs and overrides are stored in etcd; state_dir stores only learned model data";
            notes.warn(found.place, message);
        }
        if let Some((_, found)) = &self.join {
            self.only_a_workers(found, notes);
        }
        unique("model", self.models.iter().map(|model| &model.found), notes);
        unique("tenant", self.tenants.iter().map(|(_, found)| found), notes);
        unique("key", self.keys.iter().map(|(_, found)| found), notes);
        self.guarded(notes);
        self.files(notes);
        self.fits(notes);
    }

    /// Notes model files that are not here: where workers are of this file they load them here.
    fn files(&self, notes: &mut Notes<'_>) {
        for (place, why) in self.models.iter().filter_map(|model| model.absent.as_ref()) {
            if self.workers.is_empty() {
                let message = format!("{why} here; every worker needs it at this path");
                notes.warn(*place, message);
            } else {
                notes.problem(*place, why.clone());
            }
        }
    }

    fn count(&self, notes: &mut Notes<'_>) {
        let tables = [
            ("model", self.models.len()),
            ("tenant", self.tenants.len()),
            ("key", self.keys.len()),
            ("worker", self.workers.len()),
        ];
        for (name, found) in tables {
            if found > MAX_TABLES {
                let message = format!("{found} [[{name}]] tables; give at most {MAX_TABLES}");
                notes.problem(Place::Offset(0), message);
            }
        }
        if self.models.is_empty() && self.join.is_none() {
            notes.warn(Place::Offset(0), "no [[model]]: nothing would be served");
        }
    }

    /// Notes tables that a worker has no use for.
    fn only_a_workers(&self, join: &Found, notes: &mut Notes<'_>) {
        let message = "[join] makes this a worker's file; this belongs in the router's";
        let tls = self.tls.as_ref().map(|(_, found)| found.place);
        let etcd = self.etcd.as_ref().map(|(_, found)| found.place);
        let router = &self.router.1;
        let mut places = vec![router.is_present.then_some(router.place), tls, etcd];
        places.extend(self.models.iter().map(|model| Some(model.found.place)));
        places.extend(self.tenants.iter().map(|(_, found)| found.place_of("name")));
        places.extend(self.keys.iter().map(|(_, found)| found.place_of("name")));
        places.into_iter().flatten().for_each(|place| notes.problem(place, message));
        if self.workers.is_empty() {
            let message = "no [[worker]]: a worker needs a GPU, such as gpu = \"nvml:0\"";
            notes.missing(join.place, message);
        }
    }

    /// An admin address that other hosts reach needs a key that opens it.
    fn guarded(&self, notes: &mut Notes<'_>) {
        let (router, found) = &self.router;
        let admin = router.admin_listen;
        // Scopes that cannot be read are a problem of their own.
        let opens = self.keys.iter().any(|(key, found)| {
            !found.is_good("scopes") || key.scopes.is_empty() || key.scopes.contains(&Scope::Admin)
        });
        if !admin.ip().is_loopback() && !opens {
            let place = found.place_of("admin_listen").unwrap_or(Place::Offset(0));
            let message = format!(
                "admin_listen {admin} is not loopback and no [[key]] has the admin scope; \
                 add one, or listen on 127.0.0.1"
            );
            notes.problem(place, message);
        }
    }

    /// Notes models whose least replicas cannot be in the workers' memory however placed, and
    /// slices whose latency is taken from another profile's measurements.
    fn fits(&self, notes: &mut Notes<'_>) {
        let known = self.workers.iter().map(|(worker, _)| worker.as_ref()?.known_slices());
        let Some(known) = known.collect::<Option<Vec<_>>>() else { return };
        let slices: Vec<&Slice> = known.iter().flatten().collect();
        if slices.is_empty() {
            return;
        }
        let largest = slices.iter().map(|slice| slice.memory_mib).max().unwrap_or(0);
        let total: u64 = slices.iter().map(|slice| slice.memory_mib).sum();
        let mut needed = 0_u64;
        let mut overfull = false;
        for ReadModel { model, found, replicas_found, .. } in &self.models {
            let Some(model) = model else { continue };
            unmeasured(found, model, &slices, notes);
            let (each, min) = (model.memory_mib, model.replicas.min);
            let place = found.blame("memory_mib");
            needed = needed.saturating_add(each.saturating_mul(u64::from(min)));
            if each > largest {
                let message =
                    format!("memory_mib is {each} but the largest slice has {largest} MiB");
                notes.problem(place, message);
            } else if needed > total && !overfull {
                overfull = true;
                let place = replicas_found.place_of("replicas.min").unwrap_or(place);
                let message = format!(
                    "with {min} replicas of {each} MiB for {:?}, the models need {needed} MiB; \
                     the slices of every [[worker]] have {total} MiB",
                    model.name
                );
                notes.problem(place, message);
            }
        }
    }

    /// The configuration, unless a problem was noted that left nothing to put in a place.
    fn into_config(self, notes: &Notes<'_>) -> Option<Config> {
        let effective = self.effective(notes);
        let first = |(value, _)| value;
        let models = self.models.into_iter().map(|read| read.model).collect::<Option<_>>()?;
        Some(Config {
            router: self.router.0,
            models,
            tenants: self.tenants.into_iter().map(|(tenant, _)| tenant).collect(),
            keys: self.keys.into_iter().map(|(key, _)| key).collect(),
            loans: self.loans.map(|(loans, _)| loans),
            planner: self.planner.0,
            log: self.log.0,
            tracing: self.tracing.map(|(tracing, _)| tracing),
            etcd: self.etcd.map(|(etcd, _)| etcd),
            tls: match self.tls {
                Some((tls, _)) => Some(tls?),
                None => None,
            },
            join: self.join.map(|(join, _)| join),
            workers: self.workers.into_iter().map(first).collect::<Option<_>>()?,
            effective,
        })
    }

    fn effective(&self, notes: &Notes<'_>) -> Effective {
        let mut listed = Effective { file: notes.file().to_owned(), settings: Vec::new() };
        let mut list = |table, item: Option<&str>, parts: &[Found]| {
            listed.list(table, item, parts, notes);
        };
        let one = std::slice::from_ref;
        match &self.join {
            Some((_, found)) => list(&JOIN, None, one(found)),
            None => list(&ROUTER, None, one(&self.router.1)),
        }
        for ReadModel { model, shown, .. } in &self.models {
            list(&MODEL, model.as_ref().map(|model| model.name.as_str()), shown);
        }
        for (tenant, found) in &self.tenants {
            list(&TENANT, Some(&tenant.name), one(found));
        }
        for (key, found) in &self.keys {
            list(&KEY, Some(&key.name), one(found));
        }
        let tables = [
            (&LOANS, self.loans.as_ref().map(|(_, found)| found)),
            (&PLANNER, Some(&self.planner.1).filter(|found| found.is_present)),
            (&LOG, Some(&self.log.1).filter(|found| found.place_of("level").is_some())),
            (&TRACING, self.tracing.as_ref().map(|(_, found)| found)),
            (&ETCD, self.etcd.as_ref().map(|(_, found)| found)),
            (&TLS, self.tls.as_ref().map(|(_, found)| found)),
        ];
        for (table, found) in tables {
            found.iter().for_each(|found| list(table, None, one(found)));
        }
        for (index, (_, found)) in self.workers.iter().enumerate() {
            list(&WORKER, Some(&index.to_string()), one(found));
        }
        listed
    }
}

type ReadTable<'t, T> = fn(Section<'t>, &mut Notes<'_>) -> T;

fn always<'t, T>(
    table: &TableSpec,
    root: &mut Section<'t>,
    notes: &mut Notes<'_>,
    read: ReadTable<'t, T>,
) -> T {
    let section = root.section(table.name, table.title, notes);
    read(section.unwrap_or_else(|| Section::absent(table.title)), notes)
}

fn maybe<'t, T>(
    table: &TableSpec,
    root: &mut Section<'t>,
    notes: &mut Notes<'_>,
    read: ReadTable<'t, T>,
) -> Option<T> {
    root.section(table.name, table.title, notes).map(|section| read(section, notes))
}

fn each<'t, T>(
    table: &TableSpec,
    root: &mut Section<'t>,
    notes: &mut Notes<'_>,
    read: ReadTable<'t, T>,
) -> Vec<T> {
    let sections = root.sections(table.name, table.title, notes);
    sections.into_iter().map(|section| read(section, notes)).collect()
}

pub(crate) fn unique<'f>(
    what: &str,
    tables: impl Iterator<Item = &'f Found>,
    notes: &mut Notes<'_>,
) {
    let mut seen: HashMap<&str, Place> = HashMap::new();
    for (value, place) in tables.filter_map(|found| found.text("name")) {
        if let Some(first) = seen.get(value) {
            let first = notes.line_of(*first);
            notes.problem(place, format!("{what} {value:?} is named twice, first on line {first}"));
        } else {
            seen.insert(value, place);
        }
    }
}

fn unmeasured(found: &Found, model: &Model, slices: &[&Slice], notes: &mut Notes<'_>) {
    let (Some(profile), Some((csv, place))) = (&model.profile, found.text("profile_csv")) else {
        return;
    };
    let mut noted: Vec<&str> = Vec::new();
    for slice in slices {
        let plain = slice.profile.split('+').next().unwrap_or(&slice.profile);
        let stand_in = profile.stand_in(plain);
        if stand_in != plain && !noted.contains(&plain) {
            noted.push(plain);
            let message =
                format!("{csv} has no measurements for {plain}; those of {stand_in} are used");
            notes.warn(place, message);
        }
    }
}
