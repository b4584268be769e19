use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicI64, AtomicU32, Ordering},
};

use serde_json::json;

use super::*;

const SCHEMA: Schema = Schema { migrations: &[] };

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.log")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Store {
    Store::open(path, &SCHEMA).unwrap().store
}

/// Some commits, and what the records are after each; the first is before all.
fn history(store: &mut Store) -> Vec<(u64, Records)> {
    let mut seen = vec![(store.length, store.records.clone())];
    for step in 0..6 {
        let mut change =
            Change::default().put(format!("job/{}", step % 3), json!({ "step": step }));
        if step > 2 {
            change = change.delete(format!("job/{}", (step + 1) % 3));
        }
        store.commit(change).unwrap();
        seen.push((store.length, store.records.clone()));
    }
    seen
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let folder = Folder::new();
    let mut store = open(&folder.file());
    let (_, last) = history(&mut store).pop().unwrap();
    drop(store);
    assert_eq!(*open(&folder.file()).records(), last);
}

#[test]
fn truncation_at_any_byte_keeps_every_whole_commit() {
    let folder = Folder::new();
    let mut store = open(&folder.file());
    let seen = history(&mut store);
    drop(store);
    let whole = fs::read(folder.file()).unwrap();
    let (header, _) = seen[0];
    for cut in usize::try_from(header).unwrap()..=whole.len() {
        let other = Folder::new();
        fs::write(other.file(), &whole[..cut]).unwrap();
        let opened = Store::open(&other.file(), &SCHEMA).unwrap();
        let (length, expected) =
            seen.iter().rev().find(|(length, _)| *length <= cut as u64).unwrap();
        assert_eq!(opened.store.records(), expected, "cut at {cut}");
        let rest = &whole[usize::try_from(*length).unwrap()..cut];
        let kept = opened.torn.as_ref().map(|kept| fs::read(kept).unwrap());
        assert_eq!(kept.unwrap_or_default(), rest, "cut at {cut}");
        let mut store = opened.store;
        store.commit(Change::default().put("after", json!(cut))).unwrap();
        drop(store);
        assert_eq!(open(&other.file()).records()["after"], json!(cut));
    }
}

#[test]
fn damage_before_the_last_line_is_an_error_and_changes_nothing() {
    let folder = Folder::new();
    history(&mut open(&folder.file()));
    let whole = fs::read(folder.file()).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    let last_line = ends[ends.len() - 2] + 1;
    let before = folder.names();
    for at in (0..last_line).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x15;
        fs::write(folder.file(), &damaged).unwrap();
        let error = Store::open(&folder.file(), &SCHEMA).unwrap_err();
        let line = 1 + ends.iter().filter(|end| **end < at).count();
        assert!(
            matches!(error, OpenError::Damaged { line: found, .. } if found == line),
            "byte {at}: {error}"
        );
        assert_eq!(fs::read(folder.file()).unwrap(), damaged, "byte {at}");
    }
    assert_eq!(folder.names(), before);
}

#[test]
fn an_empty_or_foreign_file_is_refused() {
    let folder = Folder::new();
    for text in ["", "\n", "hello\n", "00000000 {\"format\":\"sluice-state\",\"version\":1}\n"] {
        fs::write(folder.file(), text).unwrap();
        let error = Store::open(&folder.file(), &SCHEMA).unwrap_err();
        assert!(matches!(error, OpenError::Damaged { line: 1, .. }), "{text:?}: {error}");
        assert_eq!(fs::read_to_string(folder.file()).unwrap(), text);
    }
}

#[test]
fn two_cannot_have_it_open() {
    let folder = Folder::new();
    let first = open(&folder.file());
    let error = Store::open(&folder.file(), &SCHEMA).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(first);
    open(&folder.file());
}

#[test]
fn an_older_version_is_brought_forward_and_kept() {
    let folder = Folder::new();
    open(&folder.file()).commit(Change::default().put("job/1", json!({ "gpus": 2 }))).unwrap();
    let old = fs::read(folder.file()).unwrap();
    let rename: Migration = |records| {
        for (key, value) in records.iter_mut() {
            let gpus = value.as_object_mut().and_then(|job| job.remove("gpus"));
            value["slices"] = gpus.ok_or_else(|| format!("{key} has no gpus"))?;
        }
        Ok(())
    };
    let newer = Schema { migrations: Box::leak(Box::new([rename])) };
    let opened = Store::open(&folder.file(), &newer).unwrap();
    assert_eq!(opened.store.records()["job/1"], json!({ "slices": 2 }));
    let kept = opened.migrated_from.clone().unwrap();
    assert_eq!(fs::read(kept).unwrap(), old);
    drop(opened);
    assert_eq!(Store::open(&folder.file(), &newer).unwrap().migrated_from, None);

    let error = Store::open(&folder.file(), &SCHEMA).unwrap_err();
    assert!(matches!(error, OpenError::TooNew { found: 2, known: 1, .. }), "{error}");
}

