//! `pithead bench soak`: many clients at once for a while, every answer checked, memory watched.
//!
//! Drives are processes, and so are the hosts: each client has a host of its own, several to a process. A client's work is a mix of
//! TPC-H, point look-ups, loads into a dataset of its own, counts of what was loaded, and queries that it drops in mid-stream.

mod clients;
mod expected;
mod memory;
mod processes;
mod report;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_model::{Blame, Fault, boxed};

use crate::demo::{Layout, load};
use crate::drives::DriveProcesses;
use crate::machine::Machine;
use crate::tables::{generate, io};
pub use clients::{SoakClientsOptions, soak_clients};
use memory::Watched;
use processes::HostProcesses;
use report::{ClientReport, Report, Settled};
use work::count_statement;

/// Longest that drives have, once all clients are gone, to free what these had.
const SETTLE_WAIT: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// Clients at one time, each with a host of its own.
    pub clients: usize,
    /// Processes that the clients are spread over.
    pub processes: usize,
    /// How long they work, seconds.
    pub seconds: f64,
    /// Drive processes.
    pub drives: usize,
    /// Drives that each partition is on.
    pub copies: usize,
    /// Sessions that each drive allows.
    pub sessions: u32,
    /// TPC-H's scale, in gigabytes of text.
    pub scale: f64,
    /// Decides what each client does when.
    pub seed: u64,
    /// Where tables and drives are kept.
    pub directory: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Runs it, prints what came out and writes the JSON. A wrong answer is an error.
#[boxed]
pub async fn soak(options: &SoakOptions) -> Result<(), Fault> {
    println!("{}", Machine::here().line());
    let tables = options.directory.join(format!("tpch-{}", options.scale));
    generate(&tables, options.scale)?;
    let home = options.directory.join("soak");
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(|error| io(&home, &error))?;
    }
    let answers = home.join("expected");
    expected::write(&answers, &home.join("reference"), &tables).await?;

    let sessions = options.sessions.to_string();
    let arguments = ["--sessions", &sessions, "--cache", "256MiB", "--slow-session-ms", "0"];
    let processes = DriveProcesses::start(&home.join("drives"), options.drives, &arguments)?;
    let target = Target::Drives(processes.addresses());
    let engine = connect(&target, &EmbedOptions::default()).await?;
    load(&engine, &tables, Layout::Keyed).await?;
    println!(
        "{} clients in {} processes against {} drives of {} sessions each, for {} s",
        options.clients, options.processes, options.drives, options.sessions, options.seconds
    );
    let hosts = HostProcesses::start(options, &processes.addresses(), &answers)?;
    let watched = Watched::start(processes.ids(), hosts.ids());
    let clients = tokio::task::spawn_blocking(move || hosts.wait())
        .await
        .map_err(|lost| Fault::new(Blame::Bug, format!("waiting for the clients ended early: {lost}")))??;
    let samples = watched.stop();
    let settled = settle(&engine, &clients).await?;
    engine.shutdown().await;
    processes.stop()?;

    let report = Report::new(options, &clients, &samples, settled);
    report.print();
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    report.verdict()
}

/// What is left once all clients are gone: sessions and memory at the drives, and rows, which must be those that were acknowledged.
async fn settle(engine: &Engine, clients: &[ClientReport]) -> Result<Settled, Fault> {
    let session = engine.host.session();
    let mut settled = Settled::default();
    // Where no load was acknowledged there need not be a dataset.
    for client in clients.iter().filter(|client| client.loaded.loads > 0) {
        let run = crate::timing::run(&session, &count_statement(client.client)).await?;
        if let Some(wrong) = client.loaded.difference(&run.batches) {
            settled.wrong.push(format!("at the end, client {}: {wrong}", client.client));
        }
        settled.datasets += 1;
    }
    let started = Instant::now();
    loop {
        let (mut sessions, mut memory) = (0, 0);
        for (_, status) in engine.host.fleet().status().await {
            let status = status?;
            sessions += u64::from(status.sessions);
            memory += status.memory_reserved;
        }
        (settled.sessions_left, settled.memory_left) = (sessions, memory);
        if (sessions == 0 && memory == 0) || started.elapsed() > SETTLE_WAIT {
            return Ok(settled);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
