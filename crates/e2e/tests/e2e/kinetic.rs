//! A drive is killed under Kinetic clients: what it acknowledged is there, and of a batch everything or nothing. Queries go on beside
//! them over the same store.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::ipc::reader::StreamReader;
use bytes::Bytes;
use futures::StreamExt;
use pithead_e2e::tpch::spec;
use pithead_e2e::{DriveProcess, block_on, collect, free_address, load, pithead};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::{LoadSpec, Session};
use pithead_kinetic::client::{Client, ClientError, ClientOptions, Reply};
use pithead_kinetic::proto::{Body, Header, KeyValue, ManageApplet};
use pithead_kinetic::{Code, FACTORY_IDENTITY, FACTORY_KEY, Limits, RequestKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

/// Times that the drive is killed; `PITHEAD_KINETIC_KILLS` makes it more.
const KILLS: u64 = 6;
/// Commands of a batch.
const BATCH: u32 = 3;
/// Clients that write at one time.
const WRITERS: u64 = 3;
/// A value of so many bytes lies outside of the index.
const VALUE_BYTES: usize = 20_000;
const LIMIT: Duration = Duration::from_secs(60);
/// WRITETHROUGH, in the protocol's numbers.
const WRITE_THROUGH: i32 = 1;
const ARGUMENTS: [&str; 4] = ["--kinetic", "127.0.0.1:0", "--kinetic-tls", "127.0.0.1:0"];

/// The drive's engine over a dataset, as a program.
const ENGINE: &str = "pithead/engine/main/orders";

/// Where the drive is now, and what it has acknowledged: the last number of each writer's value, and its batches.
#[derive(Default)]
struct Ledger {
    address: Option<SocketAddr>,
    values: BTreeMap<u64, u64>,
    batches: Vec<(u64, u64)>,
    tried: Vec<(u64, u64)>,
    done: bool,
}

#[test]
fn what_a_killed_drive_acknowledged_to_kinetic_clients_is_there() {
    let kills = std::env::var("PITHEAD_KINETIC_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut drive = DriveProcess::start(directory.path(), &ARGUMENTS);
        let ledger = Mutex::new(Ledger { address: Some(drive.kinetic().parse().unwrap()), ..Ledger::default() });
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let ledger = &ledger;
                scope.spawn(move || block_on(write(writer, ledger)));
            }
            let mut random = StdRng::seed_from_u64(18);
            for _ in 0..kills {
                std::thread::sleep(Duration::from_millis(random.random_range(50..400)));
                drive.kill();
                ledger.lock().unwrap().address = None;
                drive.restart();
                ledger.lock().unwrap().address = Some(drive.kinetic().parse().unwrap());
            }
            let first = ledger.lock().unwrap().batches.len();
            let start = Instant::now();
            while ledger.lock().unwrap().batches.len() == first && start.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(10));
            }
            ledger.lock().unwrap().done = true;
        });
        check(&ledger.into_inner().unwrap()).await;
    });
}

/// Puts values and batches, one after the other, and writes down what was acknowledged.
async fn write(writer: u64, ledger: &Mutex<Ledger>) {
    let mut client = None;
    for number in 1.. {
        let address = {
            let ledger = ledger.lock().unwrap();
            if ledger.done {
                return;
            }
            ledger.address
        };
        let Some(address) = address else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        match put_both(&mut client, address, writer, number, ledger).await {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error, ClientError::Io(_) | ClientError::Frame(_) | ClientError::Ended(_)), "{error}");
                client = None;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn put_both(
    client: &mut Option<Client>,
    address: SocketAddr,
    writer: u64,
    number: u64,
    ledger: &Mutex<Ledger>,
) -> Result<(), ClientError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(&options(address)).await?),
    };
    let reply = put(client, None, &value_key(writer), number).await?.expect("an answer outside of a batch");
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    ledger.lock().unwrap().values.insert(writer, number);
    let id = u32::try_from(number).unwrap();
    let in_batch = |kind: RequestKind| Header { message_type: Some(kind as i32), batch_id: Some(id), ..Header::default() };
    ledger.lock().unwrap().tried.push((writer, number));
    let reply = client.call_with(in_batch(RequestKind::StartBatch), Body::default(), Bytes::new()).await?;
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    for part in 0..BATCH {
        put(client, Some(id), &batch_key(writer, number, part), number).await?;
    }
    let reply = client.call_with(in_batch(RequestKind::EndBatch), Body::default(), Bytes::new()).await?;
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    ledger.lock().unwrap().batches.push((writer, number));
    Ok(())
}

