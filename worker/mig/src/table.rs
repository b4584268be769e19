//! The embedded tables.

use std::{
    collections::BTreeMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use serde::Deserialize;

use crate::{MigError, Position};

#[derive(Debug)]
pub struct Kind {
    /// Its name in configurations, `A100-80GB`.
    pub name: String,
    pub compute_slices: u8,
    /// Memory slices to share out; positions count these.
    pub memory_slices: u8,
    pub sm: u16,
    /// Whether the starts of its profiles were seen on hardware; they are inferred otherwise.
    pub verified: bool,
    /// The PCI device and vendor, as NVML joins them, of each board that carries it.
    pub pci_ids: Vec<u32>,
    pub profiles: Vec<Profile>,
}

#[derive(Debug, PartialEq, Deserialize)]
pub struct Profile {
    /// Its name, `3g.40gb`.
    pub name: String,
    pub compute_slices: u8,
    pub memory_slices: u8,
    /// The memory slices it can start at.
    #[serde(rename = "placement_starts")]
    pub starts: Vec<u8>,
    /// The most of it one GPU can have.
    pub max_instances: u8,
    /// Memory it really has, in GiB, which is less than its name says.
    pub memory_gib: f64,
    pub sm: u16,
    /// Whether it takes the media engines, of which there is one set.
    #[serde(rename = "media_extensions")]
    pub media: bool,
}

#[derive(Deserialize)]
struct Table {
    gpus: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    compute_slices: u8,
    memory_slices: u8,
    total_sm_mig: u16,
    placement_verified: bool,
    pci_device_ids: Vec<String>,
    profiles: Vec<Profile>,
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let table: Table = serde_json::from_str(include_str!("../data/profiles.json"))
        .expect("the embedded table is read by this package's tests");
    let kinds = table.gpus.into_iter().map(|(name, entry)| Kind {
        name,
        compute_slices: entry.compute_slices,
        memory_slices: entry.memory_slices,
        sm: entry.total_sm_mig,
        verified: entry.placement_verified,
        pci_ids: entry.pci_device_ids.iter().map(|id| pci_id(id)).collect(),
        profiles: entry.profiles,
    });
    kinds.collect()
});

pub fn kinds() -> &'static [Kind] {
    &KINDS
}

pub fn kind(name: &str) -> Result<&'static Kind, MigError> {
    kinds().iter().find(|kind| kind.name == name).ok_or_else(|| {
        let known: Vec<_> = kinds().iter().map(|kind| kind.name.as_str()).collect();
        MigError::UnknownKind { name: name.to_owned(), known: known.join(", ") }
    })
}

/// The GPU that carries this PCI device and vendor, if the table has it.
pub fn kind_on_pci(id: u32) -> Option<&'static Kind> {
    kinds().iter().find(|kind| kind.pci_ids.contains(&id))
}

const UNDIVIDED_PREFIX: &str = "undivided-";

static UNDIVIDED: LazyLock<Mutex<BTreeMap<u64, &'static Kind>>> = LazyLock::new(Mutex::default);

/// A GPU that is not in the table, or that cannot be divided: one slice, of all its memory.
///
/// There is one for each size of memory, kept until the process ends.
pub fn undivided(memory_mib: u64) -> &'static Kind {
    let mut known = UNDIVIDED.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(memory_mib).or_insert_with(|| {
        let profile = Profile {
            name: "whole".to_owned(),
            compute_slices: 1,
            memory_slices: 1,
            starts: vec![0],
            max_instances: 1,
            memory_gib: memory_mib as f64 / 1024.0,
            sm: 0,
            media: false,
        };
        Box::leak(Box::new(Kind {
            name: format!("{UNDIVIDED_PREFIX}{memory_mib}MiB"),
            compute_slices: 1,
            memory_slices: 1,
            sm: 0,
            verified: false,
            pci_ids: Vec::new(),
            profiles: vec![profile],
        }))
    })
}

/// The most cores of one device. More would have more positions than a plan's masks have bits, and
/// far more geometries.
pub const MOST_CORES: u8 = 8;
/// What the kind of a device of cores begins with, and what its profiles do.
const CORES_KIND: &str = "cpu-";
const CORES_PROFILE: &str = "cpu:";

static CORES: LazyLock<Mutex<BTreeMap<(u8, u64), &'static Kind>>> = LazyLock::new(Mutex::default);

