//! A core for the host and one for the drives: where they share one, handing work back gains nothing.

use std::os::unix::process::CommandExt;
use std::process::Command;

use pithead_model::{Blame, Fault};
use serde::Serialize;

/// Who runs where.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cores {
    pub(super) host: usize,
    pub(super) drive: usize,
}

impl Cores {
    /// Those of this process, which was pinned to one.
    pub(super) fn pinned(drive: usize) -> Result<Cores, Fault> {
        match allowed().as_slice() {
            [host] if *host != drive => Ok(Cores { host: *host, drive }),
            cores => {
                let what = format!("expected to run on one core other than the drives' core {drive}, and may use {cores:?}");
                Err(Fault::new(Blame::User, what).hint("leave out --drive-core: the benchmark pins itself"))
            }
        }
    }

    /// How many the machine has, whoever may use them.
    pub(super) fn of_machine() -> usize {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        cores_of(&online).len().max(1)
    }

    /// Starts this command anew in place of this process, pinned. Threads that run already could not be moved. Returns only if that
    /// cannot be done.
    pub(super) fn pin_and_run_again() -> Fault {
        let cores = allowed();
        let [host, drive, ..] = cores.as_slice() else {
            let what = format!("host and drives need a core each, and this process may use {cores:?}");
            return Fault::new(Blame::User, what).hint("run only the simulation: pithead bench adaptive --only simulated");
        };
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return Fault::new(Blame::Device, format!("where this program is cannot be told: {error}")),
        };
        let error = Command::new("taskset")
            .args(["-c", &host.to_string()])
            .arg(program)
            .args(std::env::args_os().skip(1))
            .args(["--drive-core", &drive.to_string()])
            .exec();
        Fault::new(Blame::Device, format!("taskset cannot be run: {error}")).hint("install util-linux")
    }
}

/// The cores that this process may use, ascending.
fn allowed() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(cores_of).unwrap_or_default()
}

/// The numbers in `0,2-3`.
fn cores_of(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_from_the_kernels_list() {
        assert_eq!(cores_of("\t0,2-4,7\n"), [0, 2, 3, 4, 7]);
        assert_eq!(cores_of("none"), [0usize; 0]);
        assert!(!allowed().is_empty());
    }
}
