//! What drives and hosts show of themselves, and how drives are shared: metrics, health, slow queries, scarce places, a soak.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, FrontProcess, block_on, collect, free_address, load, pithead, repository};
use pithead_embed::{EmbedOptions, Engine, Target, connect};
use tempfile::TempDir;

/// Status and body of an HTTP answer.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
}

async fn engine_of(process: &DriveProcess) -> Engine {
    connect(&Target::Drives(vec![process.address().to_owned()]), &EmbedOptions::default()).await.unwrap()
}

/// Waits until the drive has sessions, or has none.
async fn until_sessions(engine: &Engine, wanted: bool) {
    for _ in 0..600 {
        let sessions = engine.host.fleet().status().await[0].1.as_ref().map_or(0, |status| status.sessions);
        if (sessions > 0) == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the drive {} a session after 30 s", if wanted { "does not have" } else { "still has" });
}

/// Name, kind and meaning of each metric, as the reference has them in its tables.
fn table_rows(metrics: &str) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    let mut help = None;
    for line in metrics.lines() {
        if let Some(found) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help = Some(found);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (_, meaning) = help.take().filter(|(named, _)| *named == name).expect("HELP comes before TYPE");
            let suffix = if kind == "counter" { "_total" } else { "" };
            rows.insert(format!("| `{name}{suffix}` | {kind} | {} |", meaning.trim_end_matches('.')));
        }
    }
    rows
}

#[test]
fn the_reference_names_all_metrics_and_no_others() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let address = free_address();
        let kinetic = ["--kinetic", "127.0.0.1:0", "--kinetic-tls", "127.0.0.1:0"];
        let process = DriveProcess::start(directory.path(), &[&["--metrics", &address], &kinetic[..]].concat());
        let engine = engine_of(&process).await;
        let observed = engine.observe("127.0.0.1:0").await.unwrap().to_string();
        let arguments = ["--drives", process.address(), "--metrics", "127.0.0.1:0", "--flight", "127.0.0.1:0"];
        let front = FrontProcess::start(directory.path(), &arguments);
        let addresses = [address, observed, front.metrics().to_owned()];
        let scrape = tokio::task::spawn_blocking(move || addresses.map(|address| get(&address, "/metrics").1));
        let served: BTreeSet<String> = scrape.await.unwrap().iter().flat_map(|text| table_rows(text)).collect();
        let page = std::fs::read_to_string(repository().join("docs/reference/metrics.md")).unwrap();
        let written: BTreeSet<String> = page.lines().filter(|line| line.starts_with("| `p")).map(str::to_owned).collect();
        let missing: Vec<&String> = served.difference(&written).collect();
        let unknown: Vec<&String> = written.difference(&served).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "not on the page: {missing:#?}\nnot served: {unknown:#?}");
        engine.shutdown().await;
    });
}

#[test]
fn a_drive_shows_what_it_does_and_says_when_it_stops() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let address = free_address();
        let mut process = DriveProcess::start(directory.path(), &["--metrics", &address, "--link", "20mbit"]);
        let engine = engine_of(&process).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap();
        let session = engine.host.session();
        collect(&session, "SELECT count(*) FROM lineitem WHERE l_quantity < 10").await.unwrap();
        let at = address.clone();
        let (status, metrics) = tokio::task::spawn_blocking(move || get(&at, "/metrics")).await.unwrap();
        assert_eq!(status, 200);
        for some in ["pithead_drive_sessions_opened_total", "pithead_drive_rounds_total", "pithead_drive_load_rows_total"] {
            let value = metrics.lines().find_map(|line| line.strip_prefix(some)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value >= 1.0), "{some}: {value:?}");
        }
        assert!(metrics.contains("pithead_drive_sessions_closed_total{cause=\"finished\"} 1\n"), "{metrics}");
        let at = address.clone();
        let (status, health) = tokio::task::spawn_blocking(move || get(&at, "/health")).await.unwrap();
        assert!(status == 200 && health.contains("\"status\":\"ok\""), "{health}");
        // A session that runs lets the drive take its time to stop; meanwhile its health says so.
        let mut answer = session.run("SELECT * FROM lineitem").await.unwrap();
        futures::StreamExt::next(&mut answer.rows).await.unwrap().unwrap();
        let ending = tokio::task::spawn_blocking(move || (process.terminate(), process));
        let seen = tokio::task::spawn_blocking(move || {
            for _ in 0..200 {
                if TcpStream::connect(&address).is_err() {
                    return None;
                }
                let (status, health) = get(&address, "/health");
                if status == 503 {
                    return Some(health);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            None
        });
        let seen = seen.await.unwrap();
        assert!(seen.as_ref().is_some_and(|health| health.contains("\"status\":\"stopping\"")), "{seen:?}");
        drop(answer);
        ending.await.unwrap();
    });
}

