//! Several hosts that load, move, repair and drop over the same drives at one time, while drives are killed: what was acknowledged is
//! there, once, and what nothing names goes. By seed: `PITHEAD_HOSTS_SEED`, `PITHEAD_HOSTS_OPERATIONS`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream;
use pithead_e2e::{DriveProcess, block_on, collect};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_fleet::RepairSpec;
use pithead_host::{LoadMode, LoadSpec, PartitionBy};
use pithead_model::{Blame, DriveId, Fault};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

const DRIVES: usize = 3;
const HOSTS: usize = 3;
/// Rows of a load.
const ROWS: i64 = 60;
/// Appends of a trickle.
const TRICKLE: i64 = 12;
const OPERATIONS: usize = 60;
/// Operations after which a long run says how far it is.
const TOLD_EVERY: usize = 500;
/// Longest that anything takes.
const LIMIT: Duration = Duration::from_secs(120);
/// Longest until what nothing names has gone.
const COLLECT_LIMIT: Duration = Duration::from_secs(60);

/// What a host is asked to do.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Adds a load of this number to the dataset that only grows.
    Append(i64),
    /// Adds several, one after the other, so that small runs are merged.
    Trickle(i64),
    /// Puts a load in place of another dataset's rows.
    Replace(i64),
    /// Adds one to it, where it is there.
    Add(i64),
    Drop,
    /// Moves everything off a drive.
    Drain(usize),
    Repair,
    Ask,
}

/// What was promised of the dataset that only grows, by number of load.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<i64>,
    /// Loads that ended with a fault.
    failed: BTreeSet<i64>,
    faults: BTreeMap<String, usize>,
    operations: usize,
    kills: usize,
}

/// How an operation ended.
struct Outcome {
    /// Loads of the dataset that only grows, and whether each was acknowledged.
    appended: Vec<(i64, bool)>,
    result: Result<(), Fault>,
}

impl Outcome {
    fn of(result: Result<(), Fault>) -> Self {
        Self { appended: vec![], result }
    }
}

async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn hosts_that_act_at_one_time_lose_nothing() {
    let seed = number("PITHEAD_HOSTS_SEED", 14);
    let operations = number("PITHEAD_HOSTS_OPERATIONS", OPERATIONS as u64) as usize;
    println!("PITHEAD_HOSTS_SEED={seed}, {operations} operations");
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), DRIVES, &["--collect-after", "3"]);
        let mut engines = Vec::new();
        for _ in 0..HOSTS {
            engines.push(attach(&processes).await);
        }
        load(&engines[0], "kept", LoadMode::Create, 0).await.unwrap();
        let mut ledger = Ledger { acknowledged: [0].into(), ..Ledger::default() };
        let mut random = StdRng::seed_from_u64(seed);
        while ledger.operations < operations {
            step(&engines, &mut processes, &mut random, &mut ledger).await;
            check_kept(&engines[ledger.operations % HOSTS], &ledger, seed).await;
        }
        println!(
            "{} operations, {} kills, {} loads acknowledged, {} not; faults: {:?}",
            ledger.operations,
            ledger.kills,
            ledger.acknowledged.len(),
            ledger.failed.len(),
            ledger.faults
        );
        assert!(ledger.acknowledged.len() > operations / 20, "hardly a load was acknowledged");
        check_nothing_left(&engines[0]).await;
        check_kept(&engines[0], &ledger, seed).await;
        check_merged(&engines[0], &ledger).await;
    });
}

/// Some operations at one time, each at a host of its own; sometimes a drive is killed meanwhile.
async fn step(engines: &[Engine], processes: &mut [DriveProcess], random: &mut StdRng, ledger: &mut Ledger) {
    let first = ledger.operations as i64 + 1;
    let count = random.random_range(1..=engines.len());
    let chosen: Vec<Operation> = (0..count as i64).map(|place| choose(random, first + place)).collect();
    let victim = (random.random_range(0..6) == 0).then(|| random.random_range(0..processes.len()));
    let strike = async {
        if let Some(victim) = victim {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..40))).await;
            processes[victim].restart();
        }
    };
    let work = join_all(engines.iter().zip(&chosen).map(|(engine, operation)| perform(engine, *operation)));
    let (outcomes, ()) =
        tokio::time::timeout(LIMIT, async { tokio::join!(work, strike) }).await.expect("an end within the limit");
    ledger.operations += count;
    if ledger.operations % TOLD_EVERY < count {
        println!("{} operations so far", ledger.operations);
    }
    ledger.kills += usize::from(victim.is_some());
    for (operation, outcome) in chosen.into_iter().zip(outcomes) {
        for (load, is_acknowledged) in outcome.appended {
            let loads = if is_acknowledged { &mut ledger.acknowledged } else { &mut ledger.failed };
            loads.insert(load);
        }
        let Err(fault) = outcome.result else { continue };
        assert!(!matches!(fault.blame, Blame::Bug | Blame::Corrupt), "{operation:?}: {fault}");
        // A host goes on without a drive that it has missed once, until it meets it again.
        assert!(ledger.kills > 0 || !matches!(fault.blame, Blame::Device), "no drive was killed, and {operation:?}: {fault}");
        *ledger.faults.entry(format!("{:?}", fault.blame)).or_default() += 1;
    }
}

