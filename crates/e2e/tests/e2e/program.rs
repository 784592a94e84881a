//! The program as a person or a script meets it: rows to stdout, talk to stderr, exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pithead_e2e::tpch::{parquet, spec};
use pithead_e2e::{DriveProcess, block_on, load, pithead};
use pithead_embed::{EmbedOptions, Target, connect};
use tempfile::TempDir;

fn command(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(pithead());
    command.args(arguments).env("PITHEAD_DATA", data).env_remove("PITHEAD_DRIVES").env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    command(data, arguments).output().expect("the program starts")
}

/// Runs a command that must do what it says. Returns its stdout.
fn done(data: &Path, arguments: &[&str]) -> String {
    let output = run(data, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("what is shown is UTF-8")
}

/// Runs a command that must fail with a code. Returns its stderr.
fn failed(data: &Path, arguments: &[&str], code: i32) -> String {
    let output = run(data, arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote rows though it failed");
    said
}

fn file(name: &str) -> String {
    // The first use of TPC-H makes its files.
    pithead_e2e::tpch::answers();
    parquet(name).display().to_string()
}

#[test]
fn load_ask_and_drop() {
    let directory = TempDir::new().unwrap();
    let data = directory.path();
    done(data, &["load", "nation", &file("nation")]);
    done(data, &["load", "region", &file("region"), "--encoding", "arrow", "--meta", "origin=TPC-H"]);
    let query = "SELECT r_name, count(*) AS nations FROM nation JOIN region ON n_regionkey = r_regionkey GROUP BY r_name ORDER BY r_name LIMIT 2";
    assert_eq!(done(data, &["sql", "-q", "--format", "csv", "-c", query]), "r_name,nations\nAFRICA,5\nAMERICA,5\n");
    assert_eq!(done(data, &["sql", "-q", "--format", "json", "-c", query]).lines().count(), 2);
    let listed = done(data, &["ls"]);
    assert!(listed.contains("nation") && listed.contains("region"), "{listed}");
    assert!(done(data, &["ls", "region"]).contains("r_comment"));
    done(data, &["status"]);
    done(data, &["drop", "region"]);
    assert!(failed(data, &["sql", "-c", "SELECT * FROM region"], 3).contains("region"));
    assert!(failed(data, &["sql", "-c", "SELECT n_nam FROM nation"], 3).contains("n_name"));
    assert!(failed(data, &["load", "nation", &file("nation")], 3).contains("nation"));
    failed(data, &["sql", "--no-such-option"], 2);
}

#[test]
fn tables_are_made_in_a_directory_that_is_made_for_them() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("new");
    let statement = "CREATE TABLE t AS SELECT value AS k FROM range(5)";
    assert!(failed(&data, &["sql", "-c", statement], 3).contains("--create"));
    done(&data, &["sql", "--create", "-c", statement]);
    assert_eq!(done(&data, &["sql", "-q", "--format", "csv", "-c", "SELECT sum(k) AS s FROM t"]), "s\n10\n");
}

#[test]
fn what_is_written_can_be_loaded_again() {
    let directory = TempDir::new().unwrap();
    let data = directory.path().join("data");
    done(&data, &["load", "orders", &file("orders")]);
    let query = "SELECT o_orderkey, o_totalprice, o_orderdate, o_comment FROM orders WHERE o_orderkey < 2000";
    let sums = |dataset: &str| {
        let query = format!(
            "SELECT count(*), sum(o_totalprice), min(o_orderdate), max(o_comment) FROM {dataset} WHERE o_orderkey < 2000"
        );
        let shown = done(&data, &["sql", "-q", "--format", "csv", "-c", &query]);
        shown.lines().nth(1).map(str::to_owned)
    };
    for ending in ["csv", "parquet", "arrow"] {
        let out = directory.path().join(format!("out.{ending}")).display().to_string();
        done(&data, &["sql", "-q", "-o", &out, "-c", query]);
        done(&data, &["load", &format!("again_{ending}"), &out]);
        if ending != "csv" {
            assert_eq!(sums(&format!("again_{ending}")), sums("orders"), "{ending}");
        }
    }
}

#[test]
fn ctrl_c_cancels_at_the_drives() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let process = DriveProcess::start(directory.path(), &["--link", "20mbit"]);
        let target = Target::Drives(vec![process.address().to_owned()]);
        let engine = connect(&target, &EmbedOptions::default()).await.unwrap();
        load(&engine, spec("lineitem", "vortex")).await.unwrap();
        let arguments = ["sql", "--drives", process.address(), "--format", "csv", "-c", "SELECT * FROM lineitem"];
        let mut asking = command(directory.path(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sessions = async || engine.host.fleet().status().await[0].1.as_ref().map_or(0, |status| status.sessions);
        let limit = async |wanted: bool| {
            for _ in 0..600 {
                if (sessions().await > 0) == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            panic!("the drive {} a session after 30 s", if wanted { "does not have" } else { "still has" });
        };
        limit(true).await;
        let child = i32::try_from(asking.id()).unwrap();
        // SAFETY: the process is our child and not yet waited for, so the id is still its own.
        assert_eq!(unsafe { libc::kill(child, libc::SIGINT) }, 0);
        let status = tokio::task::spawn_blocking(move || asking.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(130), "after Ctrl-C the program ended with {status}");
        limit(false).await;
    });
}
