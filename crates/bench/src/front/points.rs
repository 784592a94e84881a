//! Many clients that look up one row after the other by its key: pgbench over PostgreSQL's protocol, and ours over Flight SQL.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow_flight::sql::client::PreparedStatement;
use futures::future::try_join_all;
use pithead_model::{Blame, Fault};
use rand::Rng;
use serde::Serialize;
use tonic::transport::Channel;

use super::flight::{Client, client, failed, rows};
use crate::tables::io;
use crate::timing::Spread;

/// Clients at one time.
pub(super) const CLIENTS: usize = 64;
/// Threads of pgbench.
const THREADS: usize = 2;

/// Lookups through one server by one protocol.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Points {
    pub(super) server: &'static str,
    pub(super) protocol: &'static str,
    pub(super) per_s: Spread,
    pub(super) p50_ms: Spread,
    pub(super) p99_ms: Spread,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PointsRun {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl Points {
    /// Of at least one run.
    pub(super) fn of(server: &'static str, protocol: &'static str, runs: &[PointsRun]) -> Points {
        let spread = |figure: fn(&PointsRun) -> f64| Spread::of(runs.iter().map(figure).collect());
        let (per_s, p50_ms, p99_ms) = (spread(|run| run.per_s), spread(|run| run.p50_ms), spread(|run| run.p99_ms));
        Points { server, protocol, per_s, p50_ms, p99_ms }
    }
}

impl PointsRun {
    fn of(per_s: f64, mut milliseconds: Vec<f64>) -> PointsRun {
        milliseconds.sort_by(f64::total_cmp);
        let last = milliseconds.len().saturating_sub(1) as f64;
        let at = |share: f64| milliseconds.get((share * last) as usize).copied().unwrap_or(f64::NAN);
        PointsRun { per_s, p50_ms: at(0.5), p99_ms: at(0.99) }
    }
}

/// Lets pgbench look rows of `table` up, each of whose clients has prepared the statement.
pub(super) fn by_pgbench(
    pgbench: &Path,
    folder: &Path,
    (server, table): (&str, &str),
    rows: u64,
    seconds: u64,
) -> Result<PointsRun, Fault> {
    let script = folder.join("lookup.sql");
    let text = format!("\\set id random(0, {})\nSELECT * FROM {table} WHERE id = :id;\n", rows.saturating_sub(1));
    std::fs::write(&script, text).map_err(|error| io(&script, &error))?;
    let logs = tempfile::tempdir_in(folder).map_err(|error| io(folder, &error))?;
    let output = Command::new(pgbench)
        .args(["-n", "-M", "prepared", "-c", &CLIENTS.to_string(), "-j", &THREADS.to_string(), "-T", &seconds.to_string()])
        .arg("-f")
        .arg(&script)
        .arg("--log")
        .arg(format!("--log-prefix={}", logs.path().join("lookups").display()))
        .arg(server)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io(pgbench, &error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let per_s = lookups_per_second(&said).filter(|_| output.status.success()).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        Fault::new(Blame::Device, format!("pgbench: {}", why.lines().rev().take(3).collect::<Vec<_>>().join("; ")))
    })?;
    let mut taken = Vec::new();
    for entry in std::fs::read_dir(logs.path()).map_err(|error| io(logs.path(), &error))? {
        let path = entry.map_err(|error| io(logs.path(), &error))?.path();
        let log = std::fs::read_to_string(&path).map_err(|error| io(&path, &error))?;
        taken.extend(log.lines().filter_map(milliseconds));
    }
    Ok(PointsRun::of(per_s, taken))
}

/// What pgbench sums up, without the time that it took to connect.
fn lookups_per_second(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "))?;
    line.split(' ').next()?.parse().ok()
}

/// The third word of a line of pgbench's log is what a lookup took, in microseconds.
fn milliseconds(line: &str) -> Option<f64> {
    line.split(' ').nth(2)?.parse::<f64>().ok().map(|microseconds| microseconds / 1e3)
}

/// The same by Flight SQL from this process: a client has a connection and a prepared statement, and for each row it sends the key,
/// asks where the answer is, and fetches it.
pub(super) async fn by_flight(address: &str, table: &str, rows: u64, seconds: u64) -> Result<PointsRun, Fault> {
    let sql = format!("SELECT * FROM {table} WHERE id = $1");
    let mut callers = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = client(address).await?;
        let statement = client.prepare(sql.clone(), None).await.map_err(failed)?;
        callers.push((client, statement));
    }
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let tasks = callers.into_iter().map(|caller| {
        let task = tokio::spawn(look_up(caller, rows, until));
        async { task.await.map_err(Fault::bug)? }
    });
    let taken = try_join_all(tasks).await?.concat();
    Ok(PointsRun::of(taken.len() as f64 / started.elapsed().as_secs_f64(), taken))
}

/// Milliseconds of each lookup.
async fn look_up(
    (mut client, mut statement): (Client, PreparedStatement<Channel>),
    many: u64,
    until: Instant,
) -> Result<Vec<f64>, Fault> {
    let mut taken = Vec::new();
    loop {
        let started = Instant::now();
        if started >= until {
            break;
        }
        let id = rand::rng().random_range(0..many) as i64;
        let key: ArrayRef = Arc::new(Int64Array::from(vec![id]));
        let key = RecordBatch::try_from_iter([("1", key)]).map_err(Fault::bug)?;
        statement.set_parameters(key).map_err(failed)?;
        let info = statement.execute().await.map_err(failed)?;
        let batches = rows(&mut client, info).await?;
        let ids: Vec<i64> =
            batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
        if ids != [id] {
            return Err(Fault::new(Blame::Bug, format!("the rows {ids:?} for the key {id}")));
        }
        taken.push(started.elapsed().as_secs_f64() * 1e3);
    }
    statement.close().await.map_err(failed)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let said =
            "transaction type: lookup.sql\ninitial connection time = 52.1 ms\ntps = 1234.5 (without initial connection time)\n";
        assert_eq!(lookups_per_second(said), Some(1234.5));
        assert_eq!(lookups_per_second("pgbench: error"), None);
        assert_eq!(milliseconds("63 7 2412 0 1767225600 31337"), Some(2.412));
    }

    #[test]
    fn percentiles_are_of_all_lookups_of_a_run() {
        let run = PointsRun::of(200.0, (1..=101).rev().map(f64::from).collect());
        assert_eq!(run, PointsRun { per_s: 200.0, p50_ms: 51.0, p99_ms: 100.0 });
        let points = Points::of("pithead", "flight", &[run, PointsRun { per_s: 100.0, ..run }, run]);
        assert_eq!((points.per_s.median, points.per_s.min), (200.0, 100.0));
    }
}
