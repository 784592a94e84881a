//! [`Half`]: half a core for one process, by the kernel's groups of processes.

use std::fs;
use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault};

use crate::tables::io;

/// How often the kernel deals out time, and what it deals out of it, in microseconds. With its usual period, a tenth of a second, a query
/// of two tenths waits for processes that have used theirs up, which half as fast a core never does.
const PERIOD_US: u64 = 10_000;
const QUOTA_US: u64 = 5_000;
/// Where groups are: of both versions at once, or of the first alone.
const UNIFIED: &str = "/sys/fs/cgroup";
const OF_CPU: &str = "/sys/fs/cgroup/cpu";

/// A group of processes that have half a core together. Dropping it removes it; its processes have to be gone by then.
#[derive(Debug)]
pub(super) struct Half(PathBuf);

impl Half {
    /// A group without processes. Fails where the kernel or this user's rights do not allow it.
    pub(super) fn new(name: &str) -> Result<Half, Fault> {
        let is_unified = Path::new(UNIFIED).join("cgroup.controllers").exists();
        let above = Path::new(if is_unified { UNIFIED } else { OF_CPU });
        if !is_unified && !above.join("cpu.cfs_quota_us").exists() {
            return Err(Fault::new(Blame::Unsupported, format!("no groups that share CPU at {UNIFIED}")));
        }
        if is_unified {
            // It may be so already.
            let _ = fs::write(above.join("cgroup.subtree_control"), "+cpu");
        }
        let place = above.join(format!("pithead-bench-{}-{name}", std::process::id()));
        fs::create_dir(&place).map_err(|error| io(&place, &error))?;
        let half = Half(place);
        match is_unified {
            true => half.write("cpu.max", &format!("{QUOTA_US} {PERIOD_US}"))?,
            false => {
                half.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                half.write("cpu.cfs_quota_us", &QUOTA_US.to_string())?;
            }
        }
        Ok(half)
    }

    /// Takes a process with all of its threads.
    pub(super) fn take(&self, process: u32) -> Result<(), Fault> {
        self.write("cgroup.procs", &process.to_string())
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Fault> {
        let path = self.0.join(file);
        fs::write(&path, text).map_err(|error| io(&path, &error))
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use pithead_observe::ProcessUse;

    use super::*;

    #[test]
    fn a_process_gets_half_a_core_and_no_more() {
        let Ok(half) = Half::new("test") else { return eprintln!("this machine has no groups that share CPU") };
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        half.take(child.id()).unwrap();
        let (started, before) = (Instant::now(), ProcessUse::of_process(child.id()).cpu_seconds);
        std::thread::sleep(Duration::from_secs(1));
        let share = (ProcessUse::of_process(child.id()).cpu_seconds - before) / started.elapsed().as_secs_f64();
        child.kill().unwrap();
        child.wait().unwrap();
        // What it gets at all is for others on this machine to say.
        assert!(share < 0.65, "{share}");
    }
}
