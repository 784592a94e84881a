//! `pithead bench neardata`: TPC-H across a link that the kernel shapes, beside DuckDB on Parquet over HTTP, and beside DuckDB as a
//! server by its Quack protocol.
//!
//! The host and DuckDB are in one network namespace, four drives and nginx in another, and the one link between them is shaped in
//! both directions. Each query runs in turns with push-down, without, and in DuckDB, so that the machine's moods meet all of them;
//! bytes are those that the host's interface counts. Quack has one server with all tables, which answers whole queries, or whose
//! tables a client attaches; so Pithead answers with one drive, too.

mod attached;
mod host;
pub(crate) mod namespaces;
pub(crate) mod needs;
mod nginx;
pub(crate) mod quack;
mod report;
pub(crate) mod runner;

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use pithead_model::{Blame, Fault, Rate, boxed};
use tokio::signal::unix::{SignalKind, signal};

use crate::answers::{difference_between_engines, read_answer};
use crate::drives::DriveProcesses;
use crate::machine::Machine;
use crate::report::seconds;
use crate::scan::BISCUIT_SQL;
use crate::tables::{generate, io};
use crate::timing::Spread;
use crate::{QUERIES, TABLES};
pub(crate) use attached::{OverLink, attached_over_link};
pub use host::{NearDataHostOptions, near_data_host};
use namespaces::{CONGESTION, DRIVES_ADDRESS, Namespaces};
use needs::{Needs, SORTED};
use nginx::Nginx;
use quack::Quack;
use report::{BISCUIT, BISCUIT_SORTED, NeardataSummary, QueryReport, RateReport, Report, Way, Ways};
use runner::{Ran, RunRequest, Runner};

/// Drive processes.
const DRIVES: usize = 4;
/// Threads of the host and of DuckDB.
const THREADS: usize = 2;
/// On slower links than this, bits a second, the slow ways run once.
const SLOW_BELOW: f64 = 5e8;
/// Of DuckDB's server.
const QUACK_PORT: u16 = 9494;
const SCRIPT: &str = include_str!("beside_duckdb_http.py");

