//! `pithead bench program`: SSDlets in their sandbox, beside the same code compiled natively.

#[path = "program/data.rs"]
mod data;
#[path = "program/far.rs"]
mod far;
#[path = "program/kernels.rs"]
mod kernels;
#[path = "program/modules.rs"]
mod modules;
#[path = "program/over_link.rs"]
mod over_link;
#[path = "program/predicate.rs"]
mod predicate;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures::future::LocalBoxFuture;
use pithead_model::{Blame, Fault};
use pithead_program::{
    Argument, FolderServices, Limits, Module, ProgramError, Runtime, RuntimeOptions, Services, Signature, Value, decode_rows,
};
use pithead_sched::{Pool, PoolOptions};
use serde::Serialize;

use self::data::{BATCH, numbers, text};
pub use self::far::{ProgramFarOptions, program_far};
use self::over_link::{OverLink, over_link};
use self::predicate::{Predicate, predicate};
use crate::machine::Machine;
use crate::neardata::needs::is_root;
use crate::report::table;
use crate::tables::io;
use crate::timing::Spread;

/// Starts of an empty SSDlet, and round trips between host and drive, of one run.
const STARTS: u32 = 6_400;
/// SSDlets of an application, at most.
const SSDLETS: u32 = 64;
const TRIPS: u64 = 20_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ProgramOptions {
    /// Where module and data are made; they are removed at the end.
    pub directory: PathBuf,
    /// Megabytes of text, and of numbers.
    pub megabytes: usize,
    /// Runs of each; their median counts.
    pub runs: usize,
    /// Where to write everything as JSON.
    pub json: Option<PathBuf>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct ProgramReport {
    machine: Machine,
    megabytes: usize,
    runs: usize,
    shares: Vec<Share>,
    /// In nanoseconds, but for starts: microseconds.
    costs: Vec<Cost>,
    predicate: Predicate,
    /// Not where this machine cannot make a link.
    over_link: Option<OverLink>,
    summary: ProgramSummary,
}

/// The same work in the sandbox and natively, in seconds.
#[derive(Debug, Serialize)]
struct Share {
    work: &'static str,
    guest: Spread,
    native: Spread,
    /// Native time over guest time, by medians.
    share: f64,
}

#[derive(Debug, Serialize)]
struct Cost {
    what: &'static str,
    unit: &'static str,
    cost: Spread,
}

#[derive(Debug, Serialize)]
struct ProgramSummary {
    guest_share_of_native_word_count: f64,
    guest_share_of_native_filter: f64,
    guest_share_of_native_select: f64,
    guest_share_of_native_read: f64,
    host_call_ns: f64,
    fibre_switch_ns: f64,
    port_hop_ns: f64,
    host_round_trip_ns: f64,
    /// To make, run and end an application of one SSDlet that does nothing, on the thread that starts it, as host programs in C++ do.
    instantiate_us: f64,
    /// The same on a reactor, as at a drive: most of it is the wake-ups of two idle cores.
    instantiate_on_reactor_us: f64,
    /// The same of an application of 64 such SSDlets, for each of them.
    ssdlet_of_64_us: f64,
    /// Time of a query with a predicate in WebAssembly over that of the same one in SQL.
    wasm_predicate_vs_native: f64,
    /// Time at the host across a link over time at the drive.
    word_count_gain: Option<f64>,
    search_gain: Option<f64>,
    chasing_gain: Option<f64>,
}

/// Measures, prints a table and writes the JSON.
pub fn program(options: &ProgramOptions) -> LocalBoxFuture<'_, Result<(), Fault>> {
    Box::pin(measure_all(options))
}