fn choose(random: &mut StdRng, load: i64) -> Operation {
    match random.random_range(0..13) {
        0..=2 => Operation::Append(load),
        3..=4 => Operation::Trickle(load),
        5 => Operation::Replace(load),
        6 => Operation::Add(load),
        7 => Operation::Drop,
        8..=10 => Operation::Drain(random.random_range(0..DRIVES)),
        11 => Operation::Repair,
        _ => Operation::Ask,
    }
}

async fn perform(engine: &Engine, operation: Operation) -> Outcome {
    match operation {
        Operation::Append(number) => append(engine, number..number + 1).await,
        Operation::Trickle(number) => append(engine, number * 1_000_000..number * 1_000_000 + TRICKLE).await,
        other => Outcome::of(perform_other(engine, other).await),
    }
}

/// Adds loads until one fails.
async fn append(engine: &Engine, numbers: std::ops::Range<i64>) -> Outcome {
    let mut outcome = Outcome::of(Ok(()));
    for number in numbers {
        outcome.result = load(engine, "kept", LoadMode::Append, number).await;
        outcome.appended.push((number, outcome.result.is_ok()));
        if outcome.result.is_err() {
            break;
        }
    }
    outcome
}

async fn perform_other(engine: &Engine, operation: Operation) -> Result<(), Fault> {
    let quiet = || Arc::new(|_| ());
    match operation {
        Operation::Append(_) | Operation::Trickle(_) => unreachable!("they have their own ledger"),
        Operation::Replace(number) => load(engine, "other", LoadMode::Replace, number).await,
        Operation::Add(number) => load(engine, "other", LoadMode::Append, number).await,
        Operation::Drop => engine.host.fleet().drop_dataset(&"other".parse().unwrap()).await,
        Operation::Drain(place) => {
            let mut ids: Vec<DriveId> = engine.host.fleet().drives().iter().map(|drive| drive.id()).collect();
            ids.sort();
            engine.host.fleet().drain(ids[place % ids.len()], quiet()).await.map(drop)
        }
        Operation::Repair => {
            let report = engine.host.fleet().repair(&RepairSpec::default(), quiet()).await?;
            // A run that is moved or dropped while it is checked is missing where it was.
            assert!(report.lost.is_empty(), "{report:?}");
            Ok(())
        }
        Operation::Ask => match collect(&engine.host.session(), "SELECT l, count(*) FROM other GROUP BY l").await {
            Ok(table) => {
                assert!(table.rows.iter().all(|row| row[1] == ROWS.to_string()), "half a load: {:?}", table.rows);
                Ok(())
            }
            Err(fault) => Err(fault),
        },
    }
}

async fn load(engine: &Engine, name: &str, mode: LoadMode, number: i64) -> Result<(), Fault> {
    let numbers: ArrayRef = Arc::new(Int64Array::from_value(number, ROWS as usize));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let batch = RecordBatch::try_from_iter([("l", numbers), ("k", keys)]).unwrap();
    let is_new = mode != LoadMode::Append;
    let spec = LoadSpec {
        mode,
        partitioning: is_new.then(|| PartitionBy::Hash(vec!["k".into()])),
        partitions: is_new.then_some(DRIVES),
        copies: (is_new && name == "kept").then_some(2),
        // Runs of less than a slice are merged; those of the other dataset have several slices.
        slice_rows: is_new.then_some(if name == "kept" { 4_096 } else { 16 }),
        ..LoadSpec::new(name.parse().unwrap(), vec![])
    };
    engine.host.load_batches(spec, batch.schema(), stream::iter([Ok(batch)]).boxed()).await.map(drop)
}

/// Every load that was acknowledged is there, whole and once; another one whole or not at all.
async fn check_kept(engine: &Engine, ledger: &Ledger, seed: u64) {
    let session = engine.host.session();
    collect(&session, "SET pithead.summary_cache = off").await.unwrap();
    let asked = collect(&session, "SELECT l, count(*), count(DISTINCT k) FROM kept GROUP BY l");
    let rows = asked.await.unwrap_or_else(|fault| panic!("seed {seed}, {} operations: {fault}", ledger.operations)).rows;
    let there: BTreeSet<i64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    let lost: Vec<&i64> = ledger.acknowledged.difference(&there).collect();
    assert!(lost.is_empty(), "seed {seed}, {} operations: acknowledged and not there: {lost:?}", ledger.operations);
    let all: BTreeSet<i64> = ledger.acknowledged.union(&ledger.failed).copied().collect();
    assert!(there.is_subset(&all), "seed {seed}: {:?}", there.difference(&all));
    let whole = ROWS.to_string();
    assert!(rows.iter().all(|row| row[1] == whole && row[2] == whole), "seed {seed}: not whole, or twice: {rows:?}");
}

