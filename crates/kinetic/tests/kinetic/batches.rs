//! Batches: all of their commands or none, and none once their connection is gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::client::{Client, ClientError, Reply};
use pithead_kinetic::proto::{Batch, Body, Header, KeyValue, Setup};
use pithead_kinetic::{Code, KineticOptions, Limits, NoSlices, Permission, RequestKind};
use pithead_store::MemoryStore;

use crate::rights::{acl, scope, set};
use crate::server::{Server, call, get, header_of, key_value, put, put_of, with_key};

fn in_batch(kind: RequestKind, id: u32) -> Header {
    Header { batch_id: Some(id), ..header_of(kind) }
}

async fn start(client: &mut Client, id: u32) -> Code {
    client.call_with(in_batch(RequestKind::StartBatch, id), Body::default(), Bytes::new()).await.unwrap().code
}

async fn add(client: &mut Client, id: u32, key_value: KeyValue) {
    client.send(in_batch(RequestKind::Put, id), with_key(key_value), Bytes::from_static(b"v")).await.unwrap();
}

/// The code of a request for nothing in particular.
async fn ask(client: &mut Client, kind: RequestKind, batch: Option<u32>) -> Result<Code, ClientError> {
    let header = Header { batch_id: batch, ..header_of(kind) };
    let body = with_key(put_of(b"c", "1"));
    Ok(client.call_with(header, body, Bytes::new()).await?.code)
}

async fn end(client: &mut Client, id: u32, count: Option<i32>) -> Reply {
    let body = Body { batch: count.map(|count| Batch { count: Some(count), ..Batch::default() }), ..Body::default() };
    client.call_with(in_batch(RequestKind::EndBatch, id), body, Bytes::new()).await.unwrap()
}

#[tokio::test]
async fn a_batch_is_done_at_its_end_as_a_whole() {
    let server = Server::start().await;
    let (mut client, mut other) = (server.client().await, server.client().await);
    put(&mut client, b"old", "1", b"v").await;
    assert_eq!(start(&mut client, 1).await, Code::Success);
    add(&mut client, 1, put_of(b"a", "1")).await;
    add(&mut client, 1, put_of(b"b", "1")).await;
    let gone = KeyValue { db_version: Some("1".into()), synchronization: Some(1), ..key_value(b"old") };
    client.send(in_batch(RequestKind::Delete, 1), with_key(gone), Bytes::new()).await.unwrap();
    // Commands outside of the batch go on meanwhile, and see nothing of it.
    assert_eq!(get(&mut client, b"a").await.code, Code::NotFound);
    assert_eq!(get(&mut other, b"old").await.code, Code::Success);
    let reply = end(&mut client, 1, Some(3)).await;
    let batch = reply.body.batch.unwrap();
    assert_eq!((reply.code, batch.sequence, batch.failed_sequence), (Code::Success, vec![3, 4, 5], None));
    assert_eq!(get(&mut other, b"a").await.value, "v");
    assert_eq!(get(&mut other, b"old").await.code, Code::NotFound);
    assert_eq!(start(&mut client, 1).await, Code::Success, "its number is free again");
}

#[tokio::test]
async fn one_failure_fails_the_batch() {
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"there", "1", b"v").await;
    let wrong: [(&str, KeyValue); 5] = [
        ("version", KeyValue { db_version: Some("2".into()), force: None, ..put_of(b"there", "3") }),
        ("no version", KeyValue { force: None, ..put_of(b"there", "3") }),
        ("synchronization", KeyValue { synchronization: None, ..put_of(b"x", "1") }),
        ("key", put_of(&[b'x'; 4_097], "1")),
        ("after one before it", KeyValue { db_version: Some("2".into()), force: None, ..put_of(b"good", "3") }),
    ];
    for (id, (name, wrong)) in (10..).zip(wrong) {
        assert_eq!(start(&mut client, id).await, Code::Success);
        add(&mut client, id, put_of(b"good", "1")).await;
        add(&mut client, id, wrong).await;
        add(&mut client, id, put_of(b"good too", "1")).await;
        let reply = end(&mut client, id, Some(3)).await;
        let batch = reply.body.batch.unwrap();
        assert_eq!((reply.code, batch.sequence.len()), (Code::InvalidBatch, 3), "{name}");
        assert_eq!(batch.failed_sequence, Some(batch.sequence[1]), "{name}");
        assert!(!reply.what.contains("kinetic/"), "{name}: {}", reply.what);
        assert_eq!(get(&mut client, b"good").await.code, Code::NotFound, "{name}");
    }
    start(&mut client, 1).await;
    add(&mut client, 1, put_of(b"good", "1")).await;
    assert_eq!(end(&mut client, 1, Some(2)).await.code, Code::InvalidBatch, "one got lost");
    start(&mut client, 1).await;
    let header = in_batch(RequestKind::Get, 1);
    assert_eq!(client.call_with(header, with_key(key_value(b"there")), Bytes::new()).await.unwrap().code, Code::InvalidRequest);
    let reply = end(&mut client, 1, None).await;
    let batch = reply.body.batch.unwrap();
    assert_eq!((reply.code, batch.sequence.len()), (Code::InvalidBatch, 1));
    assert_eq!(batch.failed_sequence, Some(batch.sequence[0]));
    start(&mut client, 1).await;
    let reply = end(&mut client, 1, Some(1)).await;
    assert_eq!((reply.code, reply.body.batch.unwrap().failed_sequence), (Code::InvalidBatch, None), "none came");
    start(&mut client, 1).await;
    assert_eq!(end(&mut client, 1, Some(0)).await.code, Code::Success, "an empty one");
}

