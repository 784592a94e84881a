//! DuckDB as a server in the drives' namespace, and its clients in the host's, by the Quack protocol.

use std::path::Path;

use pithead_model::Fault;

use super::namespaces::DRIVES_ADDRESS;
use super::runner::Runner;
use crate::TABLES;

const SCRIPT: &str = include_str!("../beside_duckdb_quack.py");
const PORT: u16 = 9494;

/// A server with the tables, and two that ask it.
pub(super) struct Quack {
    /// Sends whole queries.
    pub(super) query: Runner,
    /// Has the server's tables attached.
    pub(super) attached: Runner,
    server: Runner,
}

impl Quack {
    /// Starts all three. `prefixes`: what runs a program in the host's namespace, and in the drives'.
    pub(super) async fn start(
        python: &Path,
        prefixes: [&[String]; 2],
        files: &Path,
        home: &Path,
        threads: usize,
    ) -> Result<Quack, Fault> {
        let [at_host, at_drives] = prefixes;
        let (address, threads) = (format!("quack:{DRIVES_ADDRESS}:{PORT}"), threads.to_string());
        let [files, database] = [files.to_path_buf(), home.join("quack.db")].map(|path| path.display().to_string());
        let words = |way: &str, rest: &[&str]| -> Vec<String> {
            ["-c", SCRIPT, way, &address].iter().chain(rest).map(|word| (*word).to_owned()).collect()
        };
        let serve: Vec<&str> = [database.as_str(), &files, &threads].into_iter().chain(TABLES.iter().map(|t| t.name)).collect();
        let server = Runner::start("DuckDB's server", at_drives, python, &words("serve", &serve)).await?;
        let query = Runner::start("Quack", at_host, python, &words("query", &[&threads])).await?;
        let attached = Runner::start("Quack, attached", at_host, python, &words("attached", &[&threads])).await?;
        Ok(Quack { query, attached, server })
    }

    /// What it is.
    pub(super) fn version(&self) -> String {
        self.server.ready.version.clone()
    }
}
