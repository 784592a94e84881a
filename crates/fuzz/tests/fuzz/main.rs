//! All targets, run one after another: the stored corpus first, then mutants for some seconds.
//!
//! `fuzz [NAME...]` runs the targets whose names contain one of these, all without; `fuzz replay NAME FILE...` judges inputs;
//! `fuzz shrink NAME FILE` makes one smaller that ends the process. `PITHEAD_FUZZ_S` are seconds for each target,
//! `PITHEAD_FUZZ_SEED` is the seed, `PITHEAD_FUZZ_CASES` a bound on mutants.

mod annotations;
#[path = "../../../slice/tests/conformance/data.rs"]
mod data;
mod devices;
mod files;
#[path = "../../../program/src/tests/functions_guest.rs"]
mod functions_guest;
#[path = "../../../program/src/tests/guests.rs"]
mod guests;
mod kinetic;
mod link;
mod matrices;
mod medium;
mod postgres;
mod programs;
#[path = "../../../program/src/tests/runner.rs"]
mod runner;
mod sessions;
mod slices;
mod stores;
mod workers;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use pithead_fuzz::{Budget, CountingAllocator, Judge, Outcome, Seed, Target, Totals, Watch, replay, run, shrink};
use pithead_model::{Blame, Fault};
use sessions::Rig;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Seconds for each target, unless more are asked for.
const SECONDS: f64 = 1.5;
/// Mutants meanwhile, so that a fast machine finds nothing on its own that others did not.
const CASES: u64 = 2_000;
const SEED: u64 = 20_261_121;

type Make = Box<dyn Fn() -> Vec<Target>>;

/// Every target, in groups that are made together. Those of later groups share a host and a drive.
fn groups() -> Vec<(&'static [&'static str], Make)> {
    let rig: LazyLock<Arc<Rig>> = LazyLock::new(|| Arc::new(Rig::new()));
    let rig = Arc::new(rig);
    let for_files = Arc::clone(&rig);
    vec![
        (&link::NAMES, Box::new(link::targets)),
        (&workers::NAMES, Box::new(workers::targets)),
        (&kinetic::NAMES, Box::new(kinetic::targets)),
        (&postgres::NAMES, Box::new(postgres::targets)),
        (&programs::NAMES, Box::new(programs::targets)),
        (&matrices::NAMES, Box::new(matrices::targets)),
        (&devices::NAMES, Box::new(devices::targets)),
        (&annotations::NAMES, Box::new(annotations::targets)),
        (&slices::NAMES, Box::new(slices::targets)),
        (&stores::NAMES, Box::new(stores::targets)),
        (&sessions::NAMES, Box::new(move || sessions::targets(&rig))),
        (&files::NAMES, Box::new(move || files::targets(&for_files))),
    ]
}

/// What a fault says of the decoder: bytes from outside are never our mistake.
fn refused(fault: &Fault) -> Outcome {
    match fault.blame {
        Blame::Bug => Outcome::Wrong(fault.message.clone()),
        _ => Outcome::Refused,
    }
}

fn outcome<T>(result: Result<T, Fault>) -> Outcome {
    result.map_or_else(|fault| refused(&fault), |_| Outcome::Accepted)
}