#[tokio::test]
async fn batches_and_their_commands_are_limited() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (id, commands, code) in [(1, 15, Code::Success), (2, 16, Code::InvalidRequest), (3, 500, Code::InvalidRequest)] {
        start(&mut client, id).await;
        for number in 0..commands {
            add(&mut client, id, put_of(format!("{id}/{number}").as_bytes(), "1")).await;
        }
        let reply = end(&mut client, id, Some(commands)).await;
        let batch = reply.body.batch.unwrap();
        assert_eq!(reply.code, code, "{commands}");
        // The first that is over the limit is named, and none after it.
        assert_eq!(batch.sequence.len(), 15.max(16.min(commands as usize)));
        assert_eq!(batch.failed_sequence, batch.sequence.get(15).copied());
    }
    for id in 1..=5 {
        assert_eq!(start(&mut client, id).await, Code::Success);
    }
    assert_eq!(start(&mut client, 6).await, Code::InvalidRequest);
    assert_eq!(start(&mut client, 5).await, Code::InvalidRequest, "it is open");
    let unnamed = client.call(RequestKind::StartBatch, Body::default(), Bytes::new()).await.unwrap();
    assert_eq!(unnamed.code, Code::InvalidRequest);
    assert_eq!(start(&mut server.client().await, 1).await, Code::Success, "others have batches of their own");
}

/// Starts a batch, and adds so many puts of one byte.
async fn fill(client: &mut Client, id: u32, commands: i32) {
    assert_eq!(start(client, id).await, Code::Success);
    for number in 0..commands {
        add(client, id, put_of(format!("{id}/{number}").as_bytes(), "1")).await;
    }
}

