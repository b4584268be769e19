//! Memory in use, as the system tells it.

use std::path::Path;

/// Memory that the process at `path` of `/proc` has in use, or `None` where the system does not say.
pub(crate) fn resident_bytes(path: &Path) -> Option<u64> {
    let status = std::fs::read_to_string(path.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory() {
        let used = resident_bytes(Path::new("/proc/self"));
        assert!(used.is_some_and(|bytes| bytes > 0) || cfg!(not(target_os = "linux")), "{used:?}");
    }
}