fn main() -> ExitCode {
    // The test harness's own flags mean nothing here.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match &words[..] {
        ["replay", name, files @ ..] => replay_files(name, files),
        ["shrink", name, file] => shrink_file(name, Path::new(file)),
        filters => run_all(filters),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(filters: &[&str]) -> Result<bool, Box<dyn Error>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = number("PITHEAD_FUZZ_S");
    let cases = if seconds.is_some() { u64::MAX } else { CASES };
    let budget = Budget {
        time: Duration::from_secs_f64(seconds.unwrap_or(SECONDS)),
        cases: number("PITHEAD_FUZZ_CASES").map_or(cases, |cases| cases as u64),
        seed: number("PITHEAD_FUZZ_SEED").map_or(SEED, |seed| seed as u64),
    };
    println!("PITHEAD_FUZZ_SEED={} PITHEAD_FUZZ_S={}", budget.seed, budget.time.as_secs_f64());
    println!("{:<16} {:>5} {:>9} {:>7} {:>9} {:>6}", "target", "seeds", "mutants", "valid", "peak kB", "s");
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    let mut failures = 0;
    let mut judge = None;
    for (names, make) in groups() {
        if !names.iter().any(|name| wanted(name)) {
            continue;
        }
        let targets = make();
        let judge = match &mut judge {
            Some(judge) => judge,
            None => judge.insert(new_judge()?),
        };
        for target in targets.iter().filter(|target| wanted(target.name)) {
            let started = Instant::now();
            let corpus = corpus(target.name)?;
            let totals = run(target, &corpus, judge, budget, &failed_folder())?;
            tell(target, corpus.len(), &totals, started.elapsed());
            failures += totals.failures.len();
        }
    }
    for (place, count) in judge.iter().flat_map(|judge| judge.caught()) {
        println!("caught {count:>7} panics of a library at {place}");
    }
    Ok(failures == 0)
}

fn tell(target: &Target, corpus: usize, totals: &Totals, took: Duration) {
    let Totals { cases, accepted, peak, failures } = totals;
    let (seeds, peak) = (target.seeds.len() + corpus, peak / 1_024);
    println!("{:<16} {seeds:>5} {cases:>9} {accepted:>7} {peak:>9} {:>6.1}", target.name, took.as_secs_f64());
    for (file, failure) in failures {
        println!("  FAILED: {failure}\n  input: {}", file.display());
    }
}

fn new_judge() -> Result<Judge, Box<dyn Error>> {
    std::fs::create_dir_all(failed_folder())?;
    // The store sets a panic hook when it is first used, which must not hide panics from the judge.
    stores::warm_up();
    // Vortex's errors may hold backtraces, of which the first reads the binary's debug info.
    drop(std::backtrace::Backtrace::force_capture().to_string());
    Ok(Judge::new(Watch::start(&failed_folder().join("last-case"))?))
}

fn target(name: &str) -> Result<Target, Box<dyn Error>> {
    let group = groups().into_iter().find(|(names, _)| names.contains(&name));
    let (_, make) = group.ok_or_else(|| {
        let known: Vec<&str> = groups().into_iter().flat_map(|(names, _)| names.iter().copied()).collect();
        format!("no target {name}; they are {}", known.join(", "))
    })?;
    make().into_iter().find(|target| target.name == name).ok_or_else(|| format!("no target {name}").into())
}

fn replay_files(name: &str, files: &[&str]) -> Result<bool, Box<dyn Error>> {
    let target = target(name)?;
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let totals = replay(&target, &files, &mut new_judge()?)?;
    tell(&target, 0, &totals, Duration::ZERO);
    Ok(totals.failures.is_empty())
}

/// Each try is a process of its own, since each may end it.
fn shrink_file(name: &str, file: &Path) -> Result<bool, Box<dyn Error>> {
    let target = target(name)?;
    let program = std::env::current_exe()?;
    let trial = failed_folder().join("trial");
    let fails = |input: &[u8]| {
        let status = std::fs::write(&trial, input).and_then(|()| {
            let mut command = Command::new(&program);
            command.args(["replay", name]).arg(&trial).stdout(Stdio::null()).stderr(Stdio::null()).status()
        });
        // A failure that is told is another one than that which ends the process.
        status.is_ok_and(|status| status.code().is_none())
    };
    let small = shrink(&target, &std::fs::read(file)?, fails);
    let into = file.with_extension("small");
    std::fs::write(&into, &small)?;
    println!("{} bytes: {}", small.len(), into.display());
    Ok(true)
}

/// Inputs that once failed.
fn corpus(name: &str) -> std::io::Result<Vec<Seed>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut seeds = Vec::new();
    if folder.is_dir() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            seeds.push(Seed::hostile(path.file_name().unwrap_or_default().to_string_lossy(), std::fs::read(&path)?));
        }
    }
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(seeds)
}

/// Where failing inputs are written.
fn failed_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz")
}
