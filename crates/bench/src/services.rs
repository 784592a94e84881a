//! `pithead bench services`: what background services cost the foreground, under each policy that places them.
//!
//! After Park et al. 2022 (BTS; see `docs/bibliography.md`): put() of 16 KiB by a number of host threads, beside deduplication that always
//! has something to do, by chunks of 1 KiB (light) and of 0.5 KiB (heavy). The scheduler's simulator runs the same policies, with what was
//! measured of this drive, and over the four cores of that work.

mod costs;
mod dedup;
mod model;
mod puts;
mod queries;
mod report;
mod rows;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::LocalBoxFuture;
use pithead_embed::{BackgroundOrder, BackgroundStatus, DedupSettings, EmbedOptions, Target, background};
use pithead_model::{Blame, Fault};
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
use costs::{Costs, device_bytes};
use model::Model;
use puts::{Latencies, Puts, put_all};
use report::ServicesReport;

/// Bytes of a value that is put, as in Park et al. 2022.
const VALUE_BYTES: usize = 16 << 10;
/// Values that are looked at, of 1 MiB each, no two of which are alike.
const STORED: usize = 192;
/// The service that is measured.
const DEDUP: &str = "dedup";
/// Light and heavy work.
const CHUNKS: [&str; 2] = ["1KiB", "0.5KiB"];
/// How long a policy has to settle.
const SETTLE: Duration = Duration::from_millis(700);
/// How long puts go on before anything is measured.
const WARM_UP_SECONDS: f64 = 3.0;
/// How often cores are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long a drive at rest is looked at.
const REST: Duration = Duration::from_secs(2);
/// The last one is the default.
pub(crate) const POLICIES: [&str; 4] = ["none", "bts", "shares:0.2", BEST];
const BEST: &str = "tail:1.2";
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
    /// The drive's cores, such as `0-3`; none: all of the machine's.
    pub cores: Option<String>,
    /// Where the files are that are stored and deduplicated.
    pub files: PathBuf,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Puts under one policy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// How values are cut by the deduplication beside.
    pub(crate) chunks: &'static str,
    /// None: it was paused.
    pub(crate) policy: Option<&'static str>,
    pub(crate) threads: usize,
    /// Values a second of each thread; none: as fast as they are answered.
    pub(crate) rate: Option<f64>,
    pub(crate) latencies: Latencies,
    pub(crate) puts_s: f64,
    /// What deduplication looked at.
    pub(crate) dedup_mb_s: f64,
    /// Shares of each core, as the drive sees them, on average.
    pub(crate) foreground: Vec<f64>,
    pub(crate) background: Vec<f64>,
    /// CPU time of the drive for a put, with services.
    pub(crate) cpu_us: f64,
    /// Bytes that the drive gave to its medium for a put.
    pub(crate) written_bytes: f64,
    /// CPU of this process, which puts, in cores.
    pub(crate) client_cores: f64,
}

/// Deduplication while nobody puts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Alone {
    pub(crate) chunks: &'static str,
    pub(crate) mb_s: f64,
    /// Microseconds of a step.
    pub(crate) step_us: f64,
    /// Steps in a second.
    pub(crate) steps_s: f64,
    /// CPU time of the drive for a step, and bytes that it reads from the medium.
    pub(crate) step_cpu_us: f64,
    pub(crate) step_read_bytes: f64,
}

/// Measures, prints tables and writes the JSON.
pub fn services(options: &ServicesOptions) -> LocalBoxFuture<'_, Result<(), Fault>> {
    Box::pin(measure_all(options))
}