/// Cores of a machine, 1 to [`MOST_CORES`], that share so much memory.
///
/// They are divided into halves and halves again, so that a slice has neighbors of one cache where
/// the cores are in that order. Its name reads back with [`device`]. There is one for each size, kept
/// until the process ends.
pub fn cores(count: u8, memory_mib: u64) -> &'static Kind {
    let count = count.clamp(1, MOST_CORES);
    let mut known = CORES.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((count, memory_mib)).or_insert_with(|| {
        let mut sizes: Vec<u8> = [1, 2, 4, 8].into_iter().filter(|size| *size <= count).collect();
        if !sizes.contains(&count) {
            sizes.push(count);
        }
        let profile = |size: u8| Profile {
            name: format!("{CORES_PROFILE}{size}"),
            compute_slices: size,
            memory_slices: size,
            starts: (0..=count - size).step_by(usize::from(size)).collect(),
            max_instances: count / size,
            memory_gib: memory_mib as f64 / 1024.0 * f64::from(size) / f64::from(count),
            sm: 0,
            media: false,
        };
        Box::leak(Box::new(Kind {
            name: format!("{CORES_KIND}{count}-{memory_mib}MiB"),
            compute_slices: count,
            memory_slices: count,
            sm: 0,
            verified: true,
            pci_ids: Vec::new(),
            profiles: sizes.into_iter().map(profile).collect(),
        }))
    })
}

/// The kind a worker calls so: a GPU of the table, an [`undivided`] one, or [`cores`].
pub fn device(name: &str) -> Result<&'static Kind, MigError> {
    let whole = name.strip_prefix(UNDIVIDED_PREFIX).and_then(|rest| rest.strip_suffix("MiB"));
    if let Some(memory_mib) = whole.and_then(|mib| mib.parse().ok()) {
        return Ok(undivided(memory_mib));
    }
    let given = name.strip_prefix(CORES_KIND).and_then(|rest| rest.strip_suffix("MiB"));
    let parts = given.and_then(|rest| rest.split_once('-'));
    let parts = parts.and_then(|(count, mib)| Some((count.parse().ok()?, mib.parse().ok()?)));
    match parts {
        Some((count, memory_mib)) if (1..=MOST_CORES).contains(&count) => {
            Ok(cores(count, memory_mib))
        }
        Some(_) | None => kind(name),
    }
}

/// The cores of a slice by its profile's name, the 2 of `cpu:2`; none if it is a GPU's.
pub fn cores_of(profile: &str) -> Option<u8> {
    profile.strip_prefix(CORES_PROFILE)?.parse().ok()
}

fn pci_id(text: &str) -> u32 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).expect("the embedded table is read by this package's tests")
}

impl Kind {
    pub fn profile(&'static self, name: &str) -> Result<&'static Profile, MigError> {
        self.profiles.iter().find(|profile| profile.name == name).ok_or_else(|| {
            let known: Vec<_> = self.profiles.iter().map(|known| known.name.as_str()).collect();
            MigError::UnknownProfile {
                kind: &self.name,
                profile: name.to_owned(),
                known: known.join(", "),
            }
        })
    }

    /// Reads a position written as `3g.40gb@4`.
    pub fn position(&'static self, text: &str) -> Result<Position, MigError> {
        let not_a_position = || MigError::NotAPosition { text: text.to_owned() };
        let (profile, start) = text.split_once('@').ok_or_else(not_a_position)?;
        let digits = !start.is_empty() && start.bytes().all(|byte| byte.is_ascii_digit());
        let start = start.parse().ok().filter(|_| digits).ok_or_else(not_a_position)?;
        Position::new(self.profile(profile)?, start)
    }

    /// Whether it is of [`cores`], not a GPU.
    pub fn is_cores(&self) -> bool {
        self.name.starts_with(CORES_KIND)
    }

    pub fn positions(&'static self) -> Vec<Position> {
        let mut positions: Vec<_> = self.profiles.iter().flat_map(Profile::positions).collect();
        positions.sort_by_key(|position| position.start());
        positions
    }

    pub fn whole(&'static self) -> Position {
        self.profiles
            .iter()
            .find(|profile| profile.memory_slices == self.memory_slices)
            .and_then(|profile| profile.positions().next())
            .expect("every GPU in the embedded table has a profile for all of it")
    }
}

impl Profile {
    pub fn positions(&'static self) -> impl Iterator<Item = Position> {
        self.starts.iter().filter_map(move |start| Position::new(self, *start).ok())
    }

