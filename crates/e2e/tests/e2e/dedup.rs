//! A drive that deduplicates is killed again and again: values read as they were put, and what is saved stays saved.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pithead_e2e::{DriveProcess, block_on, pithead};
use pithead_kinetic::client::{Client, ClientOptions};
use pithead_kinetic::proto::{Body, KeyValue};
use pithead_kinetic::{Code, FACTORY_IDENTITY, FACTORY_KEY, Limits, RequestKind};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::Value as Json;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// The protocol's number.
const WRITE_THROUGH: i32 = 1;
const KILLS: u64 = 4;
const VALUES: u64 = 60;
const ARGUMENTS: [&str; 4] = ["--kinetic", "127.0.0.1:0", "--kinetic-tls", "127.0.0.1:0"];

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(pithead());
    command.args(arguments).env_remove("PITHEAD_DRIVES").env_remove("PITHEAD_DATA").env("NO_COLOR", "1");
    command.output().expect("the program starts")
}

fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).expect("what is shown is UTF-8") + &said
}

fn service(address: &str) -> Json {
    let shown: Json = serde_json::from_str(&done(&["service", "ls", "--json", "--drives", address])).unwrap();
    shown["services"].as_array().unwrap().iter().find(|service| service["name"] == "dedup").unwrap().clone()
}

async fn client(drive: &DriveProcess) -> Client {
    let address: SocketAddr = drive.kinetic().parse().unwrap();
    let options = ClientOptions {
        host: address.ip().to_string(),
        port: address.port(),
        tls: None,
        identity: FACTORY_IDENTITY,
        key: FACTORY_KEY.to_vec(),
        wait: LIMIT,
        limits: Limits::default(),
    };
    Client::connect(&options).await.unwrap()
}

async fn call(client: &mut Client, kind: RequestKind, number: u64, value: Bytes) -> Bytes {
    let key = Some(Bytes::from(format!("value/{number:04}")));
    let key_value = KeyValue {
        key,
        force: Some(true),
        synchronization: Some(WRITE_THROUGH),
        algorithm: Some(1),
        tag: Some(Bytes::from_static(b"t")),
        ..KeyValue::default()
    };
    let body = Body { key_value: Some(key_value), ..Body::default() };
    let reply = client.call(kind, body, value).await.unwrap();
    assert_eq!(reply.code, Code::Success, "{}", reply.what);
    reply.value
}

/// Parts of a few versions of the same, with something of its own in between.
fn value(number: u64) -> Bytes {
    let noise = |seed: u64, bytes: usize| {
        let mut value = vec![0; bytes];
        StdRng::seed_from_u64(seed).fill_bytes(&mut value);
        value
    };
    let (common, own) = (noise(number % 3, 400_000), noise(1_000 + number, 20_000));
    let at = StdRng::seed_from_u64(number).random_range(0..common.len());
    [&common[..at], &own, &common[at..]].concat().into()
}

#[test]
fn a_drive_that_is_killed_while_it_deduplicates_has_all_values() {
    block_on(async {
        let directory = TempDir::new().unwrap();
        let mut drive = DriveProcess::start(directory.path(), &ARGUMENTS);
        let address = drive.address().to_owned();
        let mut to = client(&drive).await;
        for number in 0..VALUES {
            call(&mut to, RequestKind::Put, number, value(number)).await;
        }
        assert_ne!(run(&["service", "start", "dedup", "--drives", &address]).status.code(), Some(0), "of what?");
        done(&["service", "limit", "dedup", "3MB", "--drives", &address]);
        done(&["service", "start", "dedup", "--kinetic", "--drives", &address]);
        for kill in 0..KILLS {
            let (since, before) = (Instant::now(), service(&address)["found"].as_u64());
            while service(&address)["found"].as_u64() <= before {
                assert!(since.elapsed() < LIMIT, "nothing is saved: {}", service(&address));
                std::thread::sleep(Duration::from_millis(100 + 77 * kill));
            }
            drive.kill();
            drive.restart();
            to = client(&drive).await;
            for number in 0..VALUES {
                assert!(call(&mut to, RequestKind::Get, number, Bytes::new()).await == value(number), "value {number}");
            }
        }
        done(&["service", "limit", "dedup", "none", "--drives", &address]);
        let since = Instant::now();
        // Three versions, what each value has of its own, and what a new beginning did not find.
        while service(&address)["found"].as_u64().unwrap() < VALUES * 420_000 / 2 {
            assert!(since.elapsed() < LIMIT, "little is saved: {}", service(&address));
            std::thread::sleep(Duration::from_millis(100));
        }
        let shown = done(&["service", "ls", "--drives", &address]);
        assert!(shown.contains("MB saved"), "{shown}");
        for number in 0..VALUES {
            assert!(call(&mut to, RequestKind::Get, number, Bytes::new()).await == value(number), "value {number}");
        }
        for number in 0..VALUES {
            call(&mut to, RequestKind::Delete, number, Bytes::new()).await;
        }
        let since = Instant::now();
        while service(&address)["found"] != 0 {
            assert!(since.elapsed() < LIMIT, "all keys are gone: {}", service(&address));
            std::thread::sleep(Duration::from_millis(100));
        }
        drive.terminate();
        done(&["check", &directory.path().display().to_string()]);
    });
}
