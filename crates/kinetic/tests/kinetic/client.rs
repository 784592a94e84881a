//! The client, and drives that turn it away or do not sign.

use std::sync::Arc;

use bytes::Bytes;
use pithead_entry::{ClientTlsFiles, ConnectionLimits};
use pithead_kinetic::client::{Client, ClientError, ClientOptions, Trust};
use pithead_kinetic::proto::{Body, Command, Header, Message, P2pOperation, Peer, Status, auth};
use pithead_kinetic::{Code, KineticOptions, Limits, NoSlices, RequestKind, read_frame, write_frame};
use pithead_store::MemoryStore;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::server::{Server, call, get, options};

/// Why the drive had no room was taken for a greeting, and the client learned only that the connection was closed.
#[tokio::test]
async fn who_is_turned_away_is_told_why() {
    let connections = ConnectionLimits { total: 1, per_address: 1, ..ConnectionLimits::default() };
    let full = KineticOptions { connections, ..KineticOptions::default() };
    let full = Server::with(Arc::new(MemoryStore::new()), Arc::new(NoSlices), full).await;
    let mut known = full.client().await;
    assert_eq!(get(&mut known, b"k").await.code, Code::NotFound);
    let Err(ClientError::Ended(why)) = Client::connect(&options(full.plain, None)).await else {
        panic!("no room, and no word of it")
    };
    assert!(why.starts_with("SERVICE_BUSY ") && why.ends_with("try again later"), "{why}");
    // So does who has a drive push to it.
    let other = Server::start().await;
    let port = Some(i32::from(full.plain.port()));
    let peer = Peer { hostname: Some(full.plain.ip().to_string()), port, tls: None };
    let push = P2pOperation { peer: Some(peer), ..P2pOperation::default() };
    let body = Body { p2p_operation: Some(push), ..Body::default() };
    let reply = call(&mut other.client().await, RequestKind::Peer2PeerPush, body).await;
    assert_eq!(reply.code, Code::RemoteConnectionError);
    assert!(reply.what.ends_with(&why), "{}", reply.what);
}

/// The certificate was of `localhost` alone, and no client believed it that called an address and asked.
#[tokio::test]
async fn a_drive_is_believed_by_its_own_certificate_and_by_no_other() {
    let (server, other) = (Server::start().await, Server::start().await);
    let trusting = |host: &str, of: &Server| {
        let ca = Trust::Ca(ClientTlsFiles { ca: of.certificate.clone(), identity: None });
        ClientOptions { host: host.to_owned(), ..options(server.tls, Some(ca)) }
    };
    for host in ["127.0.0.1", "localhost"] {
        let mut client = Client::connect(&trusting(host, &server)).await.unwrap();
        assert_eq!(get(&mut client, b"k").await.code, Code::NotFound, "{host}");
    }
    let error = Client::connect(&trusting("127.0.0.1", &other)).await.err();
    assert!(matches!(error, Some(ClientError::Certificate(_))), "{error:?}");
}

fn message(auth_type: Option<i32>) -> Message {
    let status = Some(Status { code: Some(Code::Success as i32), ..Status::default() });
    let command = Command { header: Some(Header::default()), status, ..Command::default() };
    Message { auth_type, command_bytes: Some(command.encode_to_vec().into()), ..Message::default() }
}

/// A drive that greets, and answers one request without a signature.
async fn unsigned(auth_type: Option<i32>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        write_frame(&mut socket, &message(Some(auth::UNSOLICITED)), b"").await.unwrap();
        read_frame(&mut socket, &Limits::default()).await.unwrap();
        write_frame(&mut socket, &message(auth_type), b"").await.unwrap();
    });
    Client::connect(&options(address, None)).await.unwrap()
}

/// Whoever was between a client and its drive left the signature out, and was believed.
#[tokio::test]
async fn who_signs_believes_no_answer_that_is_not_signed() {
    for auth_type in [None, Some(auth::PIN), Some(9)] {
        let mut client = unsigned(auth_type).await;
        let answer = client.call(RequestKind::Noop, Body::default(), Bytes::new()).await;
        assert!(matches!(answer, Err(ClientError::Unsigned)), "{auth_type:?}: {answer:?}");
    }
    let mut client = unsigned(Some(auth::HMAC)).await;
    let answer = client.call(RequestKind::Noop, Body::default(), Bytes::new()).await;
    assert!(matches!(answer, Err(ClientError::Signature)), "{answer:?}");
    let mut client = unsigned(Some(auth::UNSOLICITED)).await;
    let answer = client.call(RequestKind::Noop, Body::default(), Bytes::new()).await;
    assert!(matches!(answer, Err(ClientError::Ended(_))), "{answer:?}");
    assert_eq!(unsigned(Some(auth::PIN)).await.pin(2, b"x").await.unwrap().code, Code::Success);
}
