//! Which cores this process runs on.

use std::sync::OnceLock;

/// The machine's own name for its present run, and the cores that this process may use, in ascending order. Empty if
/// the system does not report them.
pub fn machine_cores() -> &'static (String, Vec<u32>) {
    static CORES: OnceLock<(String, Vec<u32>)> = OnceLock::new();
    CORES.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        (boot.trim().to_owned(), allowed())
    })
}

fn allowed() -> Vec<u32> {
    // SAFETY: a set of cores is plain bits, of which none set is one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the size given to `set`.
    let status = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if status != 0 {
        return Vec::new();
    }
    // SAFETY: the cores asked for are within the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).map(|core| core as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_core() {
        let (_, cores) = machine_cores();
        assert!(!cores.is_empty() && cores.is_sorted());
    }
}
