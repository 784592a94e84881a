//! How much memory this process may have.

use std::fs;

/// Assumed where the system does not tell.
const UNKNOWN: u64 = 4 << 30;

/// Bytes of memory: the machine's, or less where a control group says so.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limits = groups.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.chain(machine).min().unwrap_or(UNKNOWN)
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_it_has() {
        assert_eq!(total_of_meminfo("MemTotal:       16316412 kB\nMemFree: 1 kB\n"), Some(16_316_412 * 1024));
        assert_eq!(total_of_meminfo("MemFree: 1 kB\n"), None);
        assert!(available() > 0);
    }
}