async fn measure_all(options: &ProgramOptions) -> Result<(), Fault> {
    let machine = Machine::here();
    println!("{}", machine.line());
    let bench = Bench::make(options).await?;
    let (mut shares, mut costs) = (Vec::new(), Vec::new());
    for (work, ssdlet, file, native) in WORKS {
        shares.push(bench.share(work, ssdlet, file, *native).await?);
    }
    for (what, ssdlet) in [("host call", "calls"), ("fibre switch", "yields")] {
        costs.push(Cost { what, unit: "ns", cost: bench.spread(async || bench.each(ssdlet).await).await? });
    }
    costs.push(Cost { what: "port hop", unit: "ns", cost: bench.spread(async || bench.hop().await).await? });
    costs.push(Cost { what: "host round trip", unit: "ns", cost: bench.spread(async || bench.trip().await).await? });
    let here = bench.spread(async || bench.start(&bench.here, 1).await).await?;
    costs.push(Cost { what: "an application of one SSDlet, made, run and ended on one thread", unit: "us", cost: here });
    let alone = bench.spread(async || bench.start(&bench.on_reactor, 1).await).await?;
    costs.push(Cost { what: "the same on a reactor", unit: "us", cost: alone });
    let of_many = bench.spread(async || bench.start(&bench.on_reactor, SSDLETS).await).await?;
    costs.push(Cost { what: "an SSDlet of 64 in an application, made, run and ended", unit: "us", cost: of_many });
    let predicate = bench.predicate(options.megabytes << 20).await?;
    let over_link = bench.over_link(options.megabytes << 20).await?;
    let gain = |work: &str| over_link.as_ref().and_then(|it| it.gain(work));
    let share = |at: usize| shares.get(at).map_or(f64::NAN, |share| share.share);
    let cost = |at: usize| costs.get(at).map_or(f64::NAN, |cost| cost.cost.median);
    let summary = ProgramSummary {
        guest_share_of_native_word_count: share(0),
        guest_share_of_native_filter: share(1),
        guest_share_of_native_select: share(2),
        guest_share_of_native_read: share(3),
        host_call_ns: cost(0),
        fibre_switch_ns: cost(1),
        port_hop_ns: cost(2),
        host_round_trip_ns: cost(3),
        instantiate_us: cost(4),
        instantiate_on_reactor_us: cost(5),
        ssdlet_of_64_us: cost(6),
        wasm_predicate_vs_native: predicate.ratio,
        word_count_gain: gain("word count"),
        search_gain: gain("string search"),
        chasing_gain: gain("pointer chasing"),
    };
    let (megabytes, runs) = (options.megabytes, options.runs);
    let report = ProgramReport { machine, megabytes, runs, shares, costs, predicate, over_link, summary };
    report.print();
    match &options.json {
        Some(path) => report.write(path),
        None => Ok(()),
    }
}

type Native = fn(&Path) -> Result<(u64, u64), std::io::Error>;

/// What is done, by which SSDlet, over which file, and natively.
const WORKS: &[(&str, &str, &str, Native)] = &[
    ("word count", "words", "text", native_words),
    ("integer filter, count", "count", "numbers", native_count),
    ("integer filter, selection vector", "select", "numbers", native_select),
    ("reads alone", "read", "numbers", native_read),
];

struct Bench {
    on_reactor: Loaded,
    /// The only SSDlet of an application begins on the thread that starts it.
    here: Loaded,
    services: Arc<dyn Services>,
    folder: tempfile::TempDir,
    runs: usize,
}

/// A runtime, and the benchmark's module in it.
struct Loaded {
    runtime: Arc<Runtime>,
    module: Arc<Module>,
}

impl Loaded {
    async fn make(
        pool: Arc<Pool>,
        options: RuntimeOptions,
        module: &[u8],
        services: &Arc<dyn Services>,
    ) -> Result<Self, Fault> {
        let runtime = Runtime::new(pool, options).map_err(fault)?;
        let module = runtime.load("bench", module.to_vec().into(), services).await.map_err(fault)?;
        Ok(Self { runtime, module })
    }

    fn application(&self, services: &Arc<dyn Services>) -> pithead_program::Application {
        self.runtime.application("bench", Arc::clone(services), Limits::default())
    }
}

