//! What the machine has: the process's own mask, the control group's limits, and which cores are
//! neighbors.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::thread::{CpuSet, sched_getaffinity};

const SYSTEM: &str = "/sys/devices/system/cpu";
const GROUPS: &str = "/sys/fs/cgroup";
const MIB: u64 = 1 << 20;
/// Memory that slices of cores share; the rest is for the router, jobs and the system.
const SHARE: f64 = 0.75;
/// Memory that is assumed where nothing tells it.
const UNKNOWN_MIB: u64 = 1 << 10;

/// Cores to offer as slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// A device each: at most 8 cores by the kernel's numbers, neighbors side by side.
    pub devices: Vec<Vec<usize>>,
    /// Memory for each core.
    pub memory_mib: u64,
    /// Pairs of threads of one core of which not both are offered.
    pub split: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    #[error(
        "cpu is {asked} in all, but this process may use {there}: {by}; give at most {there}, or \
         cpu = \"auto\""
    )]
    TooMany {
        asked: usize,
        there: usize,
        /// What limits it, and the cores.
        by: String,
    },
    #[error("cannot tell which cores this process may use: {0}")]
    Unreadable(String),
}

/// The cores for `wanted`, an entry for each `[[worker]]` of cores; absent, all but one are for it.
///
/// The first cores are left to others: a router runs best where it is not disturbed.
pub fn offer(wanted: &[Option<u32>]) -> Result<Vec<Offer>, OfferError> {
    let mask =
        sched_getaffinity(None).map_err(|error| OfferError::Unreadable(error.to_string()))?;
    let mask: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| mask.is_set(*core)).collect();
    let mut cores: Vec<Core> = mask.iter().map(|core| Core::read(*core)).collect();
    cores.sort();
    divide(wanted, &cores, quota(&group(), Path::new(GROUPS)), memory_mib())
}

/// A processor, by how near it is to others: package, last-level cache, core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Core {
    package: usize,
    cache: usize,
    core: usize,
    number: usize,
}

impl Core {
    /// What the system says of it; where that is nothing, it has no neighbors.
    fn read(number: usize) -> Self {
        let of = |what: &str| {
            let path = format!("{SYSTEM}/cpu{number}/{what}");
            let text = fs::read_to_string(path).ok()?;
            let first = text.trim().split(['-', ',']).next()?.to_owned();
            first.parse().ok()
        };
        Self {
            package: of("topology/physical_package_id").unwrap_or(0),
            cache: of("cache/index3/shared_cpu_list").unwrap_or(0),
            core: of("topology/core_id").unwrap_or(number),
            number,
        }
    }
}

fn divide(
    wanted: &[Option<u32>],
    cores: &[Core],
    quota: Option<usize>,
    memory_mib: u64,
) -> Result<Vec<Offer>, OfferError> {
    let there = quota.map_or(cores.len(), |quota| quota.clamp(1, cores.len().max(1)));
    let given: usize = wanted.iter().flatten().map(|count| *count as usize).sum();
    let autos = wanted.iter().filter(|count| count.is_none()).count();
    // One is the router's, where there is another.
    let rest = there.saturating_sub(given);
    let each = (rest.saturating_sub(1) / autos.max(1)).max(1);
    let asked = given + autos * each;
    if asked > there {
        let numbers = ranges(cores);
        let by = match quota {
            Some(quota) if quota < cores.len() => {
                format!("its control group's cpu.max is {quota} of cores {numbers}")
            }
            Some(_) | None => format!("its affinity mask has cores {numbers}"),
        };
        return Err(OfferError::TooMany { asked, there, by });
    }
    let mut left = &cores[cores.len().saturating_sub(asked)..];
    let mut offers = Vec::new();
    for count in wanted {
        let count = count.map_or(each, |count| count as usize);
        let (mine, others) = left.split_at(count.min(left.len()));
        left = others;
        let devices = mine.chunks(usize::from(mig::MOST_CORES));
        offers.push(Offer {
            devices: devices.map(|some| some.iter().map(|core| core.number).collect()).collect(),
            memory_mib: memory_mib / asked.max(1) as u64,
            split: split(mine, cores),
        });
    }
    Ok(offers)
}

/// Threads of one core of which `mine` has one and not the other.
fn split(mine: &[Core], all: &[Core]) -> Vec<(usize, usize)> {
    let same =
        |a: &Core, b: &Core| (a.package, a.core) == (b.package, b.core) && a.number != b.number;
    let of = |core: &Core| {
        let other = all.iter().find(|other| same(core, other) && !mine.contains(other))?;
        Some((core.number, other.number))
    };
    mine.iter().filter_map(of).collect()
}

/// Numbers as the kernel writes them: `0-3,6`.
fn ranges(cores: &[Core]) -> String {
    let mut numbers: Vec<usize> = cores.iter().map(|core| core.number).collect();
    numbers.sort_unstable();
    list(&numbers)
}

