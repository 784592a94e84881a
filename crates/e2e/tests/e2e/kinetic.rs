//! A drive is killed under Kinetic clients: what it acknowledged is there, and of a batch everything or nothing. Queries go on beside
//! them over the same store.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pithead_e2e::{DriveProcess, block_on, collect, load};
use pithead_embed::{EmbedOptions, Target, connect};
use pithead_host::LoadSpec;
use pithead_kinetic::client::{Client, ClientError, ClientOptions, Reply};
use pithead_kinetic::proto::{Body, Header, KeyValue};
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
