//! What happens while a request waits or runs: its client goes, its identity is erased, writes before it are lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::keys::{CLIENT_PREFIX, stored};
use pithead_kinetic::proto::{Body, KeyValue, P2pOperation, Peer, PushOperation};
use pithead_kinetic::{Code, Permission, RequestKind};
use pithead_store::{KeyRange, Store as _};

use crate::gated::{PLACES, serve, until, waiting};
use crate::rights::{acl, scope, set};
use crate::server::{Server, call, header_of, put, put_of, range_of, with_key, with_range};

/// A put that had waited for its turn was done when the drive was a new one already.
#[tokio::test]
async fn a_put_that_waited_while_its_identity_was_erased_is_not_done() {
    const ERASE: i32 = 3;
    let (store, server) = serve().await;
    let mut admin = server.tls_client().await;
    assert_eq!(set(&mut admin, vec![acl(7, vec![scope(b"", &[Permission::Write])])]).await, Code::Success);
    store.close(true);
    let reads = waiting(&server, PLACES).await;
    until(|| store.inside.load(Ordering::Relaxed) == PLACES).await;
    let mut client = server.client_as(7, b"key of 7", false).await;
    let putting = tokio::spawn(async move { put(&mut client, b"late", "1", b"v").await });
    until(|| server.service.metrics_text().contains("waiting 1")).await;
    assert_eq!(admin.pin(ERASE, b"").await.unwrap().code, Code::Success);
    store.close(false);
    assert_eq!(putting.await.unwrap(), Code::NotAuthorized);
    assert!(store.entry(&stored(b"late")).unwrap().is_none());
    for read in reads {
        read.await.unwrap();
    }
}

/// It went on for hours, and kept everybody else's checks out.
#[tokio::test]
async fn a_check_ends_with_its_client() {
    let (store, server) = serve().await;
    let mut client = server.client().await;
    for number in 0..50 {
        put(&mut client, format!("a{number:02}").as_bytes(), "1", b"v").await;
    }
    store.close(true);
    let (before, scanning) = (store.reads.load(Ordering::Relaxed), with_range(range_of(b"a", b"z", 10)));
    client.send(header_of(RequestKind::MediaScan), scanning.clone(), Bytes::new()).await.unwrap();
    until(|| store.inside.load(Ordering::Relaxed) == 1).await;
    drop(client);
    let mut other = server.client().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    store.close(false);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(store.reads.load(Ordering::Relaxed), before + 1, "nothing more is read");
    let whole = call(&mut other, RequestKind::MediaScan, scanning).await;
    assert_eq!((whole.code, whole.body.range.unwrap().end_key.unwrap()), (Code::Success, "z".into()));
}

#[tokio::test]
async fn a_push_ends_with_its_client() {
    let (first, (there, second)) = (Server::start().await, serve().await);
    let mut client = first.client().await;
    put(&mut client, b"own", "1", b"v").await;
    there.write_ms.store(100, Ordering::Relaxed);
    let to = |number: u32| PushOperation {
        key: Some("own".into()),
        new_key: Some(format!("pushed {number:03}").into()),
        ..PushOperation::default()
    };
    let peer = Peer { hostname: Some("127.0.0.1".into()), port: Some(i32::from(second.plain.port())), tls: None };
    let push = P2pOperation { peer: Some(peer), operation: (0..200).map(to).collect(), all_child_operations_succeeded: None };
    let body = Body { p2p_operation: Some(push), ..Body::default() };
    client.send(header_of(RequestKind::Peer2PeerPush), body, Bytes::new()).await.unwrap();
    let pushed = || there.range(&KeyRange::prefix(CLIENT_PREFIX)).unwrap().len();
    until(|| pushed() > 2).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = pushed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(pushed(), before, "no more entries are pushed");
}

#[tokio::test]
async fn whoever_writes_with_flush_learns_that_writes_before_it_are_lost() {
    const FLUSH: i32 = 3;
    let (store, server) = serve().await;
    let mut client = server.client().await;
    store.is_lost.store(true, Ordering::Relaxed);
    for code in [Code::InternalError, Code::Success] {
        let asked = KeyValue { synchronization: Some(FLUSH), ..put_of(b"k", "1") };
        assert_eq!(call(&mut client, RequestKind::Put, with_key(asked)).await.code, code);
    }
}