/// Batches of one client took all of the room, and nobody else had one.
#[tokio::test]
async fn clients_share_the_room_for_batches() {
    let limits = Limits { batch_bytes: 12, ..Limits::default() };
    let options = KineticOptions { limits, ..KineticOptions::default() };
    let server = Server::with(Arc::new(MemoryStore::new()), Arc::new(NoSlices), options).await;
    let seven = acl(7, vec![scope(b"", &Permission::ALL)]);
    assert_eq!(set(&mut server.tls_client().await, vec![seven]).await, Code::Success);
    let (mut first, mut second) = (server.client().await, server.client_as(7, b"key of 7", false).await);
    fill(&mut first, 1, 6).await;
    fill(&mut first, 2, 1).await;
    let reply = end(&mut first, 2, Some(1)).await;
    let batch = reply.body.batch.unwrap();
    assert_eq!((reply.code, batch.failed_sequence), (Code::ServiceBusy, Some(batch.sequence[0])), "{}", reply.what);
    for (commands, code) in [(3, Code::Success), (4, Code::ServiceBusy), (3, Code::Success)] {
        fill(&mut second, 1, commands).await;
        let reply = end(&mut second, 1, Some(commands)).await;
        let batch = reply.body.batch.unwrap();
        assert_eq!((reply.code, batch.failed_sequence), (code, batch.sequence.get(3).copied()), "{commands}");
    }
    assert_eq!(end(&mut first, 1, Some(6)).await.code, Code::Success);
    fill(&mut first, 1, 6).await;
    assert_eq!(
        first.call_with(in_batch(RequestKind::AbortBatch, 1), Body::default(), Bytes::new()).await.unwrap().code,
        Code::Success
    );
    fill(&mut first, 1, 6).await;
    assert_eq!(end(&mut first, 1, Some(6)).await.code, Code::Success, "what was aborted holds nothing");
    fill(&mut first, 1, 6).await;
    drop(first);
    let mut third = server.client().await;
    let taken = async {
        loop {
            fill(&mut third, 1, 6).await;
            if end(&mut third, 1, Some(6)).await.code == Code::Success {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), taken).await.expect("bytes go with their connection");
}

#[tokio::test]
async fn a_batch_dies_with_its_connection_and_when_it_is_aborted() {
    let server = Server::start().await;
    let mut client = server.client().await;
    start(&mut client, 1).await;
    add(&mut client, 1, put_of(b"a", "1")).await;
    drop(client);
    let mut client = server.client().await;
    start(&mut client, 2).await;
    add(&mut client, 2, put_of(b"b", "1")).await;
    let aborted = client.call_with(in_batch(RequestKind::AbortBatch, 2), Body::default(), Bytes::new()).await.unwrap();
    assert_eq!(aborted.code, Code::Success);
    for key in [b"a", b"b"] {
        assert_eq!(get(&mut client, key).await.code, Code::NotFound);
    }
    for kind in RequestKind::ALL.into_iter().filter(|kind| *kind != RequestKind::StartBatch) {
        let mut client = server.client().await;
        // The batch of another connection is as unknown as none.
        let error = ask(&mut client, kind, Some(1)).await.unwrap_err();
        assert!(error.to_string().contains("INVALID_REQUEST"), "{kind:?}: {error}");
        assert!(client.call(RequestKind::Noop, Body::default(), Bytes::new()).await.is_err(), "the connection has ended");
    }
}

/// Some clients name batch 0 in all that they send.
#[tokio::test]
async fn batch_0_is_none_until_it_is_started() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for kind in [RequestKind::Put, RequestKind::Get, RequestKind::Noop, RequestKind::Delete] {
        assert_eq!(ask(&mut client, kind, Some(0)).await.unwrap(), Code::Success, "{kind:?}");
    }
    assert_eq!(start(&mut client, 0).await, Code::Success);
    add(&mut client, 0, put_of(b"in it", "1")).await;
    assert_eq!(get(&mut client, b"in it").await.code, Code::NotFound);
    let ended = end(&mut client, 0, Some(1)).await;
    assert_eq!((ended.code, ended.header.batch_id), (Code::Success, None), "no answer names a batch");
    assert_eq!(get(&mut client, b"in it").await.code, Code::Success);
    for kind in [RequestKind::EndBatch, RequestKind::AbortBatch] {
        for batch in [Some(0), None] {
            assert!(ask(&mut server.client().await, kind, batch).await.is_err(), "{kind:?} {batch:?}");
        }
    }
}

#[tokio::test]
async fn a_batch_puts_nothing_after_all_keys_were_erased() {
    let server = Server::start().await;
    let mut admin = server.tls_client().await;
    let erase = Setup { instant_secure_erase: Some(true), ..Setup::default() };
    for operation in [None, Some(3), Some(4)] {
        let mut client = server.client().await;
        for id in [1, 2] {
            assert_eq!(start(&mut client, id).await, Code::Success);
        }
        add(&mut client, 1, put_of(b"old", "1")).await;
        add(&mut client, 1, put_of(b"older", "1")).await;
        let erased = match operation {
            None => call(&mut admin, RequestKind::Setup, Body { setup: Some(erase.clone()), ..Body::default() }).await,
            Some(operation) => admin.pin(operation, b"").await.unwrap(),
        };
        assert_eq!(erased.code, Code::Success);
        let reply = end(&mut client, 1, Some(2)).await;
        let batch = reply.body.batch.unwrap();
        assert_eq!((reply.code, batch.failed_sequence), (Code::InvalidBatch, Some(batch.sequence[0])), "{operation:?}");
        assert_eq!(get(&mut client, b"old").await.code, Code::NotFound);
        // What was opened before and is empty has nothing to put, and is as old.
        let empty = end(&mut client, 2, Some(0)).await;
        assert_eq!((empty.code, empty.body.batch.unwrap().failed_sequence), (Code::InvalidBatch, None));
        assert_eq!(start(&mut client, 1).await, Code::Success);
        add(&mut client, 1, put_of(b"new", "1")).await;
        assert_eq!(end(&mut client, 1, Some(1)).await.code, Code::Success, "one that was opened since");
    }
}
