//! What a rank may use of the machine it runs on.

use std::{fs, io};

use rustix::{
    process::{Resource, Rlimit, setpriority_process, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub user: Option<User>,
    /// How nice it is to others, 0 to 19.
    pub nice: u32,
    pub cpus: Option<u32>,
    pub memory_mib: Option<u64>,
    pub disk_mib: Option<u64>,
    pub log_mib: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl Limits {
    /// Puts this process, and all it starts from now on, under these limits.
    ///
    /// Where its slice is cores, these say which processors it has, not `cpus`.
    pub(super) fn take(&self, rank: u32, on_cores: bool) -> io::Result<()> {
        setpriority_process(None, i32::try_from(self.nice).unwrap_or(19))?;
        if let Some(memory_mib) = self.memory_mib {
            let bytes = memory_mib.saturating_mul(MIB);
            // Not the address space, of which a GPU's driver maps more than there is memory.
            setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
        }
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        if let Some(cpus) = self.cpus.filter(|_| !on_cores) {
            confine(cpus, rank)?;
        }
        Ok(())
    }
}

/// Lets this process use only so many processors; each rank takes the next ones.
fn confine(cpus: u32, rank: u32) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let there: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let cpus = (cpus as usize).clamp(1, there.len().max(1));
    let mut chosen = CpuSet::new();
    for index in 0..cpus {
        if let Some(cpu) = there.get((rank as usize * cpus + index) % there.len().max(1)) {
            chosen.set(*cpu);
        }
    }
    Ok(sched_setaffinity(None, &chosen)?)
}

pub fn user_named(name: &str) -> io::Result<User> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let found = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [found, _, uid, gid, ..] = fields[..] else { return None };
        let user = User { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (found == name).then_some(user)
    });
    found.ok_or_else(|| io::Error::other(format!("this machine has no user {name}")))
}
