//! Background services of real drives: they run beside queries, do what they are told, find damage, and go on after a kill.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pithead_e2e::tpch::{parquet, spec};
use pithead_e2e::{DriveProcess, block_on, collect, damage, free_address, load, pithead};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Longer than anything here takes, on a machine that has other things to do.
const LIMIT: Duration = Duration::from_secs(120);

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(pithead());
    command.args(arguments).env_remove("PITHEAD_DRIVES").env_remove("PITHEAD_DATA").env("NO_COLOR", "1").stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(super) fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("what is shown is UTF-8")
}

/// Background work of the drive at an address, as `pithead service ls --json` has it.
fn background(address: &str) -> Json {
    serde_json::from_str(&done(&["service", "ls", "--json", "--drives", address])).unwrap()
}

pub(super) fn service(address: &str, name: &str) -> Json {
    let background = background(address);
    let services = background["services"].as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap_or_else(|| panic!("no {name}: {background}")).clone()
}

fn tell(address: &str, words: &[&str]) {
    done(&[&["service"], words, &["--drives", address]].concat());
}

pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) async fn attach(process: &DriveProcess) -> Engine {
    let target = Target::Drives(vec![process.address().to_owned()]);
    connect(&target, &EmbedOptions::default()).await.unwrap()
}

fn loaded(process: &DriveProcess, table: &str) {
    block_on(async {
        let engine = attach(process).await;
        load(&engine, spec(table, "vortex")).await.unwrap();
    });
}

/// A drive that was opened with tables in it, whose scrub begins now.
fn serve_loaded(data: &Path, tables: &[&str], arguments: &[&str]) -> DriveProcess {
    let mut process = DriveProcess::start(data, &["--scrub-period", "0"]);
    tables.iter().for_each(|table| loaded(&process, table));
    assert_eq!(service(process.address(), "scrub")["activity"], "stopped");
    process.terminate();
    DriveProcess::start(data, arguments)
}

