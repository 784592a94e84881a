//! Pushes from drive to drive.

use bytes::Bytes;
use pithead_kinetic::proto::{Body, P2pOperation, Peer, PushOperation};
use pithead_kinetic::{Code, RequestKind};

use crate::server::{Server, call, get, put};

fn peer(server: &Server, tls: bool) -> Peer {
    let address = if tls { server.tls } else { server.plain };
    Peer { hostname: Some(address.ip().to_string()), port: Some(i32::from(address.port())), tls: Some(tls) }
}

fn push(peer: Peer, operation: Vec<PushOperation>) -> P2pOperation {
    P2pOperation { peer: Some(peer), operation, all_child_operations_succeeded: None }
}

fn of(key: &str) -> PushOperation {
    PushOperation { key: Some(key.to_owned().into()), ..PushOperation::default() }
}

fn asked(push: P2pOperation) -> Body {
    Body { p2p_operation: Some(push), ..Body::default() }
}

fn codes(push: &P2pOperation) -> Vec<Code> {
    push.operation.iter().map(|it| Code::of(it.status.as_ref().unwrap().code.unwrap()).unwrap()).collect()
}

#[tokio::test]
async fn entries_go_to_another_drive_and_on_to_a_third() {
    let (first, second, third) = (Server::start().await, Server::start().await, Server::start().await);
    let mut client = first.client().await;
    for key in ["a", "b"] {
        put(&mut client, key.as_bytes(), "7", key.as_bytes()).await;
    }
    let on = push(peer(&third, true), vec![PushOperation { new_key: Some("b at the third".into()), ..of("b") }]);
    let operations = vec![
        PushOperation { new_key: Some("a at the second".into()), ..of("a") },
        PushOperation { p2pop: Some(Box::new(on)), ..of("b") },
    ];
    let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(peer(&second, false), operations))).await;
    let done = reply.body.p2p_operation.unwrap();
    assert_eq!((reply.code, done.all_child_operations_succeeded), (Code::Success, Some(true)), "{}", reply.what);
    assert_eq!(codes(&done), [Code::Success, Code::Success]);
    assert_eq!(codes(done.operation[1].p2pop.as_ref().unwrap()), [Code::Success]);
    let mut there = second.client().await;
    assert_eq!(get(&mut there, b"a at the second").await.value, "a");
    assert_eq!(get(&mut there, b"b").await.body.key_value.unwrap().db_version.unwrap(), "7");
    assert_eq!(get(&mut third.client().await, b"b at the third").await.value, "b");
}

#[tokio::test]
async fn each_entry_says_what_became_of_it() {
    let (first, second) = (Server::start().await, Server::start().await);
    let mut client = first.client().await;
    put(&mut client, b"a", "1", b"v").await;
    put(&mut second.client().await, b"a", "other", b"v").await;
    let operations = vec![
        PushOperation { version: Some("wrong".into()), ..of("a") },
        of("no such key"),
        PushOperation { version: Some("other".into()), ..of("a") },
        PushOperation { version: Some("wrong".into()), force: Some(true), ..of("a") },
        PushOperation { p2pop: Some(Box::new(push(peer(&first, false), vec![of("nothing there")]))), ..of("a") },
    ];
    let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(peer(&second, false), operations))).await;
    let done = reply.body.p2p_operation.unwrap();
    assert_eq!((reply.code, done.all_child_operations_succeeded), (Code::NestedOperationErrors, Some(false)));
    assert_eq!(codes(&done), [Code::VersionMismatch, Code::NotFound, Code::Success, Code::Success, Code::Success]);
    assert_eq!(codes(done.operation[4].p2pop.as_ref().unwrap()), [Code::NotFound]);
}

#[tokio::test]
async fn a_drive_that_is_not_there_is_said_to_be_so() {
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"a", "1", b"v").await;
    let nobody = Peer { hostname: Some("127.0.0.1".into()), port: Some(1), tls: None };
    let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(nobody.clone(), vec![of("a")]))).await;
    assert_eq!(reply.code, Code::RemoteConnectionError);
    assert_eq!(codes(&reply.body.p2p_operation.unwrap()), [Code::NotAttempted]);
    for wrong in [
        Peer { port: Some(0), ..nobody.clone() },
        Peer { port: Some(70_000), ..nobody.clone() },
        Peer { hostname: None, ..nobody },
    ] {
        let reply = client.call(RequestKind::Peer2PeerPush, asked(push(wrong, vec![])), Bytes::new()).await.unwrap();
        assert_eq!(reply.code, Code::InvalidRequest);
    }
}
