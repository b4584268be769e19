//! Signals to a rank, and to everything it ever started.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// The variable that all processes of a rank have in their environment.
pub(super) const MARK: &str = "SLUICE_RANK_MARK";

/// How often it is looked for processes that were started meanwhile.
const SWEEPS: usize = 20;

/// Kills every process whose environment has `mark`.
///
/// A program may leave its process group or have its parent die; it cannot change what it was
/// started with.
pub(crate) fn sweep(mark: &str) {
    let entry = format!("{MARK}={mark}");
    for _ in 0..SWEEPS {
        let found = marked(&entry);
        for pid in &found {
            // It may have ended meanwhile.
            let _ = kill_process(*pid, Signal::KILL);
        }
        if found.is_empty() {
            return;
        }
    }
}

fn marked(entry: &str) -> Vec<Pid> {
    let has = |environment: &[u8]| {
        environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(process.path().join("environ")).ok()?;
            // One that has ended and was not waited for has none.
            if has(&environment) { Pid::from_raw(pid) } else { None }
        })
        .collect()
}

pub(super) fn to_group(pid: u32, signal: Signal) {
    if let Some(group) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It fails if nobody is left, which is no trouble.
        let _ = kill_process_group(group, signal);
    }
}

/// Asks a rank's program to checkpoint, if it listens to that; otherwise it would be ended by it.
pub(super) fn ask_to_checkpoint(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = Signal::USR1.as_raw() - 1;
    let listens = caught >> bit & 1 == 1;
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        Some(pid) if listens => kill_process(pid, Signal::USR1).is_ok(),
        Some(_) | None => false,
    }
}