/// A metric without labels.
fn metric(address: &str, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[test]
fn services_do_what_they_are_told_and_say_how_far_they_are() {
    let directory = TempDir::new().unwrap();
    let mut process = serve_loaded(directory.path(), &["lineitem"], &["--tail-goal", "1.5"]);
    let address = process.address().to_owned();
    assert_eq!(background(&address)["policy"], "tail:1.5");
    for (policy, shown) in [("tail:3", "tail:3"), ("none", "none"), ("tail", "tail:1.5")] {
        tell(&address, &["policy", policy]);
        assert_eq!(background(&address)["policy"], shown);
    }
    until("the scrub keeps to its pace", || service(&address, "scrub")["activity"] == "idle");
    let scrub = service(&address, "scrub");
    assert!(scrub["done_bytes"].as_u64() < scrub["total_bytes"].as_u64(), "{scrub}");

    // A minute for all of it.
    let limit = scrub["total_bytes"].as_u64().unwrap() / 60;
    tell(&address, &["limit", "scrub", &limit.to_string()]);
    tell(&address, &["start", "scrub"]);
    until("it goes on without a pause", || service(&address, "scrub")["bytes_per_second"].as_f64() > Some(limit as f64 * 0.3));
    let since = Instant::now();
    let before = service(&address, "scrub")["bytes"].as_u64().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let shown = service(&address, "scrub");
    let did = (shown["bytes"].as_u64().unwrap() - before) as f64;
    // A step is taken before it is known how much it is.
    assert!(did < limit as f64 * since.elapsed().as_secs_f64() * 1.2 + 131_072.0, "{did} {limit}");
    assert!(shown["left_s"].as_u64().is_some(), "{shown}");
    let table = done(&["service", "ls", "--drives", &address]);
    assert!(table.contains("running") && table.contains("scrub") && table.contains("B/s"), "{table}");

    tell(&address, &["pause", "scrub"]);
    until("it rests", || {
        let before = service(&address, "scrub");
        std::thread::sleep(Duration::from_millis(300));
        before["activity"] == "paused" && service(&address, "scrub")["bytes"] == before["bytes"]
    });
    let paused = service(&address, "scrub");
    process.terminate();
    process.restart();
    let address = process.address().to_owned();
    let again = service(&address, "scrub");
    assert_eq!((&again["activity"], &again["limit"]), (&"paused".into(), &limit.into()));
    let (was, is) = (paused["done_bytes"].as_u64().unwrap(), again["done_bytes"].as_u64().unwrap());
    // A value of which a part was checked is begun again.
    assert!(is > 0 && is <= was, "{was} {is}");

    tell(&address, &["stop", "scrub"]);
    until("it is nowhere", || service(&address, "scrub")["done_bytes"] == 0);
    tell(&address, &["limit", "scrub", "none"]);
    tell(&address, &["start", "scrub"]);
    tell(&address, &["start", "scrub"]);
    until("a round is over", || {
        let scrub = service(&address, "scrub");
        scrub["activity"] == "idle" && scrub["bytes"].as_u64() >= scrub["total_bytes"].as_u64()
    });
    assert_eq!(service(&address, "scrub")["found"], 0);

    let output = run(&["service", "pause", "scrubs", "--drives", &address]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("the services are scrub, compaction, dedup"), "{}", said(&output));
}

/// A drive that was down kept the others from starting, which had taken the settings.
#[test]
fn deduplication_starts_at_the_drives_that_are_up() {
    let directory = TempDir::new().unwrap();
    let process = DriveProcess::start(directory.path(), &[]);
    let drives = format!("{},{}", free_address(), process.address());
    let output = run(&["service", "start", "dedup", "--kinetic", "--drives", &drives]);
    assert_ne!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(said(&output).matches("started dedup at").count(), 1, "{}", said(&output));
    let dedup = service(process.address(), "dedup");
    assert!(dedup["activity"] != "stopped" && dedup["dedup"]["kinetic"] == true, "{dedup}");
}

#[test]
fn the_policy_is_chosen_and_changed_and_cores_are_shown() {
    let directory = TempDir::new().unwrap();
    let process = DriveProcess::start(directory.path(), &["--background-policy", "bts", "--threads", "2"]);
    let address = process.address();
    let table = done(&["status", "--cores", "--drives", address]);
    assert_eq!(table.matches("| bts ").count(), 2, "{table}");
    for policy in ["none", "shares:0.25", "tail:2"] {
        tell(address, &["policy", policy]);
        assert_eq!(background(address)["policy"], policy);
    }
    tell(address, &["policy", "shares:0.25"]);
    until("cores give what it says", || {
        let shown: Json = serde_json::from_str(&done(&["status", "--cores", "--json", "--drives", address])).unwrap();
        let cores = shown["cores"].as_array().unwrap().clone();
        cores.len() == 2 && cores.iter().all(|core| core["share"] == 0.25 && core["strict"] == false)
    });
    let output = run(&["service", "policy", "best", "--drives", address]);
    assert!(output.status.code() == Some(3) && said(&output).contains("expected none, bts"), "{}", said(&output));
    // Drives of a directory run for as long as the command does. The first use of TPC-H makes its files.
    pithead_e2e::tpch::answers();
    let data = directory.path().join("data").display().to_string();
    done(&["load", "nation", &parquet("nation").display().to_string(), "--data", &data, "--drives-new", "1"]);
    assert_eq!(run(&["service", "policy", "bts", "--data", &data]).status.code(), Some(3));
    assert!(done(&["service", "ls", "--data", &data]).contains("stopped"));
    done(&["service", "pause", "compaction", "--data", &data]);
    assert!(done(&["service", "ls", "--data", &data]).contains("paused"));
}

#[test]
fn a_scrub_finds_damage_and_names_it_while_queries_go_on() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("d");
    drop(serve_loaded(&data, &["nation", "orders"], &["--scrub-period", "0"]));
    damage(&data);
    // As often as it can.
    let metrics = free_address();
    let process = DriveProcess::start(&data, &["--scrub-period", "10ms", "--metrics", &metrics]);
    let address = process.address();
    until("damage is found", || service(address, "scrub")["found"].as_u64() > Some(0));
    let scrub = service(address, "scrub");
    let named = scrub["damaged"][0].as_str().unwrap().to_owned();
    assert!(named.starts_with("slice/main/"), "{scrub}");
    let output = run(&["service", "ls", "--drives", address]);
    assert!(said(&output).contains(&named) && said(&output).contains("pithead repair"), "{}", said(&output));
    assert!(metric(&metrics, "pithead_drive_scrub_damaged_values") >= Some(1.0));
    // What is whole is answered from, and the scrub knows of it still, round after round.
    block_on(async {
        let engine = attach(&process).await;
        collect(&engine.host.session(), "SELECT count(*) AS n FROM range(5)").await.unwrap();
        let orders = collect(&engine.host.session(), "SELECT max(o_comment) FROM orders").await;
        let nations = collect(&engine.host.session(), "SELECT max(n_comment) FROM nation").await;
        assert!(orders.is_err() || nations.is_err(), "the damaged value is read by one of them");
    });
    assert!(service(address, "scrub")["found"].as_u64() > Some(0));
    // Forgotten with where it was, and found again.
    tell(address, &["stop", "scrub"]);
    until("it has forgotten", || service(address, "scrub")["found"] == 0);
    tell(address, &["start", "scrub"]);
    until("damage is found again", || service(address, "scrub")["found"].as_u64() > Some(0));
}