    /// Whether it has more memory than its compute is due: `1g.20gb` on an 80 GB GPU.
    pub fn double_memory(&self) -> bool {
        self.compute_slices == 1 && self.memory_slices > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_cannot_be_divided_is_one_slice_of_all_its_memory() {
        let kind = undivided(24_576);
        assert_eq!(kind.whole().to_string(), "whole@0");
        assert!((kind.whole().profile().memory_gib - 24.0).abs() < 1e-9);
        assert!(std::ptr::eq(kind, undivided(24_576)), "made once for a size");
        assert!(std::ptr::eq(kind, device("undivided-24576MiB").unwrap()), "found by name");
        assert!(device("undivided-MiB").is_err());
    }

    #[test]
    fn cores_are_halved_and_halved_again() {
        let of = |count| {
            let kind = cores(count, 8_192);
            let positions = kind.positions().iter().map(ToString::to_string).collect::<Vec<_>>();
            (kind.whole().to_string(), positions.join(" "))
        };
        let (whole, four) = of(4);
        assert_eq!(whole, "cpu:4@0");
        assert_eq!(four, "cpu:1@0 cpu:2@0 cpu:4@0 cpu:1@1 cpu:1@2 cpu:2@2 cpu:1@3");
        let (whole, three) = of(3);
        assert_eq!(
            (whole.as_str(), three.as_str()),
            ("cpu:3@0", "cpu:1@0 cpu:2@0 cpu:3@0 cpu:1@1 cpu:1@2")
        );
        assert_eq!(cores(8, 8_192).positions().len(), 15);
        let half = cores(4, 8_192).profile("cpu:2").unwrap();
        assert!((half.memory_gib - 4.0).abs() < 1e-9, "half of the cores, half of the memory");
    }

    #[test]
    fn the_name_of_cores_reads_back_and_no_other_does() {
        for count in 1..=MOST_CORES {
            let kind = cores(count, 3_000);
            assert!(std::ptr::eq(device(&kind.name).unwrap(), kind), "{}", kind.name);
            assert!(kind.is_cores());
        }
        assert_eq!(device("A30-24GB").unwrap().name, "A30-24GB");
        for name in ["cpu-9-3000MiB", "cpu-0-3000MiB", "cpu-2", "cpu-2-MiB", "cpu-x-1MiB"] {
            assert!(device(name).is_err(), "{name}");
        }
        assert!(kind("cpu-2-3000MiB").is_err(), "no GPU of the table");
    }

    #[test]
    fn the_table_has_seven_gpus_with_a_whole_slice_each() {
        let whole: Vec<_> =
            kinds().iter().map(|kind| format!("{} {}", kind.name, kind.whole())).collect();
        assert_eq!(
            whole,
            [
                "A100-40GB 7g.40gb@0",
                "A100-80GB 7g.80gb@0",
                "A30-24GB 4g.24gb@0",
                "B200-180GB 7g.180gb@0",
                "H100-80GB 7g.80gb@0",
                "H100-NVL-94GB 7g.94gb@0",
                "H200-141GB 7g.141gb@0",
            ]
        );
    }

    #[test]
    fn a_board_names_one_gpu() {
        assert_eq!(kind_on_pci(0x20b2_10de).unwrap().name, "A100-80GB");
        assert_eq!(kind_on_pci(0x2331_10de).unwrap().name, "H100-80GB");
        assert!(kind_on_pci(0x1234_10de).is_none());
        for kind in kinds() {
            assert!(!kind.pci_ids.is_empty(), "{} is on no board", kind.name);
            for id in &kind.pci_ids {
                assert_eq!(kind_on_pci(*id).unwrap().name, kind.name, "{id:#x} is on two");
            }
        }
    }

    #[test]
    fn every_start_keeps_the_slice_on_the_gpu() {
        for kind in kinds() {
            for position in kind.positions() {
                assert!(position.end() <= kind.memory_slices, "{} {position}", kind.name);
            }
        }
    }

    #[test]
    fn a_position_reads_as_it_prints() {
        for kind in kinds() {
            for position in kind.positions() {
                assert_eq!(kind.position(&position.to_string()), Ok(position));
            }
        }
    }

    #[test]
    fn what_is_not_a_position_is_refused_with_what_would_be() {
        let a100 = kind("A100-80GB").unwrap();
        let refusal = |text| a100.position(text).unwrap_err().to_string();
        assert_eq!(refusal("3g.40gb@2"), "3g.40gb cannot start at 2; it starts at [0, 4]");
        for text in ["3g.40gb", "3g.40gb@", "3g.40gb@x", "3g.40gb@+4", "3g.40gb@999"] {
            assert!(refusal(text).contains("write PROFILE@START"), "{text}");
        }
        assert_eq!(
            refusal("3g.20gb@4"),
            "A100-80GB has no profile \"3g.20gb\"; it has 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, \
             3g.40gb, 4g.40gb, 7g.80gb"
        );
    }

    #[test]
    fn an_unknown_gpu_is_refused_with_the_known_ones() {
        let refusal = kind("A100").unwrap_err().to_string();
        assert!(refusal.starts_with("no GPU kind named \"A100\"; known are A100-40GB, "));
    }
}