#[test]
fn slow_queries_are_told_with_their_plan() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let process = DriveProcess::start(directory.path(), &[]);
        let engine = engine_of(&process).await;
        load(&engine, spec("orders", "vortex")).await.unwrap();
        let said = |arguments: &[&str], variable: &str| {
            let mut command = Command::new(pithead());
            command.args(["sql", "--drives", process.address(), "-q"]).args(arguments);
            let output = command.env("PITHEAD_SLOW_QUERY_MS", variable).stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let statement = "SELECT o_orderpriority, count(*) FROM orders GROUP BY o_orderpriority";
        for told in [said(&["--slow-query-ms", "1", "-c", statement], ""), said(&["-c", statement], "1")] {
            for part in ["slow query", "pithead_host::slow", statement, "planning_s=", "busy_wait_s=", "sub-plan 1", "rounds"] {
                assert!(told.contains(part), "{part} is missing: {told}");
            }
        }
        // Neither the statement nor its plan says what may be secret of a URL.
        let secret = "SELECT count(*) FROM orders WHERE o_comment <> 'https://me:a-word@host/x.csv?X-Amz-Signature=abc'";
        let told = said(&["-c", secret], "1");
        assert!(told.matches("https://host/x.csv?…").count() > 1, "{told}");
        assert!(!told.contains("a-word") && !told.contains("Signature"), "{told}");
        assert!(!said(&["-c", statement], "").contains("slow query"));
        assert!(!said(&["--slow-query-ms", "3600000", "-c", statement], "1").contains("slow query"));
        engine.shutdown().await;
    });
}

#[test]
fn a_host_that_is_killed_leaves_no_session() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let process = DriveProcess::start(directory.path(), &["--link", "20mbit"]);
        let engine = engine_of(&process).await;
        load(&engine, spec("lineitem", "vortex")).await.unwrap();
        let mut asking = Command::new(pithead())
            .args(["sql", "--drives", process.address(), "--format", "csv", "-c", "SELECT * FROM lineitem"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until_sessions(&engine, true).await;
        // SIGKILL: it has no time to close anything. The drive's idle limit, a minute, is not what frees the session.
        asking.kill().unwrap();
        asking.wait().unwrap();
        until_sessions(&engine, false).await;
        engine.shutdown().await;
    });
}

fn soaked(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let json = directory.join("soak.json");
    let output = Command::new(pithead())
        .args(["bench", "soak", "--clients", "8", "--processes", "2", "--seconds", "6", "--scale", "0.01", "--directory"])
        .arg(directory)
        .arg("--json")
        .arg(&json)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

#[test]
fn a_small_soak_finds_every_answer_right() {
    let directory = TempDir::new().unwrap();
    // So few places that clients have to wait for their turn.
    let report = soaked(directory.path(), &["--sessions", "4", "--drives", "2", "--copies", "2"]);
    let summary = &report["summary"];
    let number = |name: &str| summary[name].as_f64().unwrap_or_else(|| panic!("{name}: {summary}"));
    assert!(number("soak_wrong") == 0.0 && number("soak_errors") == 0.0, "{summary}: {}", report["told"]);
    assert!(number("soak_answers") > 0.0 && number("soak_busy") > 0.0 && number("soak_fairness") > 0.0, "{summary}");
    assert!(number("soak_sessions_left") == 0.0, "{summary}");
}
