//! A store that is slow or damaged: who waits too long is told so, and what is damaged is named.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::client::Client;
use pithead_kinetic::keys::stored;
use pithead_kinetic::proto::{Batch, Body, Header, ManageApplet, Setup};
use pithead_kinetic::{Code, RequestKind};
use pithead_store::Store as _;

use crate::gated::{PLACES, WAITING, serve, until, waiting};
use crate::server::{call, get, header_of, key_value, put, put_of, range_of, with_key, with_range};

async fn get_within(client: &mut Client, ms: i64) -> Code {
    let header = Header { timeout: Some(ms), ..header_of(RequestKind::Get) };
    client.call_with(header, with_key(key_value(b"k")), Bytes::new()).await.unwrap().code
}

#[tokio::test]
async fn who_finds_no_turn_in_time_is_told_that_the_drive_is_busy() {
    let (store, server) = serve().await;
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    let mut client = server.client().await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    assert_eq!(get_within(&mut client, 50).await, Code::ServiceBusy, "no turn in time");
    let tasks: Vec<_> = tasks.into_iter().chain(waiting(&server, WAITING).await).collect();
    let told = format!("waiting {WAITING}");
    until(|| server.service.metrics_text().contains(&told)).await;
    assert_eq!(get_within(&mut client, 20_000).await, Code::ServiceBusy, "too many wait");
    store.close(false);
    for task in tasks {
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap(), Code::Success);
    }
    assert_eq!(get_within(&mut client, 20_000).await, Code::Success);
}

/// A batch was lost with an answer that said to try again.
#[tokio::test]
async fn a_batch_whose_end_finds_no_turn_stays_open() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    let in_batch = |kind: RequestKind| Header { batch_id: Some(1), ..header_of(kind) };
    let started = client.call_with(in_batch(RequestKind::StartBatch), Body::default(), Bytes::new()).await.unwrap();
    assert_eq!(started.code, Code::Success);
    client.send(in_batch(RequestKind::Put), with_key(put_of(b"batched", "1")), Bytes::from_static(b"v")).await.unwrap();
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    let body = || Body { batch: Some(Batch { count: Some(1), ..Batch::default() }), ..Body::default() };
    for _ in 0..2 {
        let within = Header { timeout: Some(50), ..in_batch(RequestKind::EndBatch) };
        assert_eq!(client.call_with(within, body(), Bytes::new()).await.unwrap().code, Code::ServiceBusy);
    }
    store.close(false);
    for task in tasks {
        assert_eq!(task.await.unwrap(), Code::Success);
    }
    let ended = client.call_with(in_batch(RequestKind::EndBatch), body(), Bytes::new()).await.unwrap();
    assert_eq!((ended.code, ended.body.batch.unwrap().sequence), (Code::Success, vec![2]), "{}", ended.what);
    assert_eq!(get(&mut client, b"batched").await.value, "v");
}

/// An erasure began anew until there were no keys, and so it did not end while others put some.
#[tokio::test]
async fn an_erasure_ends_while_others_put_keys() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    store.racing.store(1, Ordering::Relaxed);
    let setup = Setup { instant_secure_erase: Some(true), ..Setup::default() };
    let erase = call(&mut client, RequestKind::Setup, Body { setup: Some(setup), ..Body::default() });
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), erase).await.expect("it ends").code, Code::Success);
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
    for others in [b"a000000001", b"z000000001"] {
        assert_eq!(get(&mut client, others).await.value, "other's", "it came when those before it were erased");
    }
}

/// An identity that an erasure takes away put a key when the keys were erased already, and it stayed.
#[tokio::test]
async fn keys_of_identities_that_are_erased_go_with_them() {
    const ERASE: i32 = 3;
    let (store, server) = serve().await;
    store.is_put_late.store(true, Ordering::Relaxed);
    let mut client = server.tls_client().await;
    assert_eq!(client.pin(ERASE, b"").await.unwrap().code, Code::Success);
    assert!(store.entry(&stored(b"late")).unwrap().is_none());
}

