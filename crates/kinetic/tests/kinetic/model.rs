//! Random requests against a map, with restarts. A failure prints its seed.

use std::collections::BTreeMap;

use bytes::Bytes;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, KeyValue, Range};
use pithead_kinetic::{Code, RequestKind};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::server::{Server, call, disk, key_value, range_of, with_key, with_range};

/// Version and value by key.
type Model = BTreeMap<Vec<u8>, (Bytes, Bytes)>;

const REQUESTS: usize = 400;

#[tokio::test]
async fn requests_and_restarts_agree_with_a_map() {
    for seed in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let mut model = Model::new();
        for life in 0..3 {
            let server = Server::over(disk(folder.path())).await;
            let mut client = server.client().await;
            for step in 0..REQUESTS {
                request(&mut client, &mut model, &mut rng, &format!("seed {seed}, life {life}, step {step}")).await;
            }
            drop(client);
            server.stop().await;
        }
    }
}

fn random_key(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..12) {
        0 => Vec::new(),
        1 => vec![0xff; rng.random_range(1..4)],
        2 => b"slice/main/t".to_vec(),
        _ => (0..rng.random_range(1..3)).map(|_| b"abc\0"[rng.random_range(0..4)]).collect(),
    }
}

fn version_of(model: &Model, key: &[u8]) -> Bytes {
    model.get(key).map(|(version, _)| version.clone()).unwrap_or_default()
}

async fn request(client: &mut Client, model: &mut Model, rng: &mut StdRng, place: &str) {
    match rng.random_range(0..10) {
        0..4 => put(client, model, rng, place).await,
        4..6 => delete(client, model, rng, place).await,
        6..8 => read(client, model, rng, place).await,
        8 => near(client, model, rng, place).await,
        _ => range(client, model, rng, place).await,
    }
}

fn guessed(model: &Model, key: &[u8], rng: &mut StdRng) -> (Bytes, bool) {
    let version = if rng.random_bool(0.7) { version_of(model, key) } else { Bytes::from_static(b"other") };
    (version, rng.random_bool(0.3))
}

async fn put(client: &mut Client, model: &mut Model, rng: &mut StdRng, place: &str) {
    let key = random_key(rng);
    let (version, force) = guessed(model, &key, rng);
    let new_version = Bytes::from(if rng.random_bool(0.2) { String::new() } else { rng.random_range(0..9).to_string() });
    let bytes = if rng.random_bool(0.1) { 70_000 } else { rng.random_range(0..50) };
    let value = Bytes::from(vec![rng.random(); bytes]);
    let asked = KeyValue {
        new_version: Some(new_version.clone()),
        db_version: Some(version.clone()),
        force: Some(force),
        synchronization: Some(rng.random_range(1..4)),
        ..key_value(&key)
    };
    let code = client.call(RequestKind::Put, with_key(asked), value.clone()).await.unwrap().code;
    let holds = force || version == version_of(model, &key);
    assert_eq!(code, if holds { Code::Success } else { Code::VersionMismatch }, "{place}");
    if holds {
        model.insert(key, (new_version, value));
    }
}

async fn delete(client: &mut Client, model: &mut Model, rng: &mut StdRng, place: &str) {
    let key = random_key(rng);
    let (version, force) = guessed(model, &key, rng);
    let asked = KeyValue {
        db_version: Some(version.clone()),
        force: Some(force),
        synchronization: Some(rng.random_range(1..4)),
        ..key_value(&key)
    };
    let expected = match (model.get(&key), force) {
        (_, true) => Code::Success,
        (None, false) => Code::NotFound,
        (Some((there, _)), false) if *there == version => Code::Success,
        (Some(_), false) => Code::VersionMismatch,
    };
    assert_eq!(call(client, RequestKind::Delete, with_key(asked)).await.code, expected, "{place}");
    if expected == Code::Success {
        model.remove(&key);
    }
}

async fn read(client: &mut Client, model: &Model, rng: &mut StdRng, place: &str) {
    let key = random_key(rng);
    let reply = call(client, RequestKind::Get, with_key(key_value(&key))).await;
    check(&key, model.get(&key), reply.code, reply.body, &reply.value, place);
}

async fn near(client: &mut Client, model: &Model, rng: &mut StdRng, place: &str) {
    let key = random_key(rng);
    let after = model.iter().find(|(there, _)| **there > key);
    let before = model.iter().rev().find(|(there, _)| **there < key);
    for (kind, found) in [(RequestKind::GetNext, after), (RequestKind::GetPrevious, before)] {
        let reply = call(client, kind, with_key(key_value(&key))).await;
        let (there, held) = found.unzip();
        check(there.map_or(&[], Vec::as_slice), held, reply.code, reply.body, &reply.value, place);
    }
}

fn check(key: &[u8], held: Option<&(Bytes, Bytes)>, code: Code, body: Body, value: &Bytes, place: &str) {
    let Some((version, held)) = held else {
        assert_eq!(code, Code::NotFound, "{place}");
        return;
    };
    assert_eq!(code, Code::Success, "{place}");
    let told = body.key_value.unwrap();
    assert_eq!((told.key.as_deref(), told.db_version.as_ref(), value), (Some(key), Some(version), held), "{place}");
}

async fn range(client: &mut Client, model: &Model, rng: &mut StdRng, place: &str) {
    let (start, end) = (random_key(rng), random_key(rng));
    let [from, upto, reverse] = [(); 3].map(|()| rng.random_bool(0.5));
    let most = rng.random_range(1..12);
    let asked = Range {
        start_key_inclusive: Some(from),
        end_key_inclusive: Some(upto),
        reverse: Some(reverse),
        ..range_of(&start, &end, most)
    };
    let inside = |key: &&Vec<u8>| (**key > start || from && **key == start) && (**key < end || upto && **key == end);
    let mut expected: Vec<&Vec<u8>> = model.keys().filter(inside).collect();
    if reverse {
        expected.reverse();
    }
    expected.truncate(most as usize);
    let keys = call(client, RequestKind::GetKeyRange, with_range(asked)).await.body.range.unwrap_or_default().keys;
    assert_eq!(keys, expected, "{place}");
}
