//! The MIG table, with the numbers only a driver knows.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::LazyLock,
};

use serde::Deserialize;

#[derive(Deserialize)]
struct Table {
    nvml_gi_profile_enum: BTreeMap<String, u32>,
    gpus: BTreeMap<String, Kind>,
}

#[derive(Deserialize)]
pub(crate) struct Kind {
    pci_device_ids: Vec<String>,
    pub(crate) compute_slices: u32,
    pub(crate) profiles: Vec<Profile>,
}

#[derive(Deserialize)]
pub(crate) struct Profile {
    pub(crate) name: String,
    #[serde(rename = "gi_profile_id")]
    pub(crate) id: u32,
    nvml_gi_profile: String,
    pub(crate) compute_slices: u32,
    pub(crate) memory_slices: u32,
    pub(crate) placement_starts: Vec<u32>,
    pub(crate) max_instances: u32,
    memory_gib: f64,
    pub(crate) sm: u32,
    pub(crate) copy_engines: u32,
    pub(crate) nvdec: u32,
    pub(crate) nvjpeg: u32,
    pub(crate) ofa: u32,
    #[serde(rename = "media_extensions")]
    pub(crate) media: bool,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../mig/data/profiles.json"))
        .expect("package mig reads the same file in its tests")
});

pub(crate) fn kind(name: &str) -> Option<&'static Kind> {
    TABLE.gpus.get(name)
}

impl Kind {
    pub(crate) fn by_id(&self, id: u32) -> Option<&Profile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The profile whose `NVML_GPU_INSTANCE_PROFILE_` constant is `number`.
    pub(crate) fn by_number(&self, number: u32) -> Option<&Profile> {
        let is = |profile: &&Profile| {
            TABLE.nvml_gi_profile_enum.get(&profile.nvml_gi_profile) == Some(&number)
        };
        self.profiles.iter().find(is)
    }

    pub(crate) fn pci_id(&self) -> u32 {
        let digits = self.pci_device_ids.first().and_then(|id| id.strip_prefix("0x"));
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.profiles.iter().map(Profile::memory_mib).max().unwrap_or(0) << 20
    }
}

impl Profile {
    pub(crate) fn memory_mib(&self) -> u64 {
        (self.memory_gib * 1024.0) as u64
    }
}

/// A UUID that follows from `seed`.
pub(crate) fn uuid(seed: &str) -> String {
    let half = |salt: u8| {
        // Its keys are fixed, so the same seed gives the same UUID in every process of one build.
        let mut hasher = DefaultHasher::new();
        (salt, seed).hash(&mut hasher);
        hasher.finish()
    };
    let digits = format!("{:016x}{:016x}", half(0), half(1));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}