/// What to measure.
#[derive(Clone, Debug)]
pub struct NearDataOptions {
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Runs of each query; their median counts.
    pub runs: usize,
    /// What the link is shaped to, one after the other.
    pub rates: Vec<Rate>,
    /// Puts the host's side on core 0 and the drives' side on core 1.
    pub split_cores: bool,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// How a query is answered.
#[derive(Clone, Copy, Debug)]
enum By {
    On,
    Off,
    DuckDb,
    OneDrive,
    QuackQuery,
    QuackAttached,
}

const WAYS: [By; 6] = [By::On, By::Off, By::DuckDb, By::OneDrive, By::QuackQuery, By::QuackAttached];

/// One query, and its answer as it came first.
struct Statement {
    name: &'static str,
    sql: &'static str,
    /// What DuckDB is asked, where it is not the same.
    duckdb_sql: Option<String>,
    tpch: bool,
    answer: Vec<RecordBatch>,
    /// Whether Quack answers it over attached tables.
    attached: bool,
}

/// Seconds and bytes of one way's runs.
#[derive(Default)]
struct WaySamples {
    seconds: Vec<f64>,
    bytes: Vec<f64>,
}

/// Everything that runs. Fields are dropped in this order: processes before the namespaces that they are in.
struct Stage {
    pithead: Runner,
    one_drive: Runner,
    duckdb: Runner,
    quack: Quack,
    drives: [DriveProcesses; 2],
    _nginx: Nginx,
    namespaces: Namespaces,
    /// Where an answer is put to be compared.
    answer: PathBuf,
}

/// Measures, prints tables and writes the JSON. However it ends, no process and no namespace is left.
#[boxed]
pub async fn near_data(options: &NearDataOptions) -> Result<(), Fault> {
    let listen = |kind| signal(kind).map_err(|error| Fault::new(Blame::Device, format!("signals: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut hangup = listen(SignalKind::hangup())?;
    tokio::select! {
        measured = measure(options) => measured,
        _ = interrupt.recv() => Err(stopped()),
        _ = terminate.recv() => Err(stopped()),
        _ = hangup.recv() => Err(stopped()),
    }
}

fn stopped() -> Fault {
    Fault::new(Blame::Cancelled, "stopped before all was measured")
}

async fn measure(options: &NearDataOptions) -> Result<(), Fault> {
    let needs = Needs::find(&options.directory, options.split_cores).await?;
    let machine = Machine::here();
    println!("{}", machine.line());
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    // Apart, so that a signal is heard meanwhile.
    let (made, scale) = (tables.clone(), options.scale);
    tokio::task::spawn_blocking(move || generate(&made, scale))
        .await
        .map_err(|lost| Fault::new(Blame::Bug, format!("making the tables ended early: {lost}")))??;
    let home = options.directory.join("neardata");
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(|error| io(&home, &error))?;
    }
    needs.files(&tables, &home.join("nginx/files")).await?;
    let mut stage = Stage::set(options, &needs, &home).await?;
    stage.pithead.load(&tables).await?;
    stage.one_drive.load(&tables).await?;
    println!("before the link is shaped, once each, to warm up and to compare answers:");
    let mut statements = statements();
    for statement in &mut statements {
        stage.rehearse(statement).await?;
    }
    let mut rates = Vec::new();
    for rate in &options.rates {
        rates.push(stage.at_rate(*rate, options.runs.max(1), &statements).await?);
    }
    let report = Report {
        machine,
        scale: options.scale,
        drives: DRIVES,
        threads: THREADS,
        cores: if options.split_cores { "host's side on core 0, drives' side on core 1" } else { "shared by all processes" },
        link: "one veth pair for all drives, shaped by tbf in each direction; bytes of both directions, from the host's interface",
        congestion_control: CONGESTION,
        pithead: stage.pithead.ready.clone(),
        duckdb: stage.duckdb.ready.clone(),
        quack: stage.quack.version(),
        summary: NeardataSummary::of(&rates),
        rates,
    };
    stage.end()?;
    // Tables can be loaded again; only results are worth keeping.
    std::fs::remove_dir_all(&home).map_err(|error| io(&home, &error))?;
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    report.verdict()
}

/// TPC-H's queries, and Biscuit's.
fn statements() -> Vec<Statement> {
    let statement = |name, sql, tpch| Statement { name, sql, duckdb_sql: None, tpch, answer: vec![], attached: true };
    let mut statements: Vec<Statement> = QUERIES.iter().map(|query| statement(query.name, query.statement(), true)).collect();
    statements.push(statement(BISCUIT, BISCUIT_SQL, false));
    let sorted = BISCUIT_SQL.replace(" lineitem ", &format!(" {SORTED} "));
    statements.push(Statement { duckdb_sql: Some(sorted), ..statement(BISCUIT_SORTED, BISCUIT_SQL, false) });
    statements
}

impl Stage {
    /// Starts everything, with a link that is not shaped yet.
    async fn set(options: &NearDataOptions, needs: &Needs, home: &Path) -> Result<Self, Fault> {
        let (host_core, drives_core) = if options.split_cores { (Some(0), Some(1)) } else { (None, None) };
        let namespaces = Namespaces::make()?;
        let (at_host, at_drives) = (namespaces.at_host(host_core), namespaces.at_drives(drives_core));
        let nginx = Nginx::start(&needs.nginx, &at_drives, &home.join("nginx")).await?;
        // Nobody else reaches the namespace, so clear text is safe in it.
        let listen = format!("{DRIVES_ADDRESS}:0");
        let arguments = ["--insecure", "--slow-session-ms", "0"];
        let start = |name: &str, count| DriveProcesses::start_through(&at_drives, &listen, &home.join(name), count, &arguments);
        let drives = [start("drives", DRIVES)?, start("one-drive", 1)?];
        let program = std::env::current_exe().map_err(|error| io(&PathBuf::from("pithead"), &error))?;
        let threads = THREADS.to_string();
        let addresses = drives.each_ref().map(|drives| drives.addresses().join(","));
        let host = |name, drives: &str, drive_threads: &str| {
            let words = ["bench", "neardata-host", "--threads", &threads, "--drive-threads", drive_threads, "--drives", drives];
            let words = words.map(str::to_owned);
            let (prefix, program) = (at_host.clone(), program.clone());
            async move { Runner::start(name, &prefix, &program, &words).await }
        };
        // There are more drives than cores: each of several works with one thread.
        let pithead = host("Pithead", &addresses[0], "1").await?;
        let one_drive = host("Pithead, one drive", &addresses[1], &threads).await?;
        let url = Nginx::url();
        let tables = TABLES.iter().map(|table| table.name).chain([SORTED]);
        let words: Vec<String> = ["-c", SCRIPT, &url, &threads].into_iter().chain(tables).map(str::to_owned).collect();
        let duckdb = Runner::start("DuckDB", &at_host, &needs.python, &words).await?;
        let answer = std::path::absolute(home.join("answer.arrow")).map_err(|error| io(home, &error))?;
        let (quack, files) = (format!("quack:{DRIVES_ADDRESS}:{QUACK_PORT}"), home.join("nginx/files"));
        let quack = Quack::start(&needs.python, [&at_host, &at_drives], &quack, &files, home, THREADS).await?;
        Ok(Self { pithead, one_drive, duckdb, quack, drives, _nginx: nginx, namespaces, answer })
    }

    /// Runs a query in all ways, and keeps the answer that others are compared with. A fault if they differ.
    async fn rehearse(&mut self, statement: &mut Statement) -> Result<(), Fault> {
        let mut line = Vec::new();
        for by in WAYS {
            let (ran, _) = match self.run(statement, by).await {
                Err(fault) if matches!(by, By::QuackAttached) => {
                    println!("  {:<8} not answered by Quack over attached tables: {}", statement.name, fault.message);
                    statement.attached = false;
                    continue;
                }
                ran => ran?,
            };
            line.push(seconds(ran.seconds));
            let answer = read_answer(&self.answer)?;
            if matches!(by, By::On) {
                statement.answer = answer;
            } else if let Some(difference) = difference_between_engines(&statement.answer, &answer)? {
                let what = format!("{}: the answer with push-down and that of {by:?} differ: {difference}", statement.name);
                return Err(Fault::new(Blame::Bug, what));
            }
        }
        println!("  {:<8} {} s", statement.name, line.join(", "));
        Ok(())
    }

    /// All queries across a link of this rate.
    async fn at_rate(&mut self, rate: Rate, runs: usize, statements: &[Statement]) -> Result<RateReport, Fault> {
        self.namespaces.shape(rate)?;
        println!("link shaped to {rate}: seconds with push-down, without, DuckDB over HTTP; one drive, Quack");
        let slow_runs = if rate.bits_per_second < SLOW_BELOW { 1 } else { runs };
        let mut queries = Vec::new();
        let mut peak: f64 = 0.0;
        for statement in statements {
            let (query, fastest) = self.measured(statement, runs, slow_runs).await?;
            let ways = [&query.on, &query.off, &query.duckdb_http, &query.one_drive, &query.quack_query];
            println!("  {:<8} {}", query.name, ways.map(|way| seconds(way.seconds.median)).join(", "));
            peak = peak.max(fastest);
            queries.push(query);
        }
        Ok(RateReport {
            rate: rate.to_string(),
            bits_per_second: rate.bits_per_second,
            runs,
            runs_off_and_duckdb_http: slow_runs,
            peak_bits_per_second: peak,
            queries,
        })
    }

    /// A query's runs in turns; and the most bits a second that one of them got through the link.
    async fn measured(&mut self, statement: &Statement, runs: usize, slow_runs: usize) -> Result<(QueryReport, f64), Fault> {
        let mut taken: [WaySamples; WAYS.len()] = Default::default();
        let (mut equal, mut rows, mut peak) = (true, 0, 0.0_f64);
        for nth in 0..runs {
            for (by, taken) in WAYS.into_iter().zip(&mut taken) {
                let is_slow = matches!(by, By::Off | By::DuckDb | By::QuackAttached);
                if (nth >= slow_runs && is_slow) || (matches!(by, By::QuackAttached) && !statement.attached) {
                    continue;
                }
                let (ran, bytes) = self.run(statement, by).await?;
                taken.seconds.push(ran.seconds);
                taken.bytes.push(bytes as f64);
                peak = peak.max(bytes as f64 * 8.0 / ran.seconds);
                rows = ran.rows;
                if let Some(difference) = difference_between_engines(&statement.answer, &read_answer(&self.answer)?)? {
                    println!("  {}: another answer than before, by {by:?}: {difference}", statement.name);
                    equal = false;
                }
            }
        }
        let [on, off, duckdb_http, one_drive, quack_query, quack_attached] =
            taken.map(|taken| Way { seconds: Spread::of(taken.seconds), link_bytes: Spread::of(taken.bytes) });
        let quack_attached = statement.attached.then_some(quack_attached);
        let ways = Ways { on, off, duckdb_http, one_drive, quack_query, quack_attached };
        Ok((QueryReport::new(statement.name, statement.tpch, rows, ways, equal), peak))
    }

    /// One run, and its bytes on the link.
    async fn run(&mut self, statement: &Statement, by: By) -> Result<(Ran, u64), Fault> {
        let own = statement.duckdb_sql.as_deref().filter(|_| matches!(by, By::DuckDb));
        let sql = own.unwrap_or(statement.sql).to_owned();
        let request = RunRequest { sql, answer: self.answer.clone(), pushdown: matches!(by, By::On | By::OneDrive) };
        let before = self.namespaces.bytes().await?;
        let runner = match by {
            By::On | By::Off => &mut self.pithead,
            By::OneDrive => &mut self.one_drive,
            By::DuckDb => &mut self.duckdb,
            By::QuackQuery => &mut self.quack.query,
            By::QuackAttached => &mut self.quack.attached,
        };
        let ran = runner.run(request).await.map_err(|fault| fault.at(format_args!("{}, {by:?}", statement.name)))?;
        Ok((ran, self.namespaces.bytes().await?.saturating_sub(before)))
    }

    /// Ends what can end by itself. The rest is killed.
    fn end(self) -> Result<(), Fault> {
        let Self { pithead, one_drive, duckdb, quack, drives: [drives, drive], _nginx, namespaces, .. } = self;
        drop((pithead, one_drive, duckdb, quack));
        let ended = drives.stop().and(drive.stop());
        drop(namespaces);
        ended
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_duckdb_is_asked_of_the_sorted_table() {
        let statements = statements();
        let [.., plain, sorted] = statements.as_slice() else { panic!("there are more") };
        assert_eq!((statements.len(), plain.sql, &plain.duckdb_sql), (24, sorted.sql, &None));
        assert!(sorted.duckdb_sql.as_ref().is_some_and(|sql| sql.contains(" FROM lineitem_sorted WHERE l_shipdate = ")));
    }
}
