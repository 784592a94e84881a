//! What hogs cost others, as a file of `bench/results`.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::statements::Hog;

/// What one hog did to others.
pub(super) struct Measured {
    /// What small queries took beside it.
    pub(super) beside: Vec<Duration>,
    /// Seconds from its end until drives held nothing of it.
    pub(super) free_s: f64,
}

/// All of them.
pub(super) struct Report {
    alone: Vec<Duration>,
    hogs: Vec<Value>,
}

/// Milliseconds of the quantile, the nearest rank.
fn quantile_ms(took: &[Duration], quantile: f64) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    let found = sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default();
    (found.as_secs_f64() * 1e4).round() / 10.0
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = (quantile_ms(&self.beside, 0.5), quantile_ms(&self.beside, 0.99));
        write!(f, "small queries {p50} ms (p50), {p99} ms (p99); drives free after {:.2} s", self.free_s)
    }
}

impl Report {
    pub(super) fn new(alone: Vec<Duration>) -> Report {
        Report { alone, hogs: vec![] }
    }

    pub(super) fn add(&mut self, hog: &Hog, measured: Measured) {
        self.hogs.push(json!({
            "hog": hog.name,
            "statement": hog.sql,
            "small_p50_ms": quantile_ms(&measured.beside, 0.5),
            "small_p99_ms": quantile_ms(&measured.beside, 0.99),
            "free_after_sigint_s": (measured.free_s * 100.0).round() / 100.0,
        }));
    }

    pub(super) fn write(&self, path: &Path) {
        let report = json!({
            "machine": machine(),
            "queries": self.alone.len(),
            "alone": { "small_p50_ms": quantile_ms(&self.alone, 0.5), "small_p99_ms": quantile_ms(&self.alone, 0.99) },
            "beside": self.hogs,
        });
        let text = serde_json::to_string_pretty(&report).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
}

fn machine() -> Value {
    let first = |file: &str, name: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let commit = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    json!({
        "cpu": first("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": first("/proc/meminfo", "MemTotal"),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "commit": commit.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()).unwrap_or_default(),
    })
}
