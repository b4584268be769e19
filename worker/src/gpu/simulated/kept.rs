//! What outlives the process: how a simulated GPU is cut, and the names of its slices.

use std::{fs, io, path::PathBuf};

use mig::{Geometry, Kind, Position};
use serde_json::{Value, json};
use simgpu::random::Random;

use super::{Known, Setup};
use crate::gpu::GpuError;

#[derive(Debug)]
pub(super) struct Kept {
    path: PathBuf,
    kind: &'static Kind,
    /// Names the UUIDs.
    seed: u64,
    uuid: String,
    /// By start.
    slices: Vec<(Position, u32, String)>,
    /// Instances made so far, so that no two slices ever have one UUID.
    made: u32,
}

impl Kept {
    /// What the file has, or nothing yet if there is none or it is of another kind of GPU.
    pub(super) fn open(setup: &Setup) -> Result<Self, GpuError> {
        let seed = setup.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut kept = Self {
            path: setup.path.clone(),
            kind: setup.kind,
            seed,
            uuid: format!("GPU-{}", uuid(seed)),
            slices: Vec::new(),
            made: 0,
        };
        match fs::read_to_string(&kept.path) {
            Ok(text) => kept.read(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => kept.write()?,
            Err(error) => return Err(kept.failed(&error.to_string())),
        }
        Ok(kept)
    }

    pub(super) fn uuid(&self) -> &str {
        &self.uuid
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = Known<'_>> {
        self.slices.iter().map(|(position, instance, uuid)| (*position, *instance, uuid.as_str()))
    }

    pub(super) fn geometry(&self) -> Geometry {
        let positions = self.slices.iter().map(|(position, ..)| *position).collect();
        Geometry::new(self.kind, positions).expect("what is read is checked, what is made is legal")
    }

    /// Forgets and names slices, and writes that down.
    pub(super) fn change(
        &mut self,
        destroyed: &[Position],
        created: &[Position],
    ) -> Result<(), GpuError> {
        self.slices.retain(|(position, ..)| !destroyed.contains(position));
        for position in created {
            self.made += 1;
            let name = format!("MIG-{}", uuid(self.seed.wrapping_add(u64::from(self.made))));
            self.slices.push((*position, self.made, name));
        }
        self.slices.sort_by_key(|(position, ..)| position.start());
        self.write()
    }

    fn read(&mut self, text: &str) -> Result<(), GpuError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| self.failed(&error.to_string()))?;
        if value["kind"] != self.kind.name.as_str() {
            return self.write();
        }
        let bad = || self.failed("it is not a simulated GPU's");
        let made = value["made"].as_u64().and_then(|made| u32::try_from(made).ok());
        let made = made.ok_or_else(bad)?;
        let mut slices = Vec::new();
        for slice in value["slices"].as_array().ok_or_else(bad)? {
            let text = slice["position"].as_str().ok_or_else(bad)?;
            let position =
                self.kind.position(text).map_err(|error| self.failed(&error.to_string()))?;
            let instance = slice["instance"].as_u64().and_then(|id| u32::try_from(id).ok());
            let uuid = slice["uuid"].as_str().ok_or_else(bad)?;
            slices.push((position, instance.ok_or_else(bad)?, uuid.to_owned()));
        }
        let positions = slices.iter().map(|(position, ..)| *position).collect();
        Geometry::new(self.kind, positions).map_err(|error| self.failed(&error.to_string()))?;
        slices.sort_by_key(|(position, ..)| position.start());
        (self.slices, self.made) = (slices, made);
        Ok(())
    }

    /// Beside it first and then in its place, so that it is whole at any moment.
    fn write(&self) -> Result<(), GpuError> {
        let slices: Vec<Value> = self
            .slices
            .iter()
            .map(|(position, instance, uuid)| {
                json!({"position": position.to_string(), "instance": instance, "uuid": uuid})
            })
            .collect();
        let text = json!({"kind": self.kind.name, "made": self.made, "slices": slices});
        let beside = self.path.with_extension("new");
        fs::write(&beside, text.to_string())
            .and_then(|()| fs::rename(&beside, &self.path))
            .map_err(|error| self.failed(&error.to_string()))
    }

    fn failed(&self, reason: &str) -> GpuError {
        GpuError::Simulated { reason: format!("{}: {reason}", self.path.display()) }
    }
}

fn uuid(seed: u64) -> String {
    let mut random = Random::new(seed);
    let (high, low) = (random.bits(), random.bits());
    let text = format!("{high:016x}{low:016x}");
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    parts.join("-")
}
