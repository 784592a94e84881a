//! Parquet files across the shaped link: attached by a drive that is beside them, and read by DuckDB over HTTP.

use std::path::{Path, PathBuf};

use pithead_model::{Blame, Fault, Rate};
use serde::Serialize;

use super::namespaces::{DRIVES_ADDRESS, Namespaces};
use super::needs::Needs;
use super::nginx::Nginx;
use super::runner::{Ran, RunRequest, Runner};
use super::{SCRIPT, THREADS};
use crate::answers::{difference_between_engines, read_answer};
use crate::drives::DriveProcess;
use crate::report::{megabytes, ratio, seconds, table};
use crate::tables::{fresh, io};
use crate::timing::{ATTACHED_WARM_UPS, Spread};
use crate::{QUERIES, TABLES};

/// TPC-H's queries over the link.
#[derive(Debug, Serialize)]
pub(crate) struct OverLink {
    rate: String,
    threads: usize,
    duckdb: String,
    settings: Vec<String>,
    queries: Vec<LinkQuery>,
}

#[derive(Debug, Serialize)]
struct LinkQuery {
    name: &'static str,
    attached: Spread,
    attached_bytes: f64,
    duckdb_http: Spread,
    duckdb_http_bytes: f64,
}

impl OverLink {
    /// DuckDB's seconds over ours, added up.
    pub(crate) fn total_vs_duckdb_http(&self) -> f64 {
        let total = |of: fn(&LinkQuery) -> f64| self.queries.iter().map(of).sum::<f64>();
        total(|query| query.duckdb_http.median) / total(|query| query.attached.median)
    }

    /// All of it as a table.
    pub(crate) fn text(&self) -> String {
        let row = |query: &LinkQuery| {
            vec![
                query.name.to_owned(),
                megabytes(query.duckdb_http_bytes as u64),
                megabytes(query.attached_bytes as u64),
                seconds(query.duckdb_http.median),
                seconds(query.attached.median),
                ratio(query.duckdb_http.median / query.attached.median),
            ]
        };
        let rows: Vec<Vec<String>> = self.queries.iter().map(row).collect();
        let header = ["query", "DuckDB MB", "attached MB", "DuckDB s", "attached s", "DuckDB of ours"];
        format!(
            "the same files over a link shaped to {}: {} over HTTP with its caches off, and a drive beside them, warm; {} threads each\n{}",
            self.rate,
            self.duckdb,
            self.threads,
            table(&header, &rows)
        )
    }
}

/// Everything that runs. Fields are dropped in this order: processes before the namespaces that they are in.
struct Stage {
    pithead: Runner,
    duckdb: Runner,
    _drive: DriveProcess,
    _nginx: Nginx,
    namespaces: Namespaces,
    answer: PathBuf,
}

/// Asks both. The files are in `tables`; what runs keeps its own in `directory`.
pub(crate) async fn attached_over_link(directory: &Path, tables: &Path, runs: usize, rate: Rate) -> Result<OverLink, Fault> {
    let needs = Needs::find(directory, false).await?;
    let home = fresh(&directory.join("attached-link"))?;
    let mut stage = Stage::set(&needs, tables, &home).await?;
    for pause in ATTACHED_WARM_UPS {
        for query in QUERIES {
            stage.both(query.name, query.statement()).await?;
        }
        tokio::time::sleep(pause).await;
    }
    stage.namespaces.shape(rate)?;
    let mut queries = Vec::new();
    for query in QUERIES {
        let mut taken: [Vec<(f64, f64)>; 2] = Default::default();
        for _ in 0..runs.max(1) {
            let ran = stage.both(query.name, query.statement()).await?;
            taken.iter_mut().zip(ran).for_each(|(taken, ran)| taken.push(ran));
        }
        let [attached, duckdb] = taken;
        let spread = |of: &[(f64, f64)]| Spread::of(of.iter().map(|(seconds, _)| *seconds).collect());
        let bytes = |of: &[(f64, f64)]| Spread::of(of.iter().map(|(_, bytes)| *bytes).collect()).median;
        queries.push(LinkQuery {
            name: query.name,
            attached: spread(&attached),
            attached_bytes: bytes(&attached),
            duckdb_http: spread(&duckdb),
            duckdb_http_bytes: bytes(&duckdb),
        });
    }
    let (version, theirs) = (stage.duckdb.ready.version.clone(), stage.duckdb.ready.settings.clone());
    let settings = stage.pithead.ready.settings.iter().cloned().chain(theirs).collect();
    drop(stage);
    fresh(&home)?;
    Ok(OverLink { rate: rate.to_string(), threads: THREADS, duckdb: version, settings, queries })
}