async fn put(client: &mut Client, batch: Option<u32>, key: &str, number: u64) -> Result<Option<Reply>, ClientError> {
    let header = Header { message_type: Some(RequestKind::Put as i32), batch_id: batch, ..Header::default() };
    let key_value = KeyValue {
        key: Some(Bytes::from(key.to_owned())),
        new_version: Some(Bytes::from(number.to_string())),
        force: Some(true),
        tag: Some(Bytes::from_static(b"t")),
        algorithm: Some(1),
        synchronization: Some(WRITE_THROUGH),
        ..KeyValue::default()
    };
    let body = Body { key_value: Some(key_value), ..Body::default() };
    match batch {
        None => client.call_with(header, body, value(number)).await.map(Some),
        Some(_) => client.send(header, body, value(number)).await.map(|()| None),
    }
}

async fn check(ledger: &Ledger) {
    let mut client = Client::connect(&options(ledger.address.unwrap())).await.unwrap();
    assert_eq!(ledger.values.len() as u64, WRITERS, "every writer got through");
    for (writer, number) in &ledger.values {
        let reply = get(&mut client, &value_key(*writer)).await;
        let version = reply.body.key_value.and_then(|found| found.db_version).unwrap_or_default();
        let found: u64 = std::str::from_utf8(&version).unwrap().parse().unwrap_or(0);
        assert!(found >= *number, "writer {writer}: {number} was acknowledged, and {found} is there");
        assert_eq!(reply.value, value(found), "writer {writer}: a value that is not its version's");
    }
    for (writer, number) in &ledger.tried {
        let mut there = 0;
        for part in 0..BATCH {
            let reply = get(&mut client, &batch_key(*writer, *number, part)).await;
            there += u32::from(reply.code == Code::Success && reply.value == value(*number));
        }
        let acknowledged = ledger.batches.contains(&(*writer, *number));
        assert!(there == BATCH || (there == 0 && !acknowledged), "batch {number} of writer {writer}: {there} of {BATCH}");
    }
    println!("{} values, {} batches acknowledged of {}", ledger.values.len(), ledger.batches.len(), ledger.tried.len());
}

async fn get(client: &mut Client, key: &str) -> Reply {
    let key_value = KeyValue { key: Some(Bytes::from(key.to_owned())), ..KeyValue::default() };
    client.call(RequestKind::Get, Body { key_value: Some(key_value), ..Body::default() }, Bytes::new()).await.unwrap()
}

fn options(address: SocketAddr) -> ClientOptions {
    ClientOptions {
        host: address.ip().to_string(),
        port: address.port(),
        tls: None,
        identity: FACTORY_IDENTITY,
        key: FACTORY_KEY.to_vec(),
        wait: LIMIT,
        limits: Limits::default(),
    }
}

fn value_key(writer: u64) -> String {
    format!("value/{writer}")
}

fn batch_key(writer: u64, number: u64, part: u32) -> String {
    format!("batch/{writer}/{number:08}/{part}")
}

fn value(number: u64) -> Bytes {
    Bytes::from(number.to_le_bytes().repeat(VALUE_BYTES / 8))
}

#[test]
fn a_drive_that_met_kinetic_clients_first_answers_queries() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let drive = DriveProcess::start(&directory.path().join("drive"), &ARGUMENTS);
        let mut client = Client::connect(&options(drive.kinetic().parse().unwrap())).await.unwrap();
        for number in 0..20 {
            let reply = put(&mut client, None, &format!("slice/{number}"), number).await.unwrap().unwrap();
            assert_eq!(reply.code, Code::Success, "{}", reply.what);
        }
        let engine = connect(&Target::Drives(vec![drive.address().to_owned()]), &EmbedOptions::default()).await.unwrap();
        let csv = directory.path().join("t.csv");
        std::fs::write(&csv, "k\n1\n2\n3\n").unwrap();
        load(&engine, LoadSpec::new("t".parse().unwrap(), vec![csv.display().to_string()])).await.unwrap();
        let session = engine.host.session();
        let rows = collect(&session, "SELECT count(*), sum(k) FROM t").await.unwrap();
        assert_eq!(rows.rows, [["3", "6"]]);
        for number in 0..20 {
            assert_eq!(get(&mut client, &format!("slice/{number}")).await.value, value(number));
        }
    });
}