impl Bench {
    async fn make(options: &ProgramOptions) -> Result<Self, Fault> {
        fs::create_dir_all(&options.directory).map_err(|error| io(&options.directory, &error))?;
        let folder = tempfile::tempdir_in(&options.directory).map_err(|error| io(&options.directory, &error))?;
        let module = modules::ssdlets(folder.path())?;
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).map_err(|error| io(&path, &error))
        };
        write("text", text(options.megabytes << 20).as_bytes())?;
        write("numbers", &numbers(options.megabytes << 20))?;
        let services: Arc<dyn Services> = Arc::new(FolderServices::new(folder.path()).map_err(|error| fault(error.into()))?);
        let pool = PoolOptions { name: "bench".to_owned(), cores: None, reactors: 1, blocking_threads_max: 2 };
        let pool = Arc::new(Pool::new(pool).map_err(|error| Fault::new(Blame::Device, error.to_string()))?);
        let here = RuntimeOptions { starts_here: true, ..RuntimeOptions::default() };
        let here = Loaded::make(Arc::clone(&pool), here, &module, &services).await?;
        let on_reactor = Loaded::make(pool, RuntimeOptions::default(), &module, &services).await?;
        Ok(Self { on_reactor, here, services, folder, runs: options.runs.max(1) })
    }

    fn application(&self) -> pithead_program::Application {
        self.on_reactor.application(&self.services)
    }

    /// A query with a function, over so many bytes of numbers.
    async fn predicate(&self, bytes: usize) -> Result<Predicate, Fault> {
        let folder = self.folder.path();
        modules::function(folder)?;
        predicate(folder, &folder.join("function.wasm"), bytes / 8, self.runs).await
    }

    /// Applications at a drive and at a host, with a link between them; none where there can be no link.
    async fn over_link(&self, bytes: usize) -> Result<Option<OverLink>, Fault> {
        if !is_root() {
            println!("nothing was measured across a link: only root can make one");
            return Ok(None);
        }
        let (folder, runs) = (self.folder.path().to_owned(), self.runs);
        let measured = tokio::task::spawn_blocking(move || over_link(&folder, bytes, runs)).await;
        measured.unwrap_or_else(|lost| Err(Fault::new(Blame::Bug, lost.to_string()))).map(Some)
    }

    /// Runs something several times.
    async fn spread(&self, run: impl AsyncFn() -> Result<f64, Fault>) -> Result<Spread, Fault> {
        let mut figures = Vec::new();
        for _ in 0..self.runs {
            figures.push(run().await?);
        }
        Ok(Spread::of(figures))
    }

    /// The same work in the sandbox and natively, in turns.
    async fn share(&self, work: &'static str, ssdlet: &str, file: &str, native: Native) -> Result<Share, Fault> {
        let path = self.folder.path().join(file);
        let (mut guests, mut natives) = (Vec::new(), Vec::new());
        for _ in 0..self.runs {
            let started = Instant::now();
            let expected = native(&path).map_err(|error| io(&path, &error))?;
            natives.push(started.elapsed().as_secs_f64());
            let (one, other, took_ns) = self.answer(ssdlet, file).await?;
            if (one, other) != expected {
                let what = format!("{work}: the SSDlet found {one} and {other}, and natively it is {expected:?}");
                return Err(Fault::new(Blame::Bug, what));
            }
            guests.push(took_ns as f64 / 1e9);
        }
        let (guest, native) = (Spread::of(guests), Spread::of(natives));
        Ok(Share { work, guest, native, share: native.median / guest.median })
    }

    /// What an SSDlet over a file puts out: two numbers and the nanoseconds that it took.
    async fn answer(&self, ssdlet: &str, file: &str) -> Result<(u64, u64, u64), Fault> {
        let application = self.application();
        let arguments = [Argument::File(file.to_owned())];
        let made = application.ssdlet(&self.on_reactor.module, ssdlet, &arguments).await.map_err(fault)?;
        let reader = application.reader(&made.output(0)).map_err(fault)?;
        application.start().map_err(fault)?;
        let row = row(&reader).await?;
        application.wait().await.map_err(fault)?;
        Ok(row)
    }

    /// Nanoseconds of each of the things that an SSDlet does again and again.
    async fn each(&self, ssdlet: &str) -> Result<f64, Fault> {
        // Of calls it says how many there were, of yields as well; a size is beside the point.
        let (count, _, took_ns) = self.answer(ssdlet, "text").await?;
        Ok(took_ns as f64 / count as f64)
    }

    /// Nanoseconds from an SSDlet to the next one on the same reactor.
    async fn hop(&self) -> Result<f64, Fault> {
        let application = self.application();
        let serve = application.ssdlet(&self.on_reactor.module, "serve", &[]).await.map_err(fault)?;
        let echo = application.ssdlet(&self.on_reactor.module, "echo", &[]).await.map_err(fault)?;
        application.connect(&serve.output(0), &echo.input(0)).map_err(fault)?;
        application.connect(&echo.output(0), &serve.input(0)).map_err(fault)?;
        let reader = application.reader(&serve.output(1)).map_err(fault)?;
        application.start().map_err(fault)?;
        let (hops, _, took_ns) = row(&reader).await?;
        application.wait().await.map_err(fault)?;
        Ok(took_ns as f64 / hops as f64)
    }

    /// Nanoseconds from the host to an SSDlet and back.
    async fn trip(&self) -> Result<f64, Fault> {
        let application = self.application();
        let echo = application.ssdlet(&self.on_reactor.module, "echo", &[]).await.map_err(fault)?;
        let writer = application.writer(&echo.input(0)).map_err(fault)?;
        let reader = application.reader(&echo.output(0)).map_err(fault)?;
        application.start().map_err(fault)?;
        let started = Instant::now();
        for number in 0..TRIPS {
            writer.put_row(&[Value::U64(number)]).await.map_err(fault)?;
            reader.get().await.map_err(fault)?;
        }
        let took = started.elapsed();
        drop(writer);
        application.wait().await.map_err(fault)?;
        Ok(took.as_nanos() as f64 / TRIPS as f64)
    }

    /// Microseconds to make, run and end an SSDlet that does nothing, in applications of so many.
    async fn start(&self, loaded: &Loaded, ssdlets: u32) -> Result<f64, Fault> {
        let started = Instant::now();
        for _ in 0..STARTS / ssdlets {
            let application = loaded.application(&self.services);
            for _ in 0..ssdlets {
                application.ssdlet(&loaded.module, "empty", &[]).await.map_err(fault)?;
            }
            application.start().map_err(fault)?;
            application.wait().await.map_err(fault)?;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(STARTS))
    }
}

