//! Processes of clients. Dropping them kills them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pithead_model::{Blame, Fault};

use super::SoakOptions;
use super::report::ClientReport;
use crate::tables::io;

/// Processes that run clients.
pub(super) struct HostProcesses(Vec<HostProcess>);

struct HostProcess {
    child: Child,
    clients: usize,
}

impl HostProcesses {
    /// Starts them, the clients spread evenly.
    pub(super) fn start(options: &SoakOptions, drives: &[String], answers: &Path) -> Result<Self, Fault> {
        let program = std::env::current_exe().map_err(|error| io(&PathBuf::from("pithead"), &error))?;
        let count = options.processes.clamp(1, options.clients.max(1));
        let mut started = Self(Vec::new());
        let mut first = 0;
        for process in 0..count {
            let clients = options.clients / count + usize::from(process < options.clients % count);
            let child = Command::new(&program)
                .args(["bench", "soak-clients", "--drives", &drives.join(",")])
                .args(["--first", &first.to_string(), "--clients", &clients.to_string()])
                .args(["--seconds", &options.seconds.to_string(), "--copies", &options.copies.to_string()])
                .args(["--seed", &options.seed.to_string(), "--answers"])
                .arg(answers)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| io(&program, &error))?;
            started.0.push(HostProcess { child, clients });
            first += clients;
        }
        Ok(started)
    }

    /// Their process numbers.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.0.iter().map(|process| process.child.id()).collect()
    }

    /// Waits for all to end and reads what they say. Blocks.
    pub(super) fn wait(mut self) -> Result<Vec<ClientReport>, Fault> {
        let mut reports = Vec::new();
        for process in &mut self.0 {
            let stdout = process.child.stdout.take().ok_or_else(|| Fault::new(Blame::Bug, "a process without stdout"))?;
            let before = reports.len();
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let report: ClientReport = serde_json::from_str(&line)
                    .map_err(|error| Fault::new(Blame::Bug, format!("a client's report is not readable: {error}")))?;
                reports.push(report);
            }
            let status = process.child.wait().map_err(|error| io(&PathBuf::from("pithead"), &error))?;
            if reports.len() - before != process.clients {
                let what = format!(
                    "{} of {} clients reported, and their process ended with {status}",
                    reports.len() - before,
                    process.clients
                );
                return Err(Fault::new(Blame::Bug, what));
            }
        }
        Ok(reports)
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // It may be gone already; nothing is left to do about it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