/// The first sub-plan of a query as Substrait.
async fn sub_plan(session: &Session, query: &str) -> Bytes {
    let mut answer = session.run(&format!("EXPLAIN FORMAT SUBSTRAIT {query}")).await.unwrap();
    let batch = answer.rows.next().await.unwrap().unwrap();
    let plan = cast(batch.column_by_name("plan").unwrap(), &DataType::Binary).unwrap();
    Bytes::copy_from_slice(plan.as_binary::<i32>().value(0))
}

/// What the drive's engine answers a plan that is a key's value: the message, and the values of the first column.
async fn executed(client: &mut Client, keys: &[&str]) -> (Code, String, Vec<i64>) {
    let applet = ManageApplet {
        applet_type: Some(1),
        program_key: keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect(),
        set_value_in_response: Some(true),
        ..ManageApplet::default()
    };
    let body = Body { manage_applet: Some(applet), ..Body::default() };
    let reply = client.call(RequestKind::ManageApplet, body, Bytes::new()).await.unwrap();
    let mut values = Vec::new();
    if !reply.value.is_empty() {
        for batch in StreamReader::try_new(&reply.value[..], None).unwrap() {
            values.extend(batch.unwrap().column(0).as_primitive::<Int64Type>().values());
        }
    }
    (reply.code, reply.what, values)
}

