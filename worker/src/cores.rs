//! The cores this process may use, and running on some of them alone.

mod machine;

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub use self::machine::{Offer, OfferError, list, offer};

/// What the device of a slice of cores begins with; the kernel's numbers of the cores follow.
const PREFIX: &str = "cores:";

/// The device of a slice of these cores: `cores:2,3`.
pub(crate) fn device(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("{PREFIX}{}", cores.join(","))
}

/// The cores a device consists of; none if it is a GPU's.
pub fn cores(device: &str) -> Option<Vec<usize>> {
    let cores = device.strip_prefix(PREFIX)?.split(',').map(str::parse);
    cores.collect::<Result<Vec<usize>, _>>().ok()
}

/// Has the calling thread, and every thread and process it starts from now on, run on `cores` alone.
///
/// From then on [`std::thread::available_parallelism`] tells how many they are.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    let mut mask = CpuSet::new();
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        mask.set(*core);
    }
    Ok(sched_setaffinity(None, &mask)?)
}

/// Calls `start` with the calling thread on `cores` alone, so that what it starts is there, and lets
/// the thread run where it did before.
pub(crate) fn starting_on<T>(
    cores: &[usize],
    start: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    pin(cores)?;
    let started = start();
    sched_setaffinity(None, &before)?;
    started
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread};

    use super::*;

    fn mask() -> Vec<usize> {
        let mask = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| mask.is_set(*core)).collect()
    }

    #[test]
    fn what_is_started_on_a_core_runs_there_alone() {
        thread::spawn(|| {
            let all = mask();
            let last = *all.last().unwrap();
            let started = starting_on(&[last], || {
                Command::new("sh").args(["-c", "grep Cpus_allowed_list /proc/self/status"]).output()
            });
            let text = String::from_utf8(started.unwrap().stdout).unwrap();
            assert_eq!(text.split_whitespace().last(), Some(last.to_string().as_str()), "{text}");
            assert_eq!(mask(), all, "the starter runs where it did");
            pin(&[last]).unwrap();
            assert_eq!(thread::available_parallelism().unwrap().get(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_device_of_cores_reads_as_it_is_written() {
        assert_eq!(cores(&device(&[2, 3])), Some(vec![2, 3]));
        for other in ["MIG-1", "GPU-2", "cores:", "cores:x", "2,3"] {
            assert_eq!(cores(other), None, "{other}");
        }
    }
}
