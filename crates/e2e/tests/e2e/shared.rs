//! A drive that strangers share: who sees and ends whose sessions, what a session may take, and drives that hang.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, block_on, collect, load, pithead};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use pithead_host::LoadSpec;
use pithead_model::Blame;
use tempfile::TempDir;

/// Never has a row, and takes hours.
const ENDLESS: &str = "SELECT count(*) FROM lineitem a, lineitem b WHERE a.l_orderkey + b.l_orderkey = -1";

async fn attach(processes: &[DriveProcess]) -> Engine {
    let addresses = processes.iter().map(|process| process.address().to_owned()).collect();
    connect(&Target::Drives(addresses), &EmbedOptions::default()).await.unwrap_or_else(|fault| panic!("connecting: {fault}"))
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(pithead());
    command.args(arguments).stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("PITHEAD_DRIVES");
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The sessions that `pithead session ls` shows.
fn sessions(drives: &str) -> Vec<serde_json::Value> {
    let output = run(&["session", "ls", "--json", "--drives", drives]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sessions_are_seen_and_ended_by_an_operator() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 1, &[]);
        let drives = processes[0].address().to_owned();
        let engine = attach(&processes).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        assert!(sessions(&drives).is_empty());
        let endless = engine.host.session();
        let running = tokio::spawn(async move { collect(&endless, ENDLESS).await });
        let open = loop {
            let open = sessions(&drives);
            // The smaller side of the join is fetched by a session of its own first.
            if open.iter().any(|session| session["state"] == "running" && session["open_s"].as_f64() > Some(0.5)) {
                break open;
            }
            assert!(!running.is_finished(), "{:?}", running.await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let named =
            |session: &serde_json::Value| session["datasets"][0] == "main.lineitem" && session["drive"] == drives.as_str();
        assert!(open.iter().all(named), "{open:?}");
        let table = said(&run(&["session", "ls", "--drives", &drives]));
        assert!(table.contains("lineitem") && table.contains("running"), "{table}");
        // Whatever is open by now; the statement may be at its next session already.
        while !running.is_finished() {
            for session in sessions(&drives) {
                let killed = run(&["session", "kill", session["session"].as_str().unwrap(), "--drives", &drives]);
                assert!(matches!(killed.status.code(), Some(0 | 3)), "{}", said(&killed));
            }
        }
        let fault = running.await.unwrap().unwrap_err();
        assert!(fault.blame == Blame::Limit && fault.message.contains("operator"), "{fault}");
        let again = run(&["session", "kill", open[0]["session"].as_str().unwrap(), "--drives", &drives]);
        assert!(again.status.code() == Some(3) && said(&again).contains("no drive has a session"), "{}", said(&again));
        assert!(sessions(&drives).is_empty());
        assert_eq!(collect(&engine.host.session(), "SELECT count(*) FROM lineitem").await.unwrap().rows, [["600572"]]);
        engine.shutdown().await;
    });
    let nowhere = run(&["session", "ls"]);
    assert!(nowhere.status.code() == Some(3) && said(&nowhere).contains("--drives"), "{}", said(&nowhere));
}

#[test]
fn a_drives_own_limit_ends_what_takes_too_long() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 1, &["--session-limit", "1"]);
        let engine = attach(&processes).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        let session = engine.host.session();
        let fault = collect(&session, ENDLESS).await.unwrap_err();
        assert!(fault.blame == Blame::Limit && fault.message.contains("longer than the drive allows"), "{fault}");
        assert_eq!(collect(&session, "SELECT count(*) FROM lineitem").await.unwrap().rows, [["600572"]]);
        engine.shutdown().await;
    });
}

/// Texts of 7 MB each had drives killed for want of memory.
#[test]
fn what_expressions_make_stays_within_a_drives_memory() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut processes = DriveProcess::start_many(directory.path(), 1, &["--memory", "256MiB"]);
        let engine = attach(&processes).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        let session = engine.host.session();
        let few = "FROM lineitem WHERE l_orderkey < 400";
        let longest = collect(&session, &format!("SELECT max(length(l_comment)) {few}")).await.unwrap().rows[0][0].clone();
        let longest: u64 = longest.parse().unwrap();
        for pushdown in ["on", "off"] {
            collect(&session, &format!("SET pithead.pushdown = {pushdown}")).await.unwrap();
            let sql = format!("SELECT max(length(repeat(l_comment, 200000))) {few}");
            assert_eq!(collect(&session, &sql).await.unwrap().rows, [[(longest * 200_000).to_string()]]);
            let sql = format!("SELECT count(*) {few} AND length(repeat(l_comment, 200000)) >= {}", longest * 200_000);
            assert_ne!(collect(&session, &sql).await.unwrap().rows, [["0"]]);
            let fault =
                collect(&session, &format!("SELECT max(length(repeat(l_comment, 900000000))) {few}")).await.unwrap_err();
            assert_eq!(fault.blame, Blame::Limit, "{fault}");
        }
        assert!(processes[0].is_running());
        engine.shutdown().await;
    });
}

/// Each new host once waited fifteen seconds for a drive that hangs, though copies of all it has answer at once.
#[test]
fn a_drive_that_hangs_holds_up_nobody_who_can_do_without() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let processes = DriveProcess::start_many(directory.path(), 3, &[]);
        let engine = attach(&processes).await;
        let copied = LoadSpec { copies: Some(2), ..spec("lineitem", "vortex") };
        load(&engine, copied).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        load(&engine, spec("nation", "vortex")).await.unwrap_or_else(|fault| panic!("loading: {fault}"));
        for hung in &processes {
            hung.freeze();
            let other = attach(&processes).await;
            let rows = collect(&other.host.session(), "SELECT count(*), sum(l_orderkey) FROM lineitem").await.unwrap().rows;
            assert_eq!(rows[0][0], "600572");
            // Who waited for it to be given up would have another reason.
            let absent = other.host.fleet().absent();
            let passed_over = absent.iter().find(|drive| drive.door.label() == hung.address()).expect("the drive that hangs");
            assert!(passed_over.fault.message.contains("no answer within 1 s"), "{}", passed_over.fault);
            hung.thaw();
            // What only this drive has is waited for, as long as it may still answer.
            let rows = collect(&other.host.session(), "SELECT count(*) FROM nation").await.unwrap().rows;
            assert_eq!(rows, [["25"]]);
            other.shutdown().await;
        }
        engine.shutdown().await;
    });
}
