//! What warm-ups and serving have taught, kept in the state directory.
//!
//! Without it a router that starts again would know nothing of models that have no replica just
//! then, and would take every load for a new one. Nothing here is worth stopping for: what cannot
//! be written is told and tried again, and only a file that is damaged is refused.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Change, CommitError, OpenError, Records, Schema, Store};

use crate::records::open;

const FILE: &str = "learned.log";
const SCHEMA: Schema = Schema { migrations: &[] };

const MODEL: &str = "model/";
const AT: &str = "at_ms";
/// How old that may be before it is written though nothing else changed.
const STALE_MS: u64 = 600_000;

#[derive(Debug)]
pub struct Learned {
    kept: Mutex<Kept>,
}

#[derive(Debug)]
enum Kept {
    File(Store),
    /// In this process alone, for the next one that takes over from it.
    Here(Memory),
    /// With another process, which has the file.
    Elsewhere,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// In milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// By the model's name.
    pub(crate) models: BTreeMap<String, OfModel>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfModel {
    /// What ran. How fast it was says nothing of something else that has its name now.
    pub(crate) source: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warmups: Vec<Warmups>,
    #[serde(default)]
    pub(crate) demand: Asked,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) beside: Vec<Beside>,
}

/// How fast it was on slices of one kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warmups {
    pub(crate) kind: Option<String>,
    /// By profile, rows per batch and their seconds.
    pub(crate) profiles: BTreeMap<String, Vec<(u32, f64)>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Rows per second in each of the last minutes, the last of them last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) minutes: Vec<f64>,
    /// What each part of the day usually brings, from midnight on, in universal time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) usual: Vec<Option<f64>>,
    /// The longest that a replica took from being asked for to being ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Its slice's part of the GPU, in thousandths.
    pub(crate) compute: u32,
    /// Which models were on which parts beside it; whatever they were, if absent.
    pub(crate) others: Option<Vec<(String, u32)>>,
    pub(crate) factor: f64,
    pub(crate) seen: u32,
}

impl Learned {
    /// What is kept in `state_dir`; without one, nothing is and nothing will be.
    pub fn open(state_dir: Option<&Path>) -> Result<Arc<Self>, OpenError> {
        let learned = Self::elsewhere();
        learned.reopen(state_dir, None)?;
        Ok(learned)
    }

    /// Nothing that is known yet: another process has the file.
    pub fn elsewhere() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::new(Kept::Elsewhere) })
    }

    /// Whether the file in `state_dir` can be opened by this program. Changes nothing.
    pub fn check(state_dir: &Path) -> Result<(), OpenError> {
        Store::check(&state_dir.join(FILE), &SCHEMA)
    }

    /// Closes the file, so that another process can open it. Returns what no file has.
    pub fn release(&self) -> Option<Memory> {
        match std::mem::replace(&mut *self.kept.lock(), Kept::Elsewhere) {
            Kept::Here(memory) => Some(memory),
            Kept::File(_) | Kept::Elsewhere => None,
        }
    }

    /// Opens the file again, or for the first time; without one, `memory` is what is known.
    pub fn reopen(
        &self,
        state_dir: Option<&Path>,
        memory: Option<&Memory>,
    ) -> Result<(), OpenError> {
        let mut kept = self.kept.lock();
        *kept = match state_dir {
            Some(state_dir) => Kept::File(open(&state_dir.join(FILE), &SCHEMA)?),
            None => Kept::Here(memory.cloned().unwrap_or_default()),
        };
        Ok(())
    }

    pub(crate) fn is_kept(&self) -> bool {
        matches!(*self.kept.lock(), Kept::File(_))
    }

    /// What was kept last. May wait for the disk.
    pub(crate) fn recall(&self) -> Memory {
        match &*self.kept.lock() {
            Kept::File(store) => read(store.records()),
            Kept::Here(memory) => memory.clone(),
            Kept::Elsewhere => Memory::default(),
        }
    }

    /// Makes `memory` what is kept. Writes to the disk, if there is a file and anything changed.
    pub(crate) fn keep(&self, memory: &Memory) -> Result<(), CommitError> {
        match &mut *self.kept.lock() {
            Kept::File(store) => {
                let change = difference(store.records(), memory);
                store.commit(change)
            }
            Kept::Here(before) => {
                *before = memory.clone();
                Ok(())
            }
            Kept::Elsewhere => Ok(()),
        }
    }
}

fn read(records: &Records) -> Memory {
    let at_ms = records.get(AT).and_then(Value::as_u64).unwrap_or(0);
    let model = |(key, value): (&String, &Value)| {
        let name = key.strip_prefix(MODEL)?;
        let known = serde_json::from_value(value.clone());
        let known = known.inspect_err(|error| {
            tracing::error!(key, %error, "cannot read learned model data; learning it again");
        });
        Some((name.to_owned(), known.ok()?))
    };
    Memory { at_ms, models: records.iter().filter_map(model).collect() }
}

