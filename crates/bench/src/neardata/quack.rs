//! DuckDB as a server, by the Quack protocol, and as a client of servers.

use std::path::Path;

use pithead_model::Fault;

use super::runner::Runner;
use crate::TABLES;

const SCRIPT: &str = include_str!("../beside_duckdb_quack.py");

/// A server with the tables, and two that ask it.
pub(crate) struct Quack {
    /// Sends whole queries.
    pub(crate) query: Runner,
    /// Has the server's tables attached.
    pub(crate) attached: Runner,
    server: Runner,
}

impl Quack {
    /// Starts all three, the server at `address` as `quack:HOST:PORT`. `prefixes`: what runs a program where clients are, and where the
    /// server is.
    pub(crate) async fn start(
        python: &Path,
        prefixes: [&[String]; 2],
        address: &str,
        files: &Path,
        home: &Path,
        threads: usize,
    ) -> Result<Quack, Fault> {
        let [at_clients, at_server] = prefixes;
        let [files, database] = [files.to_path_buf(), home.join("quack.db")].map(|path| path.display().to_string());
        let words = [database, files, threads.to_string()].into_iter().chain(TABLES.iter().map(|table| table.name.to_owned()));
        let server = start("DuckDB's server", (python, at_server), ["serve", address], words).await?;
        let query = client((python, at_clients), "query", address, threads).await?;
        let attached = client((python, at_clients), "attached", address, threads).await?;
        Ok(Quack { query, attached, server })
    }

    /// What it is.
    pub(crate) fn version(&self) -> String {
        self.server.ready.version.clone()
    }
}

/// A DuckDB that asks the server at `address`, which is `quack:HOST:PORT` or `postgres:` and a connection string. It sends whole queries
/// (`query`), or has the server's tables attached (`attached`).
pub(crate) async fn client(
    through: (&Path, &[String]),
    way: &'static str,
    address: &str,
    threads: usize,
) -> Result<Runner, Fault> {
    start(way, through, [way, address], [threads.to_string()]).await
}

async fn start(
    name: &'static str,
    (python, prefix): (&Path, &[String]),
    [way, address]: [&str; 2],
    rest: impl IntoIterator<Item = String>,
) -> Result<Runner, Fault> {
    let words: Vec<String> = ["-c", SCRIPT, way, address].into_iter().map(str::to_owned).chain(rest).collect();
    Runner::start(name, prefix, python, &words).await
}