async fn measure_all(options: &ServicesOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    // What is wrong is said before minutes of measuring.
    let files = dedup::found(&options.files)?;
    if let Some(path) = &options.json {
        std::fs::File::options().append(true).create(true).open(path).map_err(|error| io(path, &error))?;
    }
    std::fs::create_dir_all(&options.directory).map_err(|error| io(&options.directory, &error))?;
    let (directory, cores) = (options.directory.clone(), machine.cores);
    let costs = tokio::task::spawn_blocking(move || Costs::measure(&directory, cores)).await;
    let costs = costs.map_err(|lost| Fault::bug(lost.to_string()))??;
    println!("{}", costs.text());
    let mut bench = Bench::start(options, cores).await?;
    let (seconds, runs, rate) = (options.seconds, options.runs, options.rate);
    let model = Model { costs, rest_cores: bench.at_rest().await, cores, seconds, runs, rate };
    let mut report = ServicesReport::new(machine, options, model);
    for chunks in CHUNKS {
        bench.deduplicate(chunks).await?;
        report.alone.push(bench.alone().await?);
        for threads in &options.threads {
            for policy in all_policies() {
                report.measured.push(bench.median(policy, *threads, Some(options.rate)).await?);
            }
        }
        for policy in all_policies() {
            report.full_load.push(bench.median(policy, FULL_THREADS, None).await?);
        }
    }
    for policy in [None, Some(BEST)] {
        bench.choose(policy).await?;
        report.queries.push(queries::measure(&bench.drive, policy, options.seconds * options.runs as f64).await?);
    }
    bench.drive.stop()?;
    let directory = options.directory.clone();
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

/// Without deduplication, then each policy.
fn all_policies() -> impl Iterator<Item = Option<&'static str>> {
    std::iter::once(None).chain(POLICIES.map(Some))
}

