//! `pithead serve` as a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pithead_model::{Blame, Fault};

use super::stop;
use crate::tables::io;

/// A host with its drives, before clients of PostgreSQL and of Flight SQL. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Serving {
    child: Child,
    /// The port of PostgreSQL's protocol.
    pub(super) port: u16,
    /// Where Flight SQL is served.
    pub(super) flight: String,
}

impl Serving {
    /// Starts one on a directory of drives, and waits until it listens.
    pub(super) fn start(data: &Path) -> Result<Serving, Fault> {
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let mut child = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io(&program, &error))?;
        let stderr = child.stderr.take().ok_or_else(|| Fault::new(Blame::Bug, "a server without stderr"))?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let (mut said, mut flight) = (Vec::new(), None);
        for line in lines.by_ref() {
            flight = flight.or_else(|| word_after(&line, "Flight SQL at "));
            let port = word_after(&line, " listening on ").and_then(|address| address.rsplit(':').next()?.parse().ok());
            if let (Some(port), Some(flight)) = (port, &flight) {
                let flight = flight.clone();
                // Read to the end, so that the server never blocks on what it says.
                std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
                return Ok(Serving { child, port, flight });
            }
            said.push(line);
        }
        stop(&mut child, "-TERM");
        Err(Fault::new(Blame::Device, format!("pithead serve did not start: {}", said.join(" "))))
    }

    /// As a client of PostgreSQL names it.
    pub(super) fn name(&self) -> String {
        format!("host=127.0.0.1 port={} user=bench dbname=pithead", self.port)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        stop(&mut self.child, "-TERM");
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