impl Stage {
    async fn set(needs: &Needs, tables: &Path, home: &Path) -> Result<Self, Fault> {
        let namespaces = Namespaces::make()?;
        let (at_host, at_drives) = (namespaces.at_host(None), namespaces.at_drives(None));
        needs.links(tables, &home.join("nginx/files"))?;
        let nginx = Nginx::start(&needs.nginx, &at_drives, &home.join("nginx")).await?;
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let (listen, attach) = (format!("{DRIVES_ADDRESS}:0"), tables.display().to_string());
        // Nobody else reaches the namespace, so clear text is safe in it.
        let words = ["--insecure", "--slow-session-ms", "0", "--attach", &attach];
        let drive = DriveProcess::start_through(&at_drives, &listen, &program, &home.join("drive"), &words)?;
        let threads = THREADS.to_string();
        let words = ["bench", "neardata-host", "--threads", &threads, "--drive-threads", &threads, "--drives", drive.address()];
        let pithead = Runner::start("Pithead", &at_host, &program, &words.map(str::to_owned)).await?;
        let url = Nginx::url();
        let words = ["-c", SCRIPT, &url, &threads].into_iter().chain(TABLES.iter().map(|table| table.name));
        let words: Vec<String> = words.map(str::to_owned).collect();
        let duckdb = Runner::start("DuckDB", &at_host, &needs.python, &words).await?;
        let answer = std::path::absolute(home.join("answer.arrow")).map_err(|error| io(home, &error))?;
        Ok(Self { pithead, duckdb, _drive: drive, _nginx: nginx, namespaces, answer })
    }

    /// Seconds and bytes of one run of each. A fault if their answers differ.
    async fn both(&mut self, name: &str, sql: &str) -> Result<[(f64, f64); 2], Fault> {
        let request = || RunRequest { sql: sql.to_owned(), answer: self.answer.clone(), pushdown: true };
        let (ours, theirs) = (request(), request());
        let before = self.namespaces.bytes().await?;
        let own: Ran = self.pithead.run(ours).await.map_err(|fault| fault.at(name))?;
        let own_answer = read_answer(&self.answer)?;
        let between = self.namespaces.bytes().await?;
        let other: Ran = self.duckdb.run(theirs).await.map_err(|fault| fault.at(name))?;
        let other_answer = read_answer(&self.answer)?;
        let after = self.namespaces.bytes().await?;
        if let Some(difference) = difference_between_engines(&own_answer, &other_answer)? {
            return Err(Fault::new(Blame::Bug, format!("{name}: the answers of Pithead and DuckDB differ: {difference}")));
        }
        let bytes = |from: u64, to: u64| to.saturating_sub(from) as f64;
        Ok([(own.seconds, bytes(before, between)), (other.seconds, bytes(between, after))])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_theirs_over_ours() {
        let query = |ours: f64, theirs: f64| LinkQuery {
            name: "Q",
            attached: Spread::of(vec![ours]),
            attached_bytes: 1e6,
            duckdb_http: Spread::of(vec![theirs]),
            duckdb_http_bytes: 2e8,
        };
        let link = OverLink {
            rate: "1 Gbit/s".to_owned(),
            threads: 2,
            duckdb: "DuckDB".to_owned(),
            settings: vec![],
            queries: vec![query(1.0, 2.0), query(0.5, 10.0)],
        };
        assert!((link.total_vs_duckdb_http() - 8.0).abs() < 1e-9);
        assert!(link.text().contains("20.0×"), "{}", link.text());
    }
}
