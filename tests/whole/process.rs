//! Processes, as the kernel sees them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Whether `pid` runs. One that has ended and waits to be reaped does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn is_paused(pid: u32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children"));
    let lists: Vec<String> = threads.flatten().flat_map(of_thread).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).flat_map(str::parse).collect()
}

/// The process that started `pid`, or has it now.
#[track_caller]
pub(crate) fn parent(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

pub(crate) fn words(pid: u32) -> Vec<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split_terminator('\0').map(str::to_owned).collect()
}

/// The most memory `pid` has had at one time.
#[track_caller]
pub(crate) fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    kib / 1024
}

#[track_caller]
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(id(pid), signal).unwrap();
}

/// Kills `pid` and its group, if they are still there.
pub(crate) fn end(pid: u32) {
    let _ = kill_process_group(id(pid), Signal::KILL);
    let _ = kill_process(id(pid), Signal::KILL);
}

fn id(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}