/// What must be written so that the file says what `memory` does.
fn difference(records: &Records, memory: &Memory) -> Change {
    let mut change = Change::default();
    for (name, known) in &memory.models {
        let (key, value) = (format!("{MODEL}{name}"), value(known));
        if records.get(&key) != Some(&value) {
            change = change.put(key, value);
        }
    }
    let gone = |key: &&String| {
        key.strip_prefix(MODEL).is_some_and(|name| !memory.models.contains_key(name))
    };
    change = records.keys().filter(gone).fold(change, |change, key| change.delete(key));
    let written_ms = records.get(AT).and_then(Value::as_u64).unwrap_or(0);
    if change.is_empty() && memory.at_ms.abs_diff(written_ms) < STALE_MS {
        return change;
    }
    change.put(AT, memory.at_ms.into())
}

fn value(known: &OfModel) -> Value {
    serde_json::to_value(known).expect("maps with text keys can be written as JSON")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("learned-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn of_model(load_ms: u64) -> OfModel {
        OfModel {
            source: "onnx digits.onnx".to_owned(),
            warmups: vec![Warmups {
                kind: Some("A100-80GB".to_owned()),
                profiles: BTreeMap::from([("3g.40gb".to_owned(), vec![(1, 0.001), (32, 0.012)])]),
            }],
            demand: Asked {
                minutes: vec![0.0, 17.25],
                usual: vec![None, Some(12.5)],
                load_ms: Some(load_ms),
            },
            beside: vec![
                Beside { compute: 429, others: None, factor: 1.25, seen: 7 },
                Beside {
                    compute: 429,
                    others: Some(vec![("langid".to_owned(), 143)]),
                    factor: 0.75,
                    seen: 3,
                },
            ],
        }
    }

    fn memory(at_ms: u64, models: &[(&str, u64)]) -> Memory {
        let models = models.iter().map(|(name, load)| ((*name).to_owned(), of_model(*load)));
        Memory { at_ms, models: models.collect() }
    }

    #[test]
    fn what_is_kept_is_recalled_by_the_next_process_and_models_that_went_are_not() {
        let folder = Folder::new("kept");
        let open = || Learned::open(Some(&folder.0)).unwrap();
        assert_eq!(open().recall(), Memory::default());
        let both = memory(1_000, &[("digits", 40), ("langid", 50)]);
        open().keep(&both).unwrap();
        assert_eq!(open().recall(), both);
        let one = memory(2_000, &[("digits", 40)]);
        open().keep(&one).unwrap();
        assert_eq!(open().recall(), one);
    }

    #[test]
    fn nothing_is_written_while_nothing_changes_but_now_and_then_that_it_is_still_so() {
        let folder = Folder::new("unchanged");
        let learned = Learned::open(Some(&folder.0)).unwrap();
        let length = || fs::metadata(folder.0.join(FILE)).unwrap().len();
        learned.keep(&memory(1_000, &[("digits", 40)])).unwrap();
        let before = length();
        learned.keep(&memory(60_000, &[("digits", 40)])).unwrap();
        assert_eq!(length(), before);
        learned.keep(&memory(60_000, &[("digits", 41)])).unwrap();
        assert!(length() > before);
        assert_eq!(learned.recall().at_ms, 60_000);
        learned.keep(&memory(60_000 + STALE_MS, &[("digits", 41)])).unwrap();
        assert_eq!(learned.recall().at_ms, 60_000 + STALE_MS);
    }

    #[test]
    fn a_damaged_file_is_refused_with_its_line_and_left_as_it_is() {
        let folder = Folder::new("damaged");
        let path = folder.0.join(FILE);
        let learned = Learned::open(Some(&folder.0)).unwrap();
        for load in 1..4 {
            learned.keep(&memory(1_000, &[("digits", load)])).unwrap();
        }
        drop(learned);
        let text = fs::read_to_string(&path).unwrap().replacen("\"load_ms\":2", "\"load_ms\":9", 1);
        fs::write(&path, &text).unwrap();
        let error = Learned::open(Some(&folder.0)).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { line: 3, .. }), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn a_record_that_says_something_else_is_learned_anew_and_hides_no_other() {
        let mut records = Records::new();
        difference(&records, &memory(5, &[("digits", 40)])).into_parts().0.into_iter().for_each(
            |(key, value)| {
                records.insert(key, value);
            },
        );
        records.insert("model/odd".to_owned(), Value::from(7));
        assert_eq!(read(&records), memory(5, &[("digits", 40)]));
    }
}
