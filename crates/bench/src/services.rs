//! `pithead bench services`: what background services cost the foreground, under each policy that places them.
//!
//! After Park et al. 2022 (BTS; see `docs/bibliography.md`): put() of 16 KiB by a number of host threads, and a service that always has
//! something to do: the scrub, and then deduplication, which is the service of that work. The scheduler's simulator runs the same
//! policies, with what was measured of this drive.

mod dedup;
mod puts;
mod queries;
mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pithead_embed::{BackgroundOrder, BackgroundStatus, EmbedOptions, Target, background};
use pithead_model::{Blame, Fault, boxed};
use pithead_observe::ProcessUse;
use pithead_policy::background::BackgroundPolicy;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde::Serialize;

use crate::drives::DriveProcess;
use crate::kv::clients::{Caller, Server};
use crate::kv::free_port;
use crate::machine::Machine;
use crate::tables::io;
use puts::{Latencies, Puts, put_all};
use report::ServicesReport;

/// Bytes of a value that is put, as in Park et al. 2022.
const VALUE_BYTES: usize = 16 << 10;
/// Values that services read, of 1 MiB each, no two of which are alike.
const STORED: usize = 192;
const DEDUP: &str = "dedup";
/// How long a policy has to settle.
const SETTLE: Duration = Duration::from_millis(700);
/// How long puts go on before anything is measured.
const WARM_UP_SECONDS: f64 = 3.0;
/// How often cores are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The last one is the default.
pub(crate) const POLICIES: [&str; 4] = ["none", "bts", "shares:0.2", "tail:1.2"];
/// Threads that put one value after the other, as fast as they are answered.
pub(crate) const FULL_THREADS: usize = 16;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ServicesOptions {
    /// Where the drive is made; it is removed at the end.
    pub directory: PathBuf,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Measurements of each; the one with the median of means counts.
    pub runs: usize,
    /// Numbers of host threads.
    pub threads: Vec<usize>,
    /// Values that each thread puts in a second, at random moments.
    pub rate: f64,
    /// Where the files are that are stored and deduplicated.
    pub files: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Puts under one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// None: services were paused.
    pub(crate) policy: Option<&'static str>,
    pub(crate) threads: usize,
    /// Values a second of each thread; none: as fast as they are answered.
    pub(crate) rate: Option<f64>,
    pub(crate) latencies: Latencies,
    pub(crate) puts_s: f64,
    /// What the service read.
    pub(crate) scrub_mb_s: f64,
    /// Shares of each core, as the drive sees them, on average.
    pub(crate) foreground: Vec<f64>,
    pub(crate) background: Vec<f64>,
    /// CPU time of the drive for a put, with services.
    pub(crate) cpu_us: f64,
    /// CPU of this process, which puts, in cores.
    pub(crate) client_cores: f64,
}

/// Measures, prints tables and writes the JSON.
#[boxed(?Send)]
pub async fn services(options: &ServicesOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let mut bench = Bench::start(options).await?;
    let mut report = ServicesReport::new(machine, options);
    for threads in &options.threads {
        for policy in all_policies() {
            report.measured.push(bench.median(policy, *threads, Some(options.rate)).await?);
        }
    }
    for policy in all_policies() {
        report.full_load.push(bench.median(policy, FULL_THREADS, None).await?);
    }
    report.scrub_alone_mb_s = bench.scrub_alone().await?;
    report.step_us = bench.step_us().await?;
    for policy in [None, Some(POLICIES[POLICIES.len() - 1])] {
        bench.choose(policy).await?;
        report.queries.push(queries::measure(&bench.drive, policy, options.seconds * options.runs as f64).await?);
    }
    report.beside_dedup = dedup::puts(&mut bench, options).await?;
    bench.drive.stop()?;
    let (directory, files) = (options.directory.clone(), options.files.clone());
    let saved = tokio::task::spawn_blocking(move || dedup::save(&directory, &files)).await;
    report.saved = saved.map_err(|lost| Fault::bug(lost.to_string()))??;
    report.finish();
    println!("{}", report.text());
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        std::fs::write(path, text + "\n").map_err(|error| io(path, &error))?;
    }
    Ok(())
}