/// The answer was EXPIRED, and the output was put all the same.
#[tokio::test]
async fn an_output_that_is_being_put_is_waited_for_beyond_the_time() {
    let (store, server) = serve().await;
    store.write_ms.store(1_000, Ordering::Relaxed);
    let mut client = server.client().await;
    let applet = ManageApplet { output_key: Some("out".into()), ..ManageApplet::default() };
    let header = Header { timeout: Some(300), ..header_of(RequestKind::ManageApplet) };
    let body = Body { manage_applet: Some(applet), ..Body::default() };
    let reply = client.call_with(header, body, Bytes::new()).await.unwrap();
    assert_eq!(reply.code, Code::ExecuteComplete, "{}", reply.what);
    assert_eq!(get(&mut client, b"out").await.value, "output");
}

#[tokio::test]
async fn what_is_in_memory_needs_no_turn() {
    let (store, server) = serve().await;
    store.close(true);
    let tasks = waiting(&server, PLACES).await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    store.resident.store(true, Ordering::Relaxed);
    let mut client = server.client().await;
    let reply = get(&mut client, b"k").await;
    assert_eq!((reply.code, &reply.value[..]), (Code::Success, &b"v"[..]));
    assert_eq!(store.inside.load(Ordering::Relaxed), PLACES, "the others wait still");
    store.close(false);
    for task in tasks {
        assert_eq!(task.await.unwrap(), Code::Success);
    }
    assert_eq!(get(&mut client, b"missing").await.code, Code::NotFound);
}

#[tokio::test]
async fn a_check_whose_time_is_over_says_how_far_it_came() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    for key in ["a", "b", "c"] {
        put(&mut client, key.as_bytes(), "1", b"v").await;
    }
    store.close(true);
    let header = Header { timeout: Some(1_000), ..header_of(RequestKind::MediaScan) };
    let opening = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            until(|| store.inside.load(Ordering::Relaxed) == 1).await;
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            store.close(false);
        })
    };
    let reply = client.call_with(header, with_range(range_of(b"a", b"z", 10)), Bytes::new()).await.unwrap();
    opening.await.unwrap();
    assert_eq!(reply.code, Code::Expired, "{}", reply.what);
    assert_eq!(reply.body.range.unwrap().end_key.unwrap(), "a", "the next one begins after it");
    let whole = call(&mut client, RequestKind::MediaScan, with_range(range_of(b"a", b"z", 10))).await;
    assert_eq!((whole.code, whole.body.range.unwrap().end_key.unwrap()), (Code::Success, "z".into()));
}

#[tokio::test]
async fn what_is_damaged_is_named_and_nothing_else_fails() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    put(&mut client, b"bad", "1", b"v").await;
    *store.damaged.lock() = b"bad".to_vec();
    assert_eq!(get(&mut client, b"bad").await.code, Code::PermDataError);
    let early = Header { early_exit: Some(true), ..header_of(RequestKind::Get) };
    let reply = client.call_with(early, with_key(key_value(b"bad")), Bytes::new()).await.unwrap();
    assert_eq!(reply.code, Code::DataError);
    let scanned = call(&mut client, RequestKind::MediaScan, with_range(range_of(b"a", b"z", 10))).await;
    assert_eq!((scanned.code, scanned.body.range.unwrap().keys), (Code::Success, vec![Bytes::from_static(b"bad")]));
    assert_eq!(get(&mut client, b"k").await.code, Code::Success);
    let body: Body = with_key(key_value(b"bad"));
    assert_eq!(call(&mut client, RequestKind::GetVersion, body).await.code, Code::Success, "its version is known");
}

/// Clients that walk over their keys by GETNEXT stop at NOT_FOUND. They were told so in the middle, when a key went just then.
#[tokio::test]
async fn a_neighbour_that_goes_while_it_is_read_is_passed_over() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    for key in ["a", "gone", "z"] {
        put(&mut client, key.as_bytes(), "1", key.as_bytes()).await;
    }
    *store.vanishing.lock() = b"gone".to_vec();
    for (kind, from, found) in [(RequestKind::GetNext, "a", "k"), (RequestKind::GetPrevious, "k", "a")] {
        let reply = call(&mut client, kind, with_key(key_value(from.as_bytes()))).await;
        assert_eq!((reply.code, reply.body.key_value.unwrap().key.unwrap()), (Code::Success, found.into()), "{kind:?}");
    }
    *store.vanishing.lock() = b"z".to_vec();
    assert_eq!(call(&mut client, RequestKind::GetNext, with_key(key_value(b"k"))).await.code, Code::NotFound);
}
