//! How much memory this process may have.

use std::fs;
use std::path::Path;

/// Assumed where the system does not tell.
const UNKNOWN: u64 = 4 << 30;

/// Bytes of memory: the machine's, or less where a control group says so that the process is in.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(limit(Path::new("/sys/fs/cgroup"), &groups)).min().unwrap_or(UNKNOWN)
}

/// The least that control groups say, of a process's own up to the root, which is a container's where it has a namespace of its own.
/// `groups` has a line of each hierarchy, as `0::/system.slice/a.service`, or in version 1 `4:memory:/a`.
fn limit(mounted: &Path, groups: &str) -> Option<u64> {
    let hierarchies = groups.lines().chain(["0::/", "0:memory:/"]).filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (folder, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            several if several.split(',').any(|one| one == "memory") => (mounted.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        Some((folder, file, Path::new(group.trim_start_matches('/'))))
    });
    let files = hierarchies.flat_map(|(folder, file, group)| group.ancestors().map(move |group| folder.join(group).join(file)));
    // A group without a limit has a word there.
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
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

    #[test]
    fn the_tightest_group_from_the_own_one_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |group: &str, file: &str, limit: &str| {
            fs::create_dir_all(root.path().join(group)).unwrap();
            fs::write(root.path().join(group).join(file), format!("{limit}\n")).unwrap();
        };
        let limit = |groups: &str| limit(root.path(), groups);
        assert_eq!(limit("0::/a.slice/b.service\n"), None);
        set("a.slice", "memory.max", "4294967296");
        set("a.slice/b.service", "memory.max", "8589934592");
        set("a.slice/c.service", "memory.max", "1073741824");
        set("d.slice", "memory.max", "max");
        assert_eq!(limit("0::/a.slice/b.service\n"), Some(4 << 30));
        assert_eq!(limit("0::/a.slice/c.service/below\n"), Some(1 << 30));
        assert_eq!((limit("0::/d.slice\n"), limit("0::/../x\n"), limit("nonsense")), (None, None, None));
        // Version 1, and both at one time.
        set("memory/e", "memory.limit_in_bytes", "2147483648");
        assert_eq!(limit("5:cpu,cpuacct:/a.slice\n4:memory:/e/f\n0::/d.slice\n"), Some(2 << 30));
        // A container sees its own group as the root.
        set("", "memory.max", "536870912");
        assert_eq!(
            (limit(""), limit("0::/\n"), limit("0::/docker/unseen")),
            (Some(512 << 20), Some(512 << 20), Some(512 << 20))
        );
    }
}