#[test]
fn a_key_that_is_not_there_is_neither_read_nor_deleted() {
    let directory = TempDir::new().unwrap();
    let drive = DriveProcess::start(directory.path(), &ARGUMENTS);
    let address = drive.kinetic();
    let run = |words: &[&str]| {
        let output = Command::new(pithead()).arg("kv").args(words).args(["--at", &address]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(run(&["put", "greeting", "hello"]).0, Some(0));
    assert_eq!(run(&["delete", "greeting"]).0, Some(0));
    for command in ["get", "delete"] {
        let (code, said) = run(&[command, "greeting"]);
        assert!(code == Some(3) && said.contains("there is no such key"), "{command}: {code:?} {said}");
    }
}

/// A request names 200 keys at most, and the command had ended there.
#[test]
fn a_range_of_many_keys_is_whole() {
    let directory = TempDir::new().unwrap();
    let drive = DriveProcess::start(directory.path(), &ARGUMENTS);
    let address = drive.kinetic();
    block_on(async {
        let mut client = Client::connect(&options(address.parse().unwrap())).await.unwrap();
        for number in 0..450 {
            assert_eq!(put(&mut client, None, &format!("many/{number:03}"), 7).await.unwrap().unwrap().code, Code::Success);
        }
    });
    let range = |words: &[&str]| -> Vec<String> {
        let output = Command::new(pithead()).args(["kv", "range", "--at", &address]).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let all: Vec<String> = (0..450).map(|number| format!("many/{number:03}")).collect();
    let backwards: Vec<String> = all.iter().rev().cloned().collect();
    let named = ["--from", "many/", "--to", "many/~"];
    assert_eq!(range(&named), all);
    assert_eq!(range(&[&named[..], &["--reverse"]].concat()), backwards);
    assert_eq!(range(&[&named[..], &["--limit", "250"]].concat()), all[..250]);
    assert_eq!(range(&[&named[..], &["--reverse", "--limit", "201"]].concat()), backwards[..201]);
    assert_eq!(range(&["--from", "many/001", "--after", "--to", "many/240", "--before"]), all[2..240]);
    assert!(range(&["--from", "other/", "--to", "other/~"]).is_empty());
}

/// It had read nothing, and looked as if nothing were damaged.
#[test]
fn a_scan_that_may_not_read_all_says_so() {
    let directory = TempDir::new().unwrap();
    let (clear, tls) = (free_address(), free_address());
    let drive = DriveProcess::start(directory.path(), &["--kinetic", &clear, "--kinetic-tls", &tls]);
    let run = |words: &[&str]| {
        let output = Command::new(pithead()).arg("kv").args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let address = drive.kinetic();
    for key in ["a", "photos/1", "z"] {
        assert_eq!(run(&["put", key, "value", "--at", &address]).0, Some(0));
    }
    let key_file = directory.path().join("7.key");
    let key_file = key_file.to_str().unwrap();
    let made = ["acl", "7", "--allow", "range", "--prefix", "photos/", "--tls", "--at", &tls, "--new-key-file", key_file];
    assert_eq!(run(&made).0, Some(0));
    let as_seven = ["scan", "--identity", "7", "--key-file", key_file, "--at", &address];
    for (from, to, behind) in [("", "zz", ""), ("photos/", "zz", "photos/1")] {
        let (code, said) = run(&[&as_seven[..], &["--from", from, "--to", to]].concat());
        assert!(code == Some(5) && said.contains(&format!("from \"{behind}\" on")), "{from}: {code:?} {said}");
    }
    assert_eq!(run(&[&as_seven[..], &["--from", "photos/", "--to", "photos/~"]].concat()), (Some(0), String::new()));
    assert_eq!(run(&["scan", "--at", &address]).0, Some(0));
}

#[test]
fn bounds_on_connections_are_those_of_the_drive() {
    let directory = TempDir::new().unwrap();
    let arguments = [&ARGUMENTS[..], &["--connections", "9", "--connections-per-address", "7"]].concat();
    let drive = DriveProcess::start(directory.path(), &arguments);
    let log = ["kv", "log", "limits", "--json", "--at", &drive.kinetic()];
    let output = Command::new(pithead()).args(log).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["limits"]["connections"], 7, "{output:?}");
}

#[test]
fn a_kinetic_client_pushes_a_sub_plan() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let (clear, tls) = (free_address(), free_address());
        let drive = DriveProcess::start(directory.path(), &["--kinetic", &clear, "--kinetic-tls", &tls]);
        let link = options(drive.kinetic().parse().unwrap());
        let target = Target::Drives(vec![drive.address().to_owned()]);
        let engine = connect(&target, &EmbedOptions::default()).await.unwrap();
        load(&engine, spec("orders", "vortex")).await.unwrap();
        let session = engine.host.session();
        let mut factory = Client::connect(&link).await.unwrap();
        // Over TLS, which the protocol wants for identities.
        let key_file = directory.path().join("8.key");
        let named = ["--prefix", "pithead/engine/main/", "--prefix", "plans/"];
        let made = Command::new(pithead())
            .args(["kv", "acl", "8", "--allow", "read,write,applet", "--tls", "--at", &tls, "--new-key-file"])
            .arg(&key_file)
            .args(named)
            .status();
        assert!(made.unwrap().success());
        let key = std::fs::read(&key_file).unwrap().trim_ascii_end().to_vec();
        let own = ClientOptions { identity: 8, key, ..link };
        let mut client = Client::connect(&own).await.unwrap();
        let (rows, count) = (
            "SELECT o_orderkey FROM orders WHERE o_totalprice > 400000",
            "SELECT count(*) FROM orders WHERE o_orderpriority = '1-URGENT'",
        );
        for (key, query) in [("plans/rows", rows), ("plans/count", count)] {
            let value = sub_plan(&session, query).await;
            let body = KeyValue { key: Some(key.into()), force: Some(true), synchronization: Some(1), ..KeyValue::default() };
            let body = Body { key_value: Some(body), ..Body::default() };
            assert_eq!(client.call(RequestKind::Put, body, value).await.unwrap().code, Code::Success);
        }
        let (code, what, mut found) = executed(&mut client, &[ENGINE, "plans/rows"]).await;
        assert_eq!((code, what), (Code::ExecuteComplete, format!("0:0::{} rows", found.len())));
        found.sort_unstable();
        let mut expected: Vec<i64> =
            collect(&session, rows).await.unwrap().rows.iter().map(|row| row[0].parse().unwrap()).collect();
        expected.sort_unstable();
        assert!(!found.is_empty() && found == expected, "{} and {} rows", found.len(), expected.len());
        let (_, _, partials) = executed(&mut client, &[ENGINE, "plans/count"]).await;
        let counted: i64 = collect(&session, count).await.unwrap().rows[0][0].parse().unwrap();
        assert_eq!(partials.iter().sum::<i64>(), counted);
        for (keys, wrong) in [
            (vec!["pithead/engine/main/none", "plans/rows"], "no part of a dataset main.none"),
            (vec![ENGINE], "the keys of the sub-plan's Substrait"),
            (vec!["pithead/engine/main/", "plans/rows"], "expected pithead/engine/DOMAIN/DATASET"),
            (vec![ENGINE, "plans/none"], "there is no key plans/none"),
        ] {
            let (code, what, _) = executed(&mut client, &keys).await;
            assert!(what.contains(wrong), "{keys:?}: {code:?} {what}");
        }
        // A scope for every key shows no datasets.
        assert_eq!(executed(&mut factory, &[ENGINE, "plans/count"]).await.0, Code::NotAuthorized);
        engine.shutdown().await;
    });
}