struct Bench<'a> {
    options: &'a ServicesOptions,
    drive: DriveProcess,
    port: u16,
    /// How values are cut.
    chunks: &'static str,
    _folder: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    /// A drive with values to look at.
    async fn start(options: &'a ServicesOptions, cores: usize) -> Result<Self, Fault> {
        let folder = tempfile::tempdir_in(&options.directory).map_err(|error| io(&options.directory, &error))?;
        let port = free_port()?;
        let program = std::env::current_exe().map_err(|error| io(Path::new("pithead"), &error))?;
        let kinetic = format!("127.0.0.1:{port}");
        let cores = options.cores.clone().unwrap_or_else(|| format!("0-{}", cores.saturating_sub(1)));
        let arguments = ["--kinetic", &kinetic, "--kinetic-tls", "127.0.0.1:0", "--cores", &cores];
        let drive = DriveProcess::start(&program, &folder.path().join("drive"), &arguments)?;
        let bench = Bench { options, drive, port, chunks: CHUNKS[0], _folder: folder };
        bench.tell(BackgroundOrder::Pause("scrub".to_owned())).await?;
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

    /// Values are cut so from now on.
    async fn deduplicate(&mut self, chunks: &'static str) -> Result<(), Fault> {
        self.chunks = chunks;
        let settings = DedupSettings { chunks: chunks.to_owned(), domains: Vec::new(), kinetic: true };
        self.tell(BackgroundOrder::Deduplicate(settings)).await.map(drop)
    }

    /// Deduplication runs under a policy, or rests.
    async fn choose(&self, policy: Option<&'static str>) -> Result<(), Fault> {
        match policy {
            None => self.tell(BackgroundOrder::Pause(DEDUP.to_owned())).await?,
            Some(policy) => {
                self.tell(BackgroundOrder::Policy(policy.to_owned())).await?;
                self.tell(BackgroundOrder::Start(DEDUP.to_owned())).await?
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
        println!("{}", rows::line(&measured));
        Ok(measured)
    }

    async fn measure(&self, policy: Option<&'static str>, puts: Puts) -> Result<Measured, Fault> {
        let (cpu, own) = (self.cpu_seconds(), ProcessUse::of_self().cpu_seconds);
        let [_, written] = device_bytes(self.drive.id());
        let before = progress(&self.tell(BackgroundOrder::Look).await?);
        let started = Instant::now();
        let seconds = self.options.seconds;
        let putting = tokio::task::spawn_blocking(move || put_all(puts, seconds));
        let watched = self.watch(before, started + Duration::from_secs_f64(seconds)).await?;
        let mut latencies = putting.await.map_err(|lost| Fault::bug(lost.to_string()))??;
        let took = started.elapsed().as_secs_f64();
        let count = latencies.len() as f64;
        Ok(Measured {
            chunks: self.chunks,
            policy,
            threads: puts.threads,
            rate: puts.rate,
            latencies: Latencies::of(&mut latencies),
            puts_s: count / took,
            dedup_mb_s: watched.done.bytes as f64 / seconds / 1e6,
            foreground: watched.foreground,
            background: watched.background,
            cpu_us: (self.cpu_seconds() - cpu) / count.max(1.0) * 1e6,
            written_bytes: (device_bytes(self.drive.id())[1] - written) / count.max(1.0),
            client_cores: (ProcessUse::of_self().cpu_seconds - own) / took,
        })
    }

    fn cpu_seconds(&self) -> f64 {
        ProcessUse::of_process(self.drive.id()).cpu_seconds
    }

    /// CPU of the drive while nobody asks anything of it, in cores.
    async fn at_rest(&self) -> f64 {
        tokio::time::sleep(SETTLE).await;
        let cpu = self.cpu_seconds();
        tokio::time::sleep(REST).await;
        (self.cpu_seconds() - cpu) / REST.as_secs_f64()
    }

    /// Looks at the cores and at deduplication until then.
    async fn watch(&self, mut before: Progress, until: Instant) -> Result<Watched, Fault> {
        let (mut watched, mut looks) = (Watched::default(), 0.0);
        while Instant::now() < until {
            tokio::time::sleep(LOOK.min(until - Instant::now())).await;
            let mut status = self.tell(BackgroundOrder::Look).await?;
            watched.done += progress(&status) - before;
            if is_idle(&status) {
                // Everything is looked at once more, as if it were new.
                self.tell(BackgroundOrder::Stop(DEDUP.to_owned())).await?;
                status = self.tell(BackgroundOrder::Start(DEDUP.to_owned())).await?;
            }
            before = progress(&status);
            let cores = status.cores;
            watched.foreground.resize(cores.len(), 0.0);
            watched.background.resize(cores.len(), 0.0);
            for (index, core) in cores.iter().enumerate() {
                watched.foreground[index] += core.foreground;
                watched.background[index] += core.background;
            }
            looks += 1.0;
        }
        watched.foreground.iter_mut().chain(&mut watched.background).for_each(|share| *share /= looks);
        Ok(watched)
    }

    /// Deduplication under the best policy while nobody puts.
    async fn alone(&self) -> Result<Alone, Fault> {
        self.choose(Some(BEST)).await?;
        let seconds = self.options.seconds * self.options.runs as f64;
        let (cpu, [read, _]) = (self.cpu_seconds(), device_bytes(self.drive.id()));
        let before = progress(&self.tell(BackgroundOrder::Look).await?);
        let done = self.watch(before, Instant::now() + Duration::from_secs_f64(seconds)).await?.done;
        let steps = (done.steps as f64).max(1.0);
        let alone = Alone {
            chunks: self.chunks,
            mb_s: done.bytes as f64 / seconds / 1e6,
            step_us: done.busy_ns as f64 / 1e3 / steps,
            steps_s: steps / seconds,
            step_cpu_us: (self.cpu_seconds() - cpu) / steps * 1e6,
            step_read_bytes: (device_bytes(self.drive.id())[0] - read) / steps,
        };
        println!("{} alone: {:.0} MB/s, {:.0} µs a step", alone.chunks, alone.mb_s, alone.step_us);
        Ok(alone)
    }
}

/// What was seen of a drive's services.
#[derive(Default)]
struct Watched {
    foreground: Vec<f64>,
    background: Vec<f64>,
    done: Progress,
}

/// What deduplication has done: bytes that it looked at, steps, and the time that these took.
#[derive(Clone, Copy, Default)]
struct Progress {
    bytes: u64,
    steps: u64,
    busy_ns: u64,
}

impl std::ops::Sub for Progress {
    type Output = Progress;

    fn sub(self, before: Progress) -> Progress {
        // A round that began anew counts from 0.
        let since = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        Progress {
            bytes: since(self.bytes, before.bytes),
            steps: since(self.steps, before.steps),
            busy_ns: since(self.busy_ns, before.busy_ns),
        }
    }
}

impl std::ops::AddAssign for Progress {
    fn add_assign(&mut self, more: Progress) {
        (self.bytes, self.steps, self.busy_ns) =
            (self.bytes + more.bytes, self.steps + more.steps, self.busy_ns + more.busy_ns);
    }
}

fn progress(status: &BackgroundStatus) -> Progress {
    let service = status.services.iter().find(|service| service.name == DEDUP);
    service.map_or_else(Progress::default, |it| Progress { bytes: it.bytes, steps: it.steps, busy_ns: it.busy_ns })
}

fn is_idle(status: &BackgroundStatus) -> bool {
    status.services.iter().any(|one| one.name == DEDUP && one.activity == "idle")
}

/// A policy by the name that it is measured under.
pub(crate) fn policy_of(name: &str) -> BackgroundPolicy {
    name.parse().unwrap_or_default()
}