/// Runs were merged, so there are far fewer of them than loads.
async fn check_merged(engine: &Engine, ledger: &Ledger) {
    let snapshot = engine.host.fleet().snapshot().await.unwrap();
    let (_, dataset) = snapshot.dataset(&"kept".parse().unwrap()).expect("it is there");
    let runs: Vec<usize> = dataset.partitions.iter().map(|partition| partition.runs.len()).collect();
    println!("runs by partition: {runs:?}, merged last in version {}", dataset.merged);
    assert!(dataset.merged > 0 && runs.iter().all(|runs| 2 * runs <= ledger.acknowledged.len()), "{runs:?}");
}

/// What loads and moves left goes, and nothing else: drives hold as many slices as the manifest names.
async fn check_nothing_left(engine: &Engine) {
    let start = Instant::now();
    loop {
        let snapshot = engine.host.fleet().snapshot().await.unwrap();
        let (manifest, _) = snapshot.dataset(&"kept".parse().unwrap()).expect("it is there");
        let partitions = manifest.datasets.values().flat_map(|dataset| &dataset.partitions);
        let named: u64 = partitions
            .map(|partition| {
                partition.copies.len() as u64 * partition.runs.iter().map(|run| u64::from(run.slices)).sum::<u64>()
            })
            .sum();
        let statuses = join_all(engine.host.fleet().drives().iter().map(|drive| drive.door.status())).await;
        let held: u64 = statuses.into_iter().map(|status| status.unwrap().slices).sum();
        if held == named {
            return;
        }
        assert!(start.elapsed() < COLLECT_LIMIT, "drives hold {held} slices, and {named} are named");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A host that is killed in the midst of a load leaves a run at the drive that was done first; the drive deletes it.
#[test]
fn what_a_killed_host_left_is_collected() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &["--collect-after", "2"]);
        let engine = attach(&processes).await;
        let rows = directory.path().join("rows.csv");
        std::fs::write(&rows, (0..2000).fold("a\n".to_owned(), |text, row| format!("{text}{row}\n"))).unwrap();
        let drives = format!("{},{}", processes[0].address(), processes[1].address());
        let mut loading = std::process::Command::new(pithead_e2e::pithead());
        loading.args(["load", "never", "--drives", &drives]).arg(&rows);
        let status = |drive: usize| {
            let door = Arc::clone(&engine.host.fleet().drives()[drive].door);
            async move { door.status().await.unwrap().slices }
        };
        let mut child = loading.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        // It has greeted both drives before its rows reach them.
        let start = Instant::now();
        while status(0).await == 0 && start.elapsed() < LIMIT {
            if child.try_wait().unwrap().is_some() {
                break;
            }
        }
        let _ = child.kill();
        child.wait().unwrap();
        // If it had claimed its runs already, the next change of the domain tells the drives that its own one never came.
        load(&engine, "kept", LoadMode::Create, 0).await.unwrap();
        check_nothing_left(&engine).await;
    });
}

/// A regression: a host saw none of the domains that others made after it had connected.
#[test]
fn a_domain_that_another_host_makes_is_found_once_it_is_named() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 2, &[]);
        let (maker, other) = (attach(&processes).await, attach(&processes).await);
        load(&maker, "here", LoadMode::Create, 1).await.unwrap();
        let count = |rows: Vec<Vec<String>>| rows[0][0].clone();
        assert_eq!(count(collect(&other.host.session(), "SELECT count(*) FROM here").await.unwrap().rows), ROWS.to_string());
        // Drives are asked again at most once a second.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        load(&maker, "elsewhere.fresh", LoadMode::Create, 2).await.unwrap();
        let found = collect(&other.host.session(), "SELECT count(*) FROM elsewhere.fresh").await;
        assert_eq!(count(found.unwrap_or_else(|fault| panic!("{fault}")).rows), ROWS.to_string());
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        let fault =
            collect(&other.host.session(), "SELECT count(*) FROM nowhere.nothing").await.expect_err("no host has made it");
        assert!(fault.blame == Blame::User && fault.message.contains("there is no domain nowhere"), "{fault}");
        // Statements that write find one as well, and what tells the types of their parameters.
        let csv = directory.path().join("rows.csv");
        std::fs::write(&csv, "l,k\n7,1\n").unwrap();
        let copy = format!("COPY third.fresh FROM '{}'", csv.display());
        let writing = ["INSERT INTO second.fresh SELECT * FROM here", &copy, "DELETE FROM fifth.fresh"];
        for (domain, sql) in ["second", "third", "fifth"].into_iter().zip(writing) {
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            load(&maker, &format!("{domain}.fresh"), LoadMode::Create, 2).await.unwrap();
            let wrote = collect(&other.host.session().with_files(), sql).await;
            wrote.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        load(&maker, "fourth.fresh", LoadMode::Create, 2).await.unwrap();
        let types = other.host.session().placeholder_fields("DELETE FROM fourth.fresh WHERE k = $1").await.unwrap();
        assert!(types[0].is_some(), "{types:?}");
    });
}
