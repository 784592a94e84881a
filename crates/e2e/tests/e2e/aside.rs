//! A home that was declared lost and was not: what it changed meanwhile is set aside, listed, taken up by two hosts at once, and
//! dropped, by the program itself.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pithead_e2e::{DriveProcess, block_on, collect, pithead};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_fleet::RepairSpec;
use pithead_model::DriveId;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

async fn attach(processes: &[&DriveProcess]) -> Engine {
    let target = Target::Drives(processes.iter().map(|process| process.address().to_owned()).collect());
    connect(&target, &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

/// One field of an answer of one row.
async fn one(engine: &Engine, statement: &str) -> String {
    let answer = collect(&engine.host.session(), statement).await.unwrap_or_else(|fault| panic!("{statement}: {fault}"));
    answer.rows[0][0].clone()
}

fn command(drives: &[&DriveProcess], arguments: &[&str]) -> Command {
    let addresses: Vec<&str> = drives.iter().map(|process| process.address()).collect();
    let mut command = Command::new(pithead());
    command.args(arguments).args(["--drives", &addresses.join(",")]);
    command
}

fn run(drives: &[&DriveProcess], arguments: &[&str]) -> String {
    let output = command(drives, arguments).output().expect("pithead runs");
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A file with the numbers of a range.
fn numbers(folder: &Path, range: std::ops::Range<u32>) -> String {
    let path = folder.join(format!("{}.csv", range.start));
    let lines: Vec<String> = range.map(|number| number.to_string()).collect();
    std::fs::write(&path, format!("n\n{}\n", lines.join("\n"))).expect("a file");
    path.to_str().expect("text").to_owned()
}

/// Two drives, of which the first one is home and has the only copy of `t`; their identities.
fn two_drives(folder: &Path) -> (DriveProcess, DriveProcess, DriveId) {
    let mut processes = DriveProcess::start_many(folder, 2, &["--collect-after", "1"]);
    let all: Vec<&DriveProcess> = processes.iter().collect();
    run(&all, &["load", "t", &numbers(folder, 0..100), "--partitions", "1", "--quiet"]);
    let (home, at) = block_on(async {
        let engine = attach(&all).await;
        let snapshot = engine.host.fleet().snapshot().await.unwrap();
        let home = snapshot.dataset(&"t".parse().unwrap()).unwrap().1.partitions[0].copies[0];
        let drives = engine.host.fleet().drives();
        let label = drives.iter().find(|drive| drive.id() == home).unwrap().label().to_owned();
        engine.shutdown().await;
        (home, all.iter().position(|process| process.address() == label).unwrap())
    });
    let first = processes.remove(at);
    (first, processes.remove(0), home)
}

/// A host that reaches the other drive alone takes the home for lost.
fn declare_lost(other: &DriveProcess, home: DriveId) {
    block_on(async {
        let engine = attach(&[other]).await;
        let spec = RepairSpec { lost: Some(home), drop_lost: false };
        let report = engine.host.fleet().repair(&spec, Arc::new(|_| ())).await.unwrap();
        assert_eq!(report.homes, ["main"], "{report:?}");
        engine.shutdown().await;
    });
}

fn asides(drives: &[&DriveProcess]) -> Vec<serde_json::Value> {
    let lines = run(drives, &["drive", "aside", "ls", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn a_home_that_was_put_back_from_an_older_copy_is_told_of() {
    let directory = TempDir::new().unwrap();
    let (mut home, other, id) = two_drives(directory.path());
    let copied = directory.path().join("copied");
    let copy = |from: &Path, to: &Path| {
        let done = Command::new("cp").arg("-r").args([from, to]).status().expect("cp runs");
        assert!(done.success(), "{} to {}", from.display(), to.display());
    };
    home.terminate();
    copy(home.data(), &copied);
    home.restart();
    let load = ["load", "t", &numbers(directory.path(), 100..150), "--append", "--quiet"];
    let before = command(&[&home, &other], &load).output().unwrap();
    assert!(before.status.success() && !said(&before).contains("older copy"), "{}", said(&before));
    home.terminate();
    std::fs::remove_dir_all(home.data()).unwrap();
    copy(&copied, home.data());
    home.restart();
    let told = said(&command(&[&home, &other], &["ls"]).output().unwrap());
    assert!(told.contains("put back from an older copy") && told.contains(&format!("repair --lost {id}")), "{told}");
}

#[test]
fn what_a_home_that_was_not_lost_changed_is_taken_up_once_and_dropped() {
    let directory = TempDir::new().unwrap();
    let (home, other, id) = two_drives(directory.path());
    declare_lost(&other, id);
    run(&[&home], &["load", "t", &numbers(directory.path(), 100..150), "--append", "--quiet"]);
    run(&[&home], &["load", "fresh", &numbers(directory.path(), 1_000..1_030), "--partitions", "1", "--quiet"]);
    let both = [&home, &other];
    let count = |table: &str| {
        block_on(async {
            let engine = attach(&both).await;
            let count = one(&engine, &format!("SELECT count(*) || ' ' || coalesce(sum(n), 0) FROM {table}")).await;
            engine.shutdown().await;
            count
        })
    };
    let found = asides(&both);
    assert_eq!(found.len(), 1, "{found:?}");
    let told = |number: usize| {
        let dataset = &found[0]["datasets"][number];
        ["dataset", "there", "rows", "rows_here"].map(|field| dataset[field].to_string().replace('"', ""))
    };
    assert_eq!([told(0), told(1)], [["fresh", "nothing", "30", "30"], ["t", "lacks", "50", "50"]]);
    assert_eq!(count("t"), "100 4950", "the domain has what the next home knew");
    // The drive looks for what nothing names each second or so, and leaves these rows alone.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(asides(&both), found);

    let mut takers: Vec<_> = (0..3).map(|_| command(&both, &["drive", "aside", "take", "t"]).spawn().unwrap()).collect();
    let done = takers.iter_mut().map(|taker| taker.wait().unwrap()).filter(|status| status.success()).count();
    assert_eq!((done, count("t")), (1, "150 11175".to_owned()), "one of them has taken the rows up");
    let again = command(&both, &["drive", "aside", "take", "t"]).output().unwrap();
    assert!(again.status.code() == Some(3) && said(&again).contains("has all rows of it already"), "{}", said(&again));
    run(&both, &["drive", "aside", "take", "fresh", "--into", "fresh_of_home", "--quiet"]);
    assert_eq!(count("fresh_of_home"), "30 30435");
    run(&both, &["drive", "aside", "take", "fresh", "--drive", &id.to_string(), "--quiet"]);
    assert_eq!(count("fresh"), "30 30435");
    let wrong = command(&both, &["drive", "aside", "take", "fresh", "--into", "t"]).output().unwrap();
    assert!(wrong.status.success(), "the same columns, laid out alike: {}", said(&wrong));
    assert_eq!(count("t"), "180 41610");
    run(&both, &["sql", "-c", "DROP TABLE fresh"]);

    let (domain, version) = ("main", found[0]["version"].to_string());
    run(&both, &["drive", "aside", "drop", home.address(), domain, &version]);
    let twice = command(&both, &["drive", "aside", "drop", home.address(), domain, &version]).output().unwrap();
    assert!(twice.status.code() == Some(3) && said(&twice).contains("aside ls"), "{}", said(&twice));
    assert!(asides(&both).is_empty());
    // What only the manifest that was dropped named goes; what was taken up stays.
    let start = Instant::now();
    while slices(&both, "fresh") > 0 {
        assert!(start.elapsed() < LIMIT, "the drive keeps what nothing names");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!((count("t"), count("fresh_of_home")), ("180 41610".to_owned(), "30 30435".to_owned()));
}

/// Slices of a dataset that the drives have, whatever names them.
fn slices(drives: &[&DriveProcess], dataset: &str) -> u64 {
    block_on(async {
        let engine = attach(drives).await;
        let mut slices = 0;
        for (_, status) in engine.host.fleet().status().await {
            let held = status.unwrap().partitions;
            slices += held.iter().filter(|held| held.name.dataset == dataset).map(|held| held.slices).sum::<u64>();
        }
        engine.shutdown().await;
        slices
    })
}

#[test]
fn a_home_that_is_declared_lost_twice_sets_both_aside() {
    let directory = TempDir::new().unwrap();
    let (home, other, id) = two_drives(directory.path());
    let both = [&home, &other];
    for round in 0..2 {
        declare_lost(&other, id);
        let file = numbers(directory.path(), 1_000 * (round + 1)..1_000 * (round + 1) + 10);
        for name in (0..=round).map(|number| format!("extra_{number}")) {
            run(&[&home], &["load", &name, &file, "--partitions", "1", "--quiet", "--replace"]);
        }
        assert_eq!(asides(&both).len(), round as usize + 1);
        if round == 0 {
            // It becomes home again.
            let other_id = block_on(async {
                let engine = attach(&both).await;
                let drives = engine.host.fleet().drives();
                let found = drives.iter().find(|drive| drive.id() != id).unwrap().id();
                engine.shutdown().await;
                found
            });
            run(&both, &["drive", "add", home.address(), "--quiet"]);
            run(&both, &["drive", "drain", &other_id.to_string(), "--quiet"]);
        }
    }
    let unsure = command(&both, &["drive", "aside", "take", "extra_0"]).output().unwrap();
    assert!(said(&unsure).contains("--version N"), "both have it: {}", said(&unsure));
    let version = asides(&both)[0]["version"].to_string();
    run(&both, &["drive", "aside", "take", "extra_0", "--version", &version, "--quiet"]);
}
