//! RocksDB beside us, through Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pithead_model::{Blame, Fault};
use serde::{Deserialize, Serialize};

const SCRIPT: &str = include_str!("../beside_rocksdb.py");
/// What to say where it is not there.
pub(super) const HOW_TO_INSTALL: &str = ".tools/bin/python -m pip install rocksdict==0.3.29";

/// Durable puts by so many writers.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Workload {
    pub(super) bytes: u64,
    pub(super) writers: usize,
    pub(super) puts: u64,
}

/// What RocksDB did.
#[derive(Debug, Deserialize)]
pub(super) struct RocksDb {
    pub(super) version: String,
    /// By workload.
    pub(super) puts_a_second: Vec<f64>,
}

/// Runs the workloads in RocksDB, each in a new database under `folder`. None: there is no Python with RocksDB.
pub(super) fn rocksdb(folder: &Path, workloads: &[Workload], warm_up: u64) -> Result<Option<RocksDb>, Fault> {
    let Some(python) = python() else { return Ok(None) };
    let failed = |what: String| Fault::new(Blame::Device, format!("RocksDB: {what}"));
    let workloads_text = serde_json::to_string(workloads).map_err(|error| failed(error.to_string()))?;
    let output = Command::new(python)
        .arg("-c")
        .arg(SCRIPT)
        .arg(folder)
        .args([workloads_text, warm_up.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let result: RocksDb =
        serde_json::from_str(text.trim_end().lines().last().unwrap_or_default()).map_err(|error| failed(error.to_string()))?;
    match result.puts_a_second.len() == workloads.len() {
        true => Ok(Some(result)),
        false => Err(failed(format!("{} figures for {} workloads", result.puts_a_second.len(), workloads.len()))),
    }
}

/// A Python that has RocksDB: `$PITHEAD_PYTHON`, the tools' own, or the system's.
fn python() -> Option<PathBuf> {
    let own = std::env::var_os("PITHEAD_PYTHON").map(PathBuf::from);
    let candidates = own.into_iter().chain([PathBuf::from(".tools/bin/python"), PathBuf::from("python3")]);
    candidates.into_iter().find(|python| {
        let status = Command::new(python).args(["-c", "import rocksdict"]).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    })
}
