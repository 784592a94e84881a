//! Where a figure was measured.

use std::process::Command;

use serde::Serialize;

/// The machine and the code.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
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
            commit: said(&["git", "rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned()),
            release: env!("CARGO_PKG_VERSION"),
            unix_time_s: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_secs()),
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

fn said(words: &[&str]) -> Option<String> {
    let output = Command::new(words[0]).args(&words[1..]).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