#[test]
fn a_killed_drive_goes_on_from_where_its_scrub_was() {
    let directory = TempDir::new().unwrap();
    let mut process = serve_loaded(directory.path(), &["lineitem"], &[]);
    let address = process.address().to_owned();
    let limit = service(&address, "scrub")["total_bytes"].as_u64().unwrap() / 40;
    tell(&address, &["limit", "scrub", &limit.to_string()]);
    tell(&address, &["start", "scrub"]);
    until("it has begun", || service(&address, "scrub")["done_bytes"].as_u64() > Some(3 * limit));
    // Written down every five seconds, and durable a second later.
    std::thread::sleep(Duration::from_secs(7));
    let before = service(&address, "scrub");
    process.kill();
    process.restart();
    let address = process.address().to_owned();
    let after = service(&address, "scrub");
    assert_eq!(after["limit"], limit, "what it was told is there");
    let (was, is) = (before["done_bytes"].as_u64().unwrap(), after["done_bytes"].as_u64().unwrap());
    assert!(is > 0 && is <= was + 5 * limit, "{was} {is}");
    tell(&address, &["limit", "scrub", "none"]);
    tell(&address, &["start", "scrub"]);
    until("the round is over", || {
        let scrub = service(&address, "scrub");
        // At rest it says what it has done last.
        scrub["activity"] == "idle" && scrub["done_bytes"].as_u64() > scrub["total_bytes"].as_u64().map(|total| total / 2)
    });
    let scrub = service(&address, "scrub");
    // This process has read the rest only.
    assert!(scrub["bytes"].as_u64() < scrub["total_bytes"].as_u64(), "{scrub}");
    assert_eq!(scrub["found"], 0);
}

/// Loads and drops under a drive that compacts and scrubs, killed again and again: what was acknowledged is there.
#[test]
fn services_run_beside_loads_and_kills() {
    let directory = TempDir::new().unwrap();
    let mut process = DriveProcess::start(directory.path(), &["--scrub-period", "10ms", "--collect-after", "1"]);
    let address = process.address().to_owned();
    let count = |table: &str| {
        let query = format!("SELECT count(*) AS n FROM {table}");
        done(&["sql", "-q", "--format", "csv", "-c", &query, "--drives", &address])
    };
    let (orders, nation) = (parquet("orders").display().to_string(), parquet("nation").display().to_string());
    pithead_e2e::tpch::answers();
    done(&["load", "nation", &nation, "--drives", &address]);
    let nations = count("nation");
    for round in 0..3 {
        done(&["load", "orders", &orders, "--replace", "--drives", &address]);
        let expected = count("orders");
        std::thread::sleep(Duration::from_millis(100 + 150 * round));
        process.kill();
        process.restart();
        assert_eq!((count("orders"), count("nation")), (expected, nations.clone()), "round {round}");
    }
    done(&["drop", "orders", "--drives", &address]);
    assert_eq!(count("nation"), nations);
    until("the scrub goes on", || service(&address, "scrub")["steps"].as_u64() > Some(10));
    assert_eq!(service(&address, "scrub")["found"], 0);
    // What is dead in the segment that takes new values may be too little for that one to be sealed.
    until("compaction looks for dead room", || service(&address, "compaction")["steps"].as_u64() > Some(0));
    process.terminate();
    assert_eq!(done(&["check", &directory.path().display().to_string()]), "", "nothing is wrong");
}

/// The policies of drives on cores that nobody has.
#[test]
fn policies_are_tried_without_a_drive() {
    let asked = ["service", "simulate", "--cores", "8", "--threads", "2,6", "--policy", "none,bts", "--seconds", "1", "--json"];
    let outcomes =
        |asked: &[&str]| -> Vec<Json> { done(asked).lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let found = outcomes(&asked);
    let of = |threads: u64, policy: &str| {
        let mut all = found.iter().filter(|it| it["scenario"]["threads"] == threads && it["policy"] == policy);
        all.next().unwrap_or_else(|| panic!("no {policy} of {threads}"))["outcome"].clone()
    };
    assert_eq!((found.len(), of(2, "bts")["foreground"].as_array().unwrap().len()), (4, 8));
    // Cores are idle, so steps need not wait where tasks do.
    for threads in [2, 6] {
        let mean = |policy: &str| of(threads, policy)["mean"].as_f64().unwrap();
        assert!(mean("bts") < mean("none"), "{threads} threads: {} after {}", mean("bts"), mean("none"));
    }
    assert_eq!(outcomes(&asked), found, "a seed has one outcome");
    assert_ne!(outcomes(&[&asked[..], &["--seed", "2"]].concat()), found);
    let closed = outcomes(&[&asked[..], &["--closed", "--backlog", "endless"]].concat());
    assert!(closed.iter().all(|it| it["closed"] == true && it["outcome"]["steps"].as_u64() > Some(0)), "{closed:?}");
    for (wrong, expected) in [
        (["--policy", "fair"], "expected none, bts, shares:SHARE"),
        (["--backlog", "much"], "expected steps for each task, endless or none"),
        (["--task-us", "0"], "expected a number above 0"),
    ] {
        let refused = run(&[&["service", "simulate"][..], &wrong[..]].concat());
        assert!(refused.status.code() == Some(2) && said(&refused).contains(expected), "{wrong:?}: {}", said(&refused));
    }
}