/// Rising numbers as the kernel writes them: `0-3,6`.
pub fn list(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [] => String::new(),
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// This process's control group, as a path below the root of all.
fn group() -> PathBuf {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
    PathBuf::from(path.unwrap_or_default())
}

/// The whole cores that the group and those above it may use, if any is limited.
fn quota(group: &Path, root: &Path) -> Option<usize> {
    let of = |folder: &Path| {
        let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
        let (most, period) = text.trim().split_once(' ')?;
        let (most, period): (f64, f64) = (most.parse().ok()?, period.parse().ok()?);
        Some((most / period) as usize)
    };
    least(group, root, of)
}

/// The least that `of` says of the group and of all above it.
fn least<T: Ord>(group: &Path, root: &Path, of: impl Fn(&Path) -> Option<T>) -> Option<T> {
    let folders = group.ancestors().map(|folder| root.join(folder));
    folders.filter_map(|folder| of(&folder)).min()
}

/// Memory for slices of cores: a share of the machine's, or of what the control group may use. It is
/// the same at every start, however much is free then.
fn memory_mib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let machine = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let of = |folder: &Path| {
        let text = fs::read_to_string(folder.join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let limit = least(&group(), Path::new(GROUPS), of).map(|bytes| bytes / MIB);
    let machine = machine.map(|kib| kib / 1024);
    let least = machine.into_iter().chain(limit).min();
    least.map_or(UNKNOWN_MIB, |mib| (mib as f64 * SHARE) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cores of one thread each, but where two have the same number of a core.
    fn cores(of: &[usize]) -> Vec<Core> {
        let one =
            |(number, core): (usize, &usize)| Core { package: 0, cache: 0, core: *core, number };
        let mut cores: Vec<Core> = of.iter().enumerate().map(one).collect();
        cores.sort();
        cores
    }

    fn plain(count: usize) -> Vec<Core> {
        cores(&(0..count).collect::<Vec<_>>())
    }

    fn devices(wanted: &[Option<u32>], cores: &[Core]) -> Vec<Vec<Vec<usize>>> {
        let offers = divide(wanted, cores, None, 8_000).unwrap();
        offers.into_iter().map(|offer| offer.devices).collect()
    }

    #[test]
    fn the_first_core_is_left_to_the_router() {
        assert_eq!(devices(&[None], &plain(4)), [[[1, 2, 3]]]);
        assert_eq!(devices(&[None], &plain(1)), [[[0]]], "at least one");
        assert_eq!(devices(&[Some(2)], &plain(4)), [[[2, 3]]]);
    }

    #[test]
    fn more_than_eight_cores_are_several_devices() {
        let found = devices(&[Some(12)], &plain(16));
        let sizes: Vec<usize> = found[0].iter().map(Vec::len).collect();
        assert_eq!(sizes, [8, 4]);
    }

    #[test]
    fn no_core_is_offered_twice() {
        assert_eq!(devices(&[Some(1), Some(2)], &plain(4)), [[vec![1]], [vec![2, 3]]]);
    }

    #[test]
    fn more_cores_than_there_are_are_refused_by_name() {
        let refusal = |wanted: &[Option<u32>], quota| {
            divide(wanted, &plain(4), quota, 8_000).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(&[Some(3), Some(2)], None),
            "cpu is 5 in all, but this process may use 4: its affinity mask has cores 0-3; give at \
             most 4, or cpu = \"auto\""
        );
        let limited = refusal(&[Some(3)], Some(2));
        assert!(limited.contains("cpu.max is 2 of cores 0-3"), "{limited}");
    }

    #[test]
    fn threads_of_one_core_are_neighbors_and_a_split_pair_is_told() {
        // 0 and 2 are of one core, 1 and 3 of another.
        let cores = cores(&[0, 1, 0, 1]);
        assert_eq!(devices(&[Some(2)], &cores), [[[1, 3]]]);
        let offers = divide(&[Some(3)], &cores, None, 8_000).unwrap();
        assert_eq!(offers[0].split, [(2, 0)]);
    }

    #[test]
    fn a_quota_of_a_group_above_counts() {
        let root = std::env::temp_dir().join(format!("sluice-groups-{}", std::process::id()));
        let group = Path::new("a/b");
        fs::create_dir_all(root.join(group)).unwrap();
        fs::write(root.join("a/cpu.max"), "250000 100000\n").unwrap();
        fs::write(root.join("a/b/cpu.max"), "max 100000\n").unwrap();
        assert_eq!(quota(group, &root), Some(2));
        assert_eq!(quota(Path::new(""), &root), None);
    }

    #[test]
    fn numbers_are_listed_as_the_kernel_does() {
        assert_eq!(list(&[0, 1, 2, 3, 6, 8, 9]), "0-3,6,8-9");
    }
}