/// The one row of three numbers that an SSDlet puts out.
async fn row(reader: &pithead_program::HostReader) -> Result<(u64, u64, u64), Fault> {
    let wrong = || Fault::new(Blame::Bug, "the module of the benchmark puts out something else");
    let Signature::Rows(types) = reader.signature().clone() else { return Err(wrong()) };
    let batch = reader.get().await.map_err(fault)?.ok_or_else(wrong)?;
    let rows = decode_rows(&types, &batch).map_err(|why| Fault::new(Blame::Bug, why))?;
    match rows.first().map(Vec::as_slice) {
        Some([Value::U64(one), Value::U64(other), Value::U64(third)]) => Ok((*one, *other, *third)),
        _ => Err(wrong()),
    }
}

fn fault(error: ProgramError) -> Fault {
    Fault::new(Blame::Bug, error.to_string())
}

fn native_batches(path: &Path, mut take: impl FnMut(&[i64], usize)) -> Result<(), std::io::Error> {
    use std::os::unix::fs::FileExt;
    let (file, mut buffer, mut at) = (File::open(path)?, vec![0_i64; BATCH / 8], 0);
    loop {
        let length = file.read_at(as_bytes(&mut buffer), at)?;
        if length == 0 {
            return Ok(());
        }
        take(&buffer, length);
        at += length as u64;
    }
}

/// The bytes of numbers.
fn as_bytes(numbers: &mut [i64]) -> &mut [u8] {
    // SAFETY: the bytes are those of the numbers, any of them are a number, and bytes may lie anywhere.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

fn native_words(path: &Path) -> Result<(u64, u64), std::io::Error> {
    let mut words = kernels::Words::new();
    let mut file = File::open(path)?;
    let mut buffer = vec![0; BATCH];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(words.finish()),
            length => words.take(&buffer[..length]),
        }
    }
}

fn native_count(path: &Path) -> Result<(u64, u64), std::io::Error> {
    let mut found = 0;
    native_batches(path, |numbers, length| found += kernels::count(&numbers[..length / 8], 250, 500))?;
    Ok((found, 0))
}

fn native_select(path: &Path) -> Result<(u64, u64), std::io::Error> {
    let (mut found, mut sum, mut places) = (0, 0, vec![0; BATCH / 8]);
    native_batches(path, |numbers, length| {
        let count = kernels::select(&numbers[..length / 8], 250, 500, &mut places);
        found += count as u64;
        sum += places[..count].iter().map(|place| u64::from(*place)).sum::<u64>();
    })?;
    Ok((found, sum))
}

fn native_read(path: &Path) -> Result<(u64, u64), std::io::Error> {
    let mut read = 0;
    native_batches(path, |_, length| read += length as u64)?;
    Ok((read, 0))
}

impl ProgramReport {
    fn print(&self) {
        let shares = self.shares.iter().map(|share| {
            let seconds = |spread: &Spread| format!("{:.3}", spread.median);
            vec![share.work.to_owned(), seconds(&share.guest), seconds(&share.native), format!("{:.2}", share.share)]
        });
        println!("{} MB each, {} runs, medians\n", self.megabytes, self.runs);
        println!("{}\n", table(&["work", "SSDlet s", "native s", "share"], &shares.collect::<Vec<_>>()));
        let costs = self.costs.iter().map(|cost| vec![cost.what.to_owned(), format!("{:.1} {}", cost.cost.median, cost.unit)]);
        println!("{}\n", table(&["cost", "median"], &costs.collect::<Vec<_>>()));
        self.predicate.print();
        if let Some(over_link) = &self.over_link {
            over_link.print();
        }
    }

    fn write(&self, path: &Path) -> Result<(), Fault> {
        let json = serde_json::to_vec_pretty(self).map_err(|error| Fault::new(Blame::Bug, error.to_string()))?;
        File::create(path).and_then(|mut file| file.write_all(&json)).map_err(|error| io(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_count_what_is_there() {
        let mut words = kernels::Words::new();
        words.take(b"The end of th");
        words.take(b"e END, the\nend");
        assert_eq!(words.finish(), (7, 3));
        let numbers = [1, 5, 9, 5, 4];
        let mut places = [0; 5];
        assert_eq!((kernels::count(&numbers, 4, 6), kernels::select(&numbers, 4, 6, &mut places)), (3, 3));
        assert_eq!(places[..3], [1, 3, 4]);
    }
}
