//! `pithead serve` as a process of its own.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pithead_model::{Blame, Fault};

use super::stop;
use crate::tables::io;

/// A host with its drives, before clients of PostgreSQL and of Flight SQL. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Serving {
    process: Process,
    /// The port of PostgreSQL's protocol.
    pub(super) port: u16,
    /// Where Flight SQL is served.
    pub(super) flight: String,
}

impl Serving {
    /// Starts one on a directory of drives, and waits until it listens.
    pub(super) fn start(data: &Path) -> Result<Serving, Fault> {
        Self::start_with(&["--data".as_ref(), data.as_os_str()])
    }

    /// Starts one with these flags more than those that say where it listens.
    pub(super) fn start_with(arguments: &[&OsStr]) -> Result<Serving, Fault> {
        let mut flight = None;
        let (process, address) =
            Process::start(&[&["--flight".as_ref(), "127.0.0.1:0".as_ref()], arguments].concat(), |line| {
                flight = flight.take().or_else(|| word_after(line, "Flight SQL at "));
            })?;
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
        let (Some(port), Some(flight)) = (port, flight) else {
            return Err(Fault::bug(format!("a server at {address} without Flight SQL")));
        };
        Ok(Serving { process, port, flight })
    }

    /// Its process number.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// As a client of PostgreSQL names it.
    pub(super) fn name(&self) -> String {
        format!("host=127.0.0.1 port={} user=bench dbname=pithead", self.port)
    }
}

/// A process of `pithead serve`. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts one at a free port of this machine, with these flags more, and waits until it listens. `heard` gets each line that it says
    /// before. Gives where it listens, too.
    pub(super) fn start(arguments: &[&OsStr], mut heard: impl FnMut(&str)) -> Result<(Process, String), Fault> {
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let mut child = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io(&program, &error))?;
        let stderr = child.stderr.take();
        let process = Process(child);
        let stderr = stderr.ok_or_else(|| Fault::new(Blame::Bug, "a server without stderr"))?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut said = Vec::new();
        for line in lines.by_ref() {
            heard(&line);
            if let Some(address) = word_after(&line, " listening on ") {
                // Read to the end, so that the server never blocks on what it says.
                std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
                return Ok((process, address));
            }
            said.push(line);
        }
        Err(Fault::new(Blame::Device, format!("pithead serve did not start: {}", said.join(" "))))
    }

    /// Its process number.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        stop(&mut self.0, "-TERM");
    }
}

fn word_after(line: &str, before: &str) -> Option<String> {
    let (_, rest) = line.split_once(before)?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_what_the_server_says() {
        assert_eq!(word_after("Flight SQL at 127.0.0.1:8815", "Flight SQL at ").as_deref(), Some("127.0.0.1:8815"));
        let line = "host listening on 127.0.0.1:5432 for PostgreSQL clients (2 drives)";
        assert_eq!(word_after(line, " listening on ").as_deref(), Some("127.0.0.1:5432"));
        assert_eq!(word_after("metrics at http://x", " listening on "), None);
    }
}
