//! Pushes from drive to drive.

use std::time::Duration;

use bytes::Bytes;
use pithead_kinetic::proto::{Body, Command, Header, Message, P2pOperation, Peer, PushOperation, Status};
use pithead_kinetic::{Code, Limits, RequestKind, read_frame, write_frame};
use prost::Message as _;
use tokio::net::TcpListener;

use crate::server::{Server, call, get, header_of, put};

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

/// An entry that is to be pushed on to a server.
fn within(server: &Server, key: &str) -> PushOperation {
    PushOperation { p2pop: Some(Box::new(push(peer(server, false), vec![of(key)]))), ..of(key) }
}

/// The codes of all entries, those within an entry after it.
fn all_codes(push: &P2pOperation) -> Vec<Code> {
    let nested = push.operation.iter().map(|it| it.p2pop.as_deref().map(all_codes).unwrap_or_default());
    codes(push).into_iter().zip(nested).flat_map(|(own, nested)| [vec![own], nested].concat()).collect()
}

/// What is said of all entries of a push, and of those within it.
fn all_succeeded(push: &P2pOperation) -> Vec<Option<bool>> {
    let nested = push.operation.iter().filter_map(|it| it.p2pop.as_deref()).flat_map(all_succeeded);
    [push.all_child_operations_succeeded].into_iter().chain(nested).collect()
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
    // What was to be pushed on was not attempted, either.
    let nested = PushOperation { p2pop: Some(Box::new(push(nobody.clone(), vec![within(&server, "a")]))), ..of("a") };
    let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(nobody.clone(), vec![nested]))).await;
    let done = reply.body.p2p_operation.unwrap();
    assert_eq!((reply.code, all_codes(&done)), (Code::RemoteConnectionError, vec![Code::NotAttempted; 3]));
    assert_eq!(all_succeeded(&done), [Some(false); 3]);
    for wrong in [
        Peer { port: Some(0), ..nobody.clone() },
        Peer { port: Some(70_000), ..nobody.clone() },
        Peer { hostname: None, ..nobody },
    ] {
        let reply = client.call(RequestKind::Peer2PeerPush, asked(push(wrong, vec![])), Bytes::new()).await.unwrap();
        assert_eq!(reply.code, Code::InvalidRequest);
    }
}

#[tokio::test]
async fn what_lies_within_an_entry_says_what_became_of_it() {
    use Code::{InvalidRequest, NestedOperationErrors, NotAttempted, NotFound, RemoteConnectionError, Success};
    let (first, second, third) = (Server::start().await, Server::start().await, Server::start().await);
    let mut client = first.client().await;
    put(&mut client, b"a", "1", b"v").await;
    let nobody = Peer { hostname: Some("127.0.0.1".into()), port: Some(1), tls: None };
    let nameless = Peer { hostname: None, ..nobody.clone() };
    let on = |peer: &Peer, key: &str| {
        let nested = push(peer.clone(), vec![within(&third, "a")]);
        PushOperation { p2pop: Some(Box::new(nested)), ..of(key) }
    };
    for (operation, expected) in [
        // It is not there, and so nothing is pushed on.
        (on(&peer(&third, false), "no such key"), [NotFound, NotAttempted, NotAttempted]),
        // It arrived, and the second drive refused or could not reach the third one.
        (on(&nameless, "a"), [Success, InvalidRequest, NotAttempted]),
        (on(&nobody, "a"), [Success, RemoteConnectionError, NotAttempted]),
    ] {
        let operations = vec![operation, of("a")];
        let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(peer(&second, false), operations))).await;
        let done = reply.body.p2p_operation.unwrap();
        assert_eq!((reply.code, all_codes(&done)), (NestedOperationErrors, [&expected[..], &[Success]].concat()));
        assert_eq!(all_succeeded(&done), [Some(false); 3], "{expected:?}");
    }
    // Statuses that a client sends mean nothing.
    let made_up = Status { code: Some(Success as i32), ..Status::default() };
    let claims = PushOperation { status: Some(made_up), ..of("a") };
    let reply = call(&mut client, RequestKind::Peer2PeerPush, asked(push(nobody, vec![claims]))).await;
    assert_eq!(codes(&reply.body.p2p_operation.unwrap()), [NotAttempted]);
}

/// A drive that greets and then says nothing, or goes once it has got a request.
async fn mute(goes: bool) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = Some(i32::from(listener.local_addr().unwrap().port()));
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let status = Some(Status { code: Some(Code::Success as i32), ..Status::default() });
        let greeting = Command { header: Some(Header::default()), status, ..Command::default() };
        let message = Message { command_bytes: Some(greeting.encode_to_vec().into()), ..Message::default() };
        write_frame(&mut socket, &message, b"").await.unwrap();
        read_frame(&mut socket, &Limits::default()).await.unwrap();
        if !goes {
            std::future::pending::<()>().await;
        }
    });
    Peer { hostname: Some("127.0.0.1".into()), port, tls: None }
}

#[tokio::test]
async fn a_drive_that_does_not_answer_is_not_waited_for_beyond_the_time() {
    use Code::{Expired, NestedOperationErrors, NotAttempted, RemoteConnectionError};
    let server = Server::start().await;
    let mut client = server.client().await;
    put(&mut client, b"a", "1", b"v").await;
    for (goes, expected) in [(false, Expired), (true, NestedOperationErrors)] {
        let operations = vec![within(&server, "a"), within(&server, "a"), of("a")];
        let header = Header { timeout: Some(1_000), ..header_of(RequestKind::Peer2PeerPush) };
        let asked = asked(push(mute(goes).await, operations));
        let reply = tokio::time::timeout(Duration::from_secs(10), client.call_with(header, asked, Bytes::new())).await;
        let reply = reply.expect("its own limit of 20 s does not count").unwrap();
        let done = reply.body.p2p_operation.unwrap();
        let codes = [vec![RemoteConnectionError], vec![NotAttempted; 4]].concat();
        assert_eq!((reply.code, all_codes(&done)), (expected, codes), "{}", reply.what);
        assert_eq!(all_succeeded(&done), [Some(false); 3]);
    }
}

#[tokio::test]
async fn a_drive_that_pushes_on_has_the_time_of_the_whole() {
    let (first, second) = (Server::start().await, Server::start().await);
    let mut client = first.client().await;
    put(&mut client, b"a", "1", b"v").await;
    let on = push(mute(false).await, vec![of("a")]);
    let operations = vec![PushOperation { p2pop: Some(Box::new(on)), ..of("a") }];
    let header = Header { timeout: Some(2_000), ..header_of(RequestKind::Peer2PeerPush) };
    let reply = client.call_with(header, asked(push(peer(&second, false), operations)), Bytes::new()).await.unwrap();
    let done = reply.body.p2p_operation.unwrap();
    assert_eq!((reply.code, all_codes(&done)), (Code::Expired, vec![Code::Success, Code::RemoteConnectionError]));
    assert_eq!(all_succeeded(&done), [Some(false); 2]);
}
