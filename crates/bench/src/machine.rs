//! Where a figure was measured.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use serde::Serialize;

/// What the program is not built of, from [`SOURCES`].
const NOT_BUILT: [&str; 3] = [":!../e2e", ":!../fuzz", ":!../xtask"];
/// Where this crate's sources were when it was built. Those of the others are beside it.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
/// Stands behind a commit where the program may have been built of something else.
const CHANGES: &str = "+changes";

/// The machine and the code.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    /// That of the program's sources, wherever it runs: see [`commit_of`].
    pub(crate) commit: String,
    pub(crate) release: &'static str,
    /// Seconds since 1970.
    pub(crate) unix_time_s: u64,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let cpu_info = read("/proc/cpuinfo");
        let cpu = field(&cpu_info, "model name").unwrap_or("unknown").to_owned();
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        Self {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (memory_kib.unwrap_or(0.0) / 1_048_576.0 * 10.0).round() / 10.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit_of(Path::new(SOURCES), built()).unwrap_or_else(|| "unknown".to_owned()),
            release: env!("CARGO_PKG_VERSION"),
            unix_time_s: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        }
    }

    /// In one line.
    pub(crate) fn line(&self) -> String {
        format!("{}, {} cores, {} GiB, commit {}", self.cpu, self.cores, self.memory_gib, self.commit)
    }
}

/// Forgets how large this process has been so far. False: the kernel does not do it.
pub(crate) fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The largest memory of this process since [`forget_peak`], in bytes.
pub(crate) fn peak_bytes() -> Option<u64> {
    let kib: u64 = field(&read("/proc/self/status"), "VmHWM")?.split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find(|line| line.starts_with(name))?.split_once(':').map(|(_, value)| value.trim())
}

/// When the program was built.
fn built() -> Option<SystemTime> {
    changed_at(&std::env::current_exe().ok()?)
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// The commit of a crate and of those beside it, with [`CHANGES`] where they have others, or some that are newer than the program.
fn commit_of(sources: &Path, built: Option<SystemTime>) -> Option<String> {
    let git = |words: &[&str]| said(Command::new("git").arg("--no-optional-locks").arg("-C").arg(sources).args(words));
    let of_crates = |words: &[&str]| git(&[words, &["--", "..", "../../Cargo.lock"], &NOT_BUILT].concat());
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
    let is_changed = !of_crates(&["status", "--porcelain"])?.is_empty();
    let files = of_crates(&["ls-files", "-z"])?;
    let is_newer = |file: &str| changed_at(&sources.join(file)).zip(built).is_none_or(|(changed, built)| changed > built);
    if is_changed || files.split_terminator('\0').any(is_newer) {
        commit.push_str(CHANGES);
    }
    Some(commit)
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_commit_is_that_of_the_sources_unless_they_are_others() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("crates/bench");
        for name in ["bench", "e2e"] {
            std::fs::create_dir_all(folder.path().join("crates").join(name)).unwrap();
            std::fs::write(folder.path().join("crates").join(name).join("lib.rs"), "1").unwrap();
        }
        let now = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(commit_of(&sources, Some(now)), None, "there is no repository");
        let git = |words: &str| {
            let named = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            said(Command::new("git").arg("-C").arg(folder.path()).args(named).args(words.split(' '))).unwrap()
        };
        git("init --quiet");
        std::fs::write(folder.path().join("Cargo.lock"), "1").unwrap();
        git("add .");
        git("commit --quiet -m one");
        let commit = git("rev-parse --short=12 HEAD").trim().to_owned();
        let changed = format!("{commit}{CHANGES}");
        assert_eq!(commit_of(&sources, Some(now)).as_ref(), Some(&commit));
        assert_eq!(commit_of(&sources, Some(now - Duration::from_secs(3_600))).as_ref(), Some(&changed), "an older build");
        std::fs::write(folder.path().join("crates/e2e/lib.rs"), "2").unwrap();
        std::fs::write(folder.path().join("results.json"), "2").unwrap();
        assert_eq!(commit_of(&sources, Some(now)).as_ref(), Some(&commit));
        std::fs::write(sources.join("other.rs"), "2").unwrap();
        assert_eq!(commit_of(&sources, Some(now)).as_ref(), Some(&changed));
    }
}