/// Without services, then each policy.
fn all_policies() -> impl Iterator<Item = Option<&'static str>> {
    std::iter::once(None).chain(POLICIES.map(Some))
}

struct Bench<'a> {
    options: &'a ServicesOptions,
    drive: DriveProcess,
    port: u16,
    /// The service that is measured.
    service: &'static str,
    _folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    /// A drive whose scrub begins a new round as soon as one is over, with values to read.
    async fn start(options: &'a ServicesOptions) -> Result<Self, Fault> {
        std::fs::create_dir_all(&options.directory).map_err(|error| io(&options.directory, &error))?;
        let folder = tempfile::tempdir_in(&options.directory).map_err(|error| io(&options.directory, &error))?;
        let port = free_port()?;
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let kinetic = format!("127.0.0.1:{port}");
        let arguments = ["--kinetic", &kinetic, "--kinetic-tls", "127.0.0.1:0", "--scrub-period", "1ms"];
        let drive = DriveProcess::start(&program, &folder.path().join("drive"), &arguments)?;
        let bench = Bench { options, drive, port, service: "scrub", _folder: folder };
        let mut caller = Caller::connect(bench.server()).await?;
        for number in 0..STORED {
            let mut value = vec![0; 1 << 20];
            StdRng::seed_from_u64(number as u64).fill_bytes(&mut value);
            // The last one leaves none that is only written back.
            caller.put(&format!("bench/stored/{number:04}"), &value.into(), number + 1 == STORED).await?;
        }
        bench.warm_up().await?;
        Ok(bench)
    }

    /// Lets the most threads put for a while, so that nothing is measured that a drive does for the first time, or a medium after so much
    /// was written.
    async fn warm_up(&self) -> Result<(), Fault> {
        let threads = self.options.threads.iter().copied().max().unwrap_or(1);
        let puts = Puts { port: self.port, threads, rate: Some(self.options.rate), seed: self.options.runs as u64 };
        let putting = tokio::task::spawn_blocking(move || put_all(puts, WARM_UP_SECONDS));
        putting.await.map_err(|lost| Fault::bug(lost.to_string()))?.map(drop)
    }

    fn server(&self) -> Server {
        Server::Kinetic { port: self.port, process: self.drive.id() }
    }

    async fn tell(&self, order: BackgroundOrder) -> Result<BackgroundStatus, Fault> {
        let target = Target::Drives(vec![self.drive.address().to_owned()]);
        let mut answers = background(&target, &EmbedOptions::default(), &order).await?;
        answers.pop().ok_or_else(|| Fault::new(Blame::Bug, "a drive did not answer"))?.1
    }

    /// Services run under a policy, or rest.
    async fn choose(&self, policy: Option<&'static str>) -> Result<(), Fault> {
        let service = || self.service.to_owned();
        match policy {
            None => self.tell(BackgroundOrder::Pause(service())).await?,
            Some(policy) => {
                self.tell(BackgroundOrder::Policy(policy.to_owned())).await?;
                self.tell(BackgroundOrder::Start(service())).await?
            }
        };
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// The run with the median of means.
    async fn median(&self, policy: Option<&'static str>, threads: usize, rate: Option<f64>) -> Result<Measured, Fault> {
        let mut runs = Vec::new();
        for run in 0..self.options.runs.max(1) {
            self.choose(policy).await?;
            runs.push(self.measure(policy, Puts { port: self.port, threads, rate, seed: run as u64 }).await?);
        }
        runs.sort_by(|a, b| a.latencies.mean_us.total_cmp(&b.latencies.mean_us));
        let measured = runs.swap_remove(runs.len() / 2);
        println!("{}", report::line(&measured));
        Ok(measured)
    }

    async fn measure(&self, policy: Option<&'static str>, puts: Puts) -> Result<Measured, Fault> {
        let (cpu, own) = (self.cpu_seconds(), ProcessUse::of_self().cpu_seconds);
        let scrubbed = self.bytes_of(&self.tell(BackgroundOrder::Look).await?);
        let started = Instant::now();
        let seconds = self.options.seconds;
        let putting = tokio::task::spawn_blocking(move || put_all(puts, seconds));
        let (foreground, background) = self.watch(started + Duration::from_secs_f64(seconds)).await?;
        let mut latencies = putting.await.map_err(|lost| Fault::bug(lost.to_string()))??;
        let took = started.elapsed().as_secs_f64();
        let bytes = self.bytes_of(&self.tell(BackgroundOrder::Look).await?) - scrubbed;
        let count = latencies.len() as f64;
        Ok(Measured {
            policy,
            threads: puts.threads,
            rate: puts.rate,
            latencies: Latencies::of(&mut latencies),
            puts_s: count / took,
            scrub_mb_s: bytes as f64 / took / 1e6,
            foreground,
            background,
            cpu_us: (self.cpu_seconds() - cpu) / count.max(1.0) * 1e6,
            client_cores: (ProcessUse::of_self().cpu_seconds - own) / took,
        })
    }

    /// Bytes that the service has worked over.
    fn bytes_of(&self, status: &BackgroundStatus) -> u64 {
        status.services.iter().find(|service| service.name == self.service).map_or(0, |service| service.bytes)
    }

    fn cpu_seconds(&self) -> f64 {
        ProcessUse::of_process(self.drive.id()).cpu_seconds
    }

    /// Looks at the cores until then; means of their shares.
    async fn watch(&self, until: Instant) -> Result<(Vec<f64>, Vec<f64>), Fault> {
        let (mut foreground, mut background, mut looks) = (Vec::new(), Vec::new(), 0.0);
        while Instant::now() < until {
            tokio::time::sleep(LOOK.min(until - Instant::now())).await;
            let status = self.tell(BackgroundOrder::Look).await?;
            if is_idle(&status, DEDUP) && self.service == DEDUP {
                // Everything is looked at once more, as if it were new.
                self.tell(BackgroundOrder::Stop(DEDUP.to_owned())).await?;
                self.tell(BackgroundOrder::Start(DEDUP.to_owned())).await?;
            }
            let cores = status.cores;
            foreground.resize(cores.len(), 0.0);
            background.resize(cores.len(), 0.0);
            for (index, core) in cores.iter().enumerate() {
                foreground[index] += core.foreground;
                background[index] += core.background;
            }
            looks += 1.0;
        }
        let means = |sums: Vec<f64>| sums.into_iter().map(|sum| sum / looks).collect();
        Ok((means(foreground), means(background)))
    }

    /// Megabytes a second of the scrub while nobody puts.
    async fn scrub_alone(&self) -> Result<f64, Fault> {
        self.choose(Some("shares:1")).await?;
        let (before, started) = (self.bytes_of(&self.tell(BackgroundOrder::Look).await?), Instant::now());
        tokio::time::sleep(Duration::from_secs_f64(self.options.seconds)).await;
        let bytes = self.bytes_of(&self.tell(BackgroundOrder::Look).await?) - before;
        Ok(bytes as f64 / started.elapsed().as_secs_f64() / 1e6)
    }

    /// Microseconds of a step of the scrub.
    async fn step_us(&self) -> Result<f64, Fault> {
        let status = self.tell(BackgroundOrder::Look).await?;
        let scrub = status.services.iter().find(|service| service.name == "scrub");
        Ok(scrub.map_or(f64::NAN, |scrub| scrub.busy_ns as f64 / 1e3 / (scrub.steps as f64).max(1.0)))
    }
}

fn is_idle(status: &BackgroundStatus, service: &str) -> bool {
    status.services.iter().any(|one| one.name == service && one.activity == "idle")
}

/// A policy by the name that it is measured under.
pub(crate) fn policy_of(name: &str) -> BackgroundPolicy {
    name.parse().unwrap_or_default()
}
