//! What the library believes, as a file.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::table;

const BLOCK: usize = 4096;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub driver: String,
    pub privileged: bool,
    pub devices: Vec<Device>,
    /// What has happened and no event set has been told of.
    pub events: Vec<Event>,
    pub faults: Vec<Fault>,
    /// Instances made so far; an instance's handle is the count when it was made.
    pub made: u64,
    /// How often someone tried to destroy an instance that a process was using.
    pub attacks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its name in the MIG table; a GPU without MIG may have any.
    pub kind: String,
    pub name: String,
    pub uuid: String,
    pub mig: Mig,
    pub instances: Vec<Instance>,
    /// Processes on the whole of it, while it is not cut.
    pub pids: Vec<u32>,
    /// Its power; nothing is "not supported", here and below.
    pub power_mw: Option<u32>,
    /// The clock of its multiprocessors.
    pub clock_mhz: Option<u32>,
    pub temperature_c: Option<u32>,
    /// Corrected and uncorrected errors of memory since the driver was loaded.
    pub ecc: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mig {
    Unsupported,
    Off,
    /// It is not now, and will be after a reset.
    Pending,
    On,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Its id, unique on its GPU while it lives.
    pub id: u32,
    pub profile: u32,
    /// Its first memory slice.
    pub start: u32,
    pub serial: u64,
    pub compute: Vec<Compute>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Its id, unique in its GPU instance while it lives.
    pub id: u32,
    pub profile: u32,
    pub serial: u64,
    pub slot: u32,
    pub uuid: String,
    pub pids: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub device: usize,
    pub xid: u64,
    /// The GPU instance it struck, if one alone.
    pub gpu_instance: Option<u32>,
}

/// Calls that are to fail, or to come at a bad moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The function, or any.
    pub call: Option<String>,
    /// How many calls of it are let pass first.
    pub pass: u64,
    pub times: u64,
    /// What they return; 0 leaves them alone.
    pub code: u32,
    /// Whether they do their work all the same.
    pub works: bool,
    /// What someone else makes of the first GPU just before the first of them.
    pub becomes: Option<Device>,
}

impl State {
    /// GPUs of these kinds of the MIG table, uncut.
    pub fn new(kinds: &[(&str, Mig)]) -> Self {
        let devices = kinds.iter().enumerate().map(|(index, (kind, mig))| Device {
            kind: (*kind).to_owned(),
            name: format!("NVIDIA {kind}"),
            uuid: format!("GPU-{}", table::uuid(&format!("{kind} {index}"))),
            mig: *mig,
            instances: Vec::new(),
            pids: Vec::new(),
            power_mw: Some(61_500),
            clock_mhz: Some(1_410),
            temperature_c: Some(34),
            ecc: Some((3, 0)),
        });
        Self {
            driver: "580.95.05".to_owned(),
            privileged: true,
            devices: devices.collect(),
            events: Vec::new(),
            faults: Vec::new(),
            made: 0,
            attacks: 0,
        }
    }

    pub fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        flock(&file, FlockOperation::LockShared)?;
        parse(&mut file)
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = open(path)?;
        replace(&mut file, self)
    }

    /// Changes the file of a library in use, as one step.
    pub fn change<T>(path: &Path, how: impl FnOnce(&mut Self) -> T) -> io::Result<T> {
        let mut file = open(path)?;
        let before = parse(&mut file)?;
        let mut state = before.clone();
        let answer = how(&mut state);
        if state != before {
            replace(&mut file, &state)?;
        }
        Ok(answer)
    }
}

impl Device {
    /// Where an instance of it is, as `3g.40gb@4`.
    pub fn position(&self, instance: &Instance) -> Option<String> {
        let profile = table::kind(&self.kind)?.by_id(instance.profile)?;
        Some(format!("{}@{}", profile.name, instance.start))
    }
}

impl Fault {
    /// One call, after `pass` others, that fails with `code` and does nothing.
    pub fn nth(pass: u64, code: u32) -> Self {
        Self { call: None, pass, times: 1, code, works: false, becomes: None }
    }

    pub fn every(call: &str, code: u32) -> Self {
        Self { call: Some(call.to_owned()), times: u64::MAX, ..Self::nth(0, code) }
    }
}

/// Opens and locks; the lock goes with the file.
fn open(path: &Path) -> io::Result<File> {
    let file =
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

fn parse(file: &mut File) -> io::Result<State> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

fn replace(file: &mut File, state: &State) -> io::Result<()> {
    let mut text = serde_json::to_vec(state)?;
    // Blanks to a whole block: a file whose length changes has the disk waited for, which takes
    // longer than all the rest.
    text.resize(text.len().next_multiple_of(BLOCK), b' ');
    file.rewind()?;
    file.write_all(&text)?;
    if file.metadata()?.len() > text.len() as u64 {
        file.set_len(text.len() as u64)?;
    }
    Ok(())
}
