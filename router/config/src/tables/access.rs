//! `[[tenant]]` and `[[key]]`: who may do what.

use serde_json::Value;

use crate::{
    key::{
        Effect, Given, Kind, TableSpec,
        kinds::{Number, OneOf, Whole, Word},
        table,
    },
    problems::{At, Notes},
    secrets::{HIDDEN, KeyHash},
    tree::{OneOrMore, Read},
};

/// Keys one client may have at a time: the one in use, and those that replace it.
const MAX_KEYS: usize = 4;

pub(crate) const TENANT: TableSpec = TableSpec {
    name: "tenant",
    title: "[[tenant]]",
    about: "A client identity. Without any `[[tenant]]`, inference is open; with one or more, a \
            request needs the key of a tenant, as `Authorization: Bearer KEY`.",
    whole: Effect::Live,
};

pub(crate) const KEY: TableSpec = TableSpec {
    name: "key",
    title: "[[key]]",
    about: "A key of an operator or of a job's owner. Without any `[[key]]`, jobs and the admin \
            API answer on loopback only.",
    whole: Effect::Live,
};

const MORE_THAN_0: Number = Number(|value| value > 0.0, "more than 0");

table! {
    /// A client identity.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Tenant {
        /// Name of the tenant in metrics.
        name: String = "name" need, Word, Live;
        /// SHA-256 of the tenant's key, or a list of up to 4 while keys are replaced.
        keys: Vec<KeyHash> = "key_sha256" need, Hashes, Live;
        /// Most rows per second; 429 beyond. Absent: no limit.
        rate_rps: Option<f64> = "rate_rps" maybe, MORE_THAN_0, Live;
        /// Most requests in flight; 429 beyond. Absent: no limit.
        max_in_flight: Option<u32> = "max_in_flight" maybe, Whole(1..=u64::from(u32::MAX)), Live;
        /// Weight against other tenants under overload.
        share: f64 = "share" or(1.0), MORE_THAN_0, Live;
    }
}

table! {
    /// A key of an operator or of a job's owner.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Key {
        /// Name of the key in logs.
        name: String = "name" need, Word, Live;
        /// SHA-256 of the key, or a list of up to 4 while keys are replaced.
        keys: Vec<KeyHash> = "key_sha256" need, Hashes, Live;
        /// What the key gives access to: some of `infer`, `jobs` and `admin`.
        scopes: Vec<Scope> = "scopes" need, Scopes, Live;
    }
}

/// What a [`Key`] gives access to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Inference.
    Infer,
    /// Training jobs.
    Jobs,
    /// The admin API, and loading and unloading of models.
    Admin,
}

impl Scope {
    const ALL: [Self; 3] = [Self::Infer, Self::Jobs, Self::Admin];

    /// The word for it in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Jobs => "jobs",
            Self::Admin => "admin",
        }
    }
}

struct Scopes;

impl Kind<Vec<Scope>> for Scopes {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<Scope>> {
        let words: Vec<At<String>> = Read::read(given.key, given.value, notes)?;
        if words.is_empty() {
            notes.problem(given.place, "scopes is empty; give some of infer, jobs, admin");
            return None;
        }
        let known = OneOf(Scope::ALL.map(|scope| (scope.name(), scope)).to_vec());
        let scopes: Vec<_> =
            words.iter().filter_map(|word| known.choose("scopes", word, notes)).collect();
        (scopes.len() == words.len()).then_some(scopes)
    }

    fn show(&self, scopes: &Vec<Scope>, _given: Option<&Given<'_>>) -> Value {
        scopes.iter().map(|scope| scope.name()).collect()
    }

    fn range(&self) -> String {
        "list of `infer`, `jobs`, `admin`".to_owned()
    }
}

/// Hashes of keys, of which no two tables may have the same.
struct Hashes;

impl Kind<Vec<KeyHash>> for Hashes {
    fn read(&self, given: &Given<'_>, notes: &mut Notes<'_>) -> Option<Vec<KeyHash>> {
        let OneOrMore::<String>(all) = Read::read(given.key, given.value, notes)?;
        let found = all.len();
        if found == 0 || found > MAX_KEYS {
            let message = format!("key_sha256 has {found} hashes; give 1 to {MAX_KEYS}");
            notes.problem(given.place, message);
        }
        let mut hashes = Vec::new();
        for At { value, place } in all {
            match KeyHash::parse(&value) {
                Ok(hash) => {
                    if let Some(first) = notes.first_use(hash, place) {
                        let message = format!("key_sha256 is also that of line {first}");
                        notes.problem(place, message);
                    }
                    hashes.push(hash);
                }
                Err(why) => notes.problem(place, why),
            }
        }
        (hashes.len() == found).then_some(hashes)
    }

    fn show(&self, hashes: &Vec<KeyHash>, _given: Option<&Given<'_>>) -> Value {
        match hashes.as_slice() {
            [_] => HIDDEN.into(),
            several => Value::from(vec![HIDDEN; several.len()]),
        }
    }

    fn range(&self) -> String {
        "64 hexadecimal digits, or a list".to_owned()
    }

    fn secret(&self, hashes: &Vec<KeyHash>) -> Option<KeyHash> {
        Some(KeyHash::of_all(hashes))
    }
}