#[test]
fn a_failed_migration_leaves_the_file_as_it_is() {
    let folder = Folder::new();
    open(&folder.file()).commit(Change::default().put("job/1", json!(7))).unwrap();
    let old = fs::read(folder.file()).unwrap();
    let refuse: Migration = |_| Err("a job is a number".to_owned());
    let newer = Schema { migrations: Box::leak(Box::new([refuse])) };
    let error = Store::open(&folder.file(), &newer).unwrap_err();
    assert!(error.to_string().contains("a job is a number"), "{error}");
    assert_eq!(fs::read(folder.file()).unwrap(), old);
}

#[test]
fn a_long_log_is_rewritten_short_and_the_one_before_is_kept() {
    let folder = Folder::new();
    let mut store = open(&folder.file());
    let large = "x".repeat(100_000);
    for step in 0..40 {
        store.commit(Change::default().put("same", json!([step, large]))).unwrap();
    }
    let length = fs::metadata(folder.file()).unwrap().len();
    assert!(length < 2_000_000, "{length} bytes for one record of 100,000");
    assert!(folder.names().contains(&"state.log.previous".to_owned()), "{:?}", folder.names());
    drop(store);
    assert_eq!(open(&folder.file()).records()["same"][0], 39);
}

#[test]
fn a_rewrite_that_was_cut_off_is_forgotten() {
    let folder = Folder::new();
    let mut store = open(&folder.file());
    let (_, last) = history(&mut store).pop().unwrap();
    drop(store);
    fs::write(folder.0.join("state.log.new"), "0").unwrap();
    assert_eq!(*open(&folder.file()).records(), last);
}

/// Bytes that the disk still takes, for all stores of one test at a time.
static ROOM: AtomicI64 = AtomicI64::new(i64::MAX);

/// A disk that fills up.
#[derive(Debug)]
struct Full(File);

impl Medium for Full {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(ROOM.load(Ordering::Relaxed)).unwrap_or(0).min(bytes.len());
        self.0.write_all(&bytes[..room])?;
        ROOM.fetch_sub(i64::try_from(room).unwrap(), Ordering::Relaxed);
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

#[test]
fn full_disk_fails_a_commit_whole_and_later_ones_work() {
    let line = line::commit(&Change::default().put("lost", json!(1))).len();
    for room in 0..line {
        let folder = Folder::new();
        let opened = open::open(&folder.file(), &SCHEMA, |file| Box::new(Full(file)));
        let mut store = opened.unwrap().store;
        store.commit(Change::default().put("kept", json!(1))).unwrap();
        ROOM.store(i64::try_from(room).unwrap(), Ordering::Relaxed);
        let error = store.commit(Change::default().put("lost", json!(1))).unwrap_err();
        assert!(matches!(error, CommitError::Io { .. }), "room {room}: {error}");
        ROOM.store(i64::MAX, Ordering::Relaxed);
        assert!(!store.records().contains_key("lost"), "room {room}");
        store.commit(Change::default().put("later", json!(1))).unwrap();
        let expected = store.records().clone();
        drop(store);
        let opened = Store::open(&folder.file(), &SCHEMA).unwrap();
        assert_eq!(*opened.store.records(), expected, "room {room}");
        assert_eq!(opened.torn, None, "room {room}");
    }
}

/// A disk that says that it lost something.
#[derive(Debug)]
struct Unsynced(File);

impl Medium for Unsynced {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        Err(io::Error::other("lost"))
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
}

#[test]
fn after_a_failed_sync_nothing_more_is_promised() {
    let folder = Folder::new();
    let opened = open::open(&folder.file(), &SCHEMA, |file| Box::new(Unsynced(file)));
    let mut store = opened.unwrap().store;
    let change = || Change::default().put("a", json!(1));
    assert!(matches!(store.commit(change()).unwrap_err(), CommitError::Io { .. }));
    assert!(matches!(store.commit(change()).unwrap_err(), CommitError::Broken { .. }));
    assert!(store.records().is_empty());
}
