//! Bytes that mean harm: they harm their own connection at most.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pithead_entry::ConnectionLimits;
use pithead_kinetic::proto::{Body, Command, Header, HmacAuth, KeyValue, Message, PinAuth, Security, auth};
use pithead_kinetic::{Code, FACTORY_KEY, Frame, KineticOptions, Limits, NoSlices, RequestKind, read_frame, sign, write_frame};
use pithead_store::MemoryStore;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::server::{Server, get, put};

async fn open(server: &Server) -> TcpStream {
    let mut socket = TcpStream::connect(server.plain).await.unwrap();
    read_frame(&mut socket, &Limits::default()).await.unwrap();
    socket
}

fn signed(command: &Command, key: &[u8], identity: i64) -> Message {
    let bytes = command.encode_to_vec();
    let hmac = Some(Bytes::copy_from_slice(&sign(key, &bytes)));
    Message {
        auth_type: Some(auth::HMAC),
        hmac_auth: Some(HmacAuth { identity: Some(identity), hmac }),
        command_bytes: Some(bytes.into()),
        ..Message::default()
    }
}

fn noop(sequence: i64) -> Command {
    let header = Header { message_type: Some(RequestKind::Noop as i32), sequence: Some(sequence), ..Header::default() };
    Command { header: Some(header), body: None, status: None }
}

async fn exchange(socket: &mut TcpStream, message: &Message) -> Frame {
    write_frame(socket, message, b"").await.unwrap();
    read_frame(socket, &Limits::default()).await.unwrap()
}

fn command_of(frame: &Frame) -> Command {
    Command::read(&frame.message.command_bytes.clone().unwrap()).unwrap()
}

fn code_of(frame: &Frame) -> Code {
    Code::of(command_of(frame).status.unwrap().code.unwrap()).unwrap()
}

/// Which request an answer is to: its sequence, and its kind.
fn answers(frame: &Frame) -> (Option<i64>, Option<i32>) {
    let header = command_of(frame).header.unwrap();
    (header.ack_sequence, header.message_type)
}

async fn ends(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection goes on");
}

#[tokio::test]
async fn lengths_that_are_too_long_end_the_connection_with_a_clear_status() {
    let server = Server::start().await;
    for (message, value) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX), ((1 << 20) + 1, 7)] {
        let mut socket = open(&server).await;
        let header = [&b"F"[..], &u32::to_be_bytes(message), &u32::to_be_bytes(value)].concat();
        socket.write_all(&header).await.unwrap();
        let frame = read_frame(&mut socket, &Limits::default()).await.unwrap();
        assert_eq!((frame.message.auth_type, code_of(&frame)), (Some(auth::UNSOLICITED), Code::InvalidRequest));
        assert_eq!(command_of(&frame).header, None);
        ends(&mut socket).await;
    }
}

/// The connection was reset while the client was sending, and it never learned why.
#[tokio::test]
async fn a_last_status_arrives_at_a_client_that_goes_on_sending() {
    let connections = ConnectionLimits { total: 2, per_address: 2, ..ConnectionLimits::default() };
    let options = KineticOptions { connections, ..KineticOptions::default() };
    let server = Server::with(Arc::new(MemoryStore::new()), Arc::new(NoSlices), options).await;
    let mut known = server.client().await;
    put(&mut known, b"k", "1", b"v").await;
    let too_long = [&b"F"[..], &u32::to_be_bytes(u32::MAX), &[0; 4], &vec![0; 4 << 20]].concat();
    let mut socket = open(&server).await;
    socket.write_all(&too_long).await.unwrap();
    assert_eq!(code_of(&read_frame(&mut socket, &Limits::default()).await.unwrap()), Code::InvalidRequest);
    ends(&mut socket).await;
    // The same for one that is turned away.
    let mut other = server.client().await;
    put(&mut other, b"k", "1", b"v").await;
    let mut socket = TcpStream::connect(server.plain).await.unwrap();
    socket.write_all(&too_long).await.unwrap();
    assert_eq!(code_of(&read_frame(&mut socket, &Limits::default()).await.unwrap()), Code::ServiceBusy);
    ends(&mut socket).await;
}

#[tokio::test]
async fn half_sent_frames_hold_up_nobody_else() {
    let server = Server::start().await;
    let mut held = Vec::new();
    for cut in 0..60 {
        let mut socket = open(&server).await;
        let header = [&b"F"[..], &u32::to_be_bytes(1 << 20), &u32::to_be_bytes(1 << 20)].concat();
        socket.write_all(&header[..1 + cut % 9]).await.unwrap();
        held.push(socket);
    }
    let mut client = server.client().await;
    assert_eq!(put(&mut client, b"k", "1", b"v").await, Code::Success);
    assert_eq!(get(&mut client, b"k").await.value, "v");
}

#[tokio::test]
async fn strangers_are_answered_and_then_hung_up_on() {
    let server = Server::start().await;
    let mut socket = open(&server).await;
    let wrong = async |socket: &mut TcpStream, sequence: i64| {
        let (key, identity) = if sequence % 2 == 0 { (&b"wrong"[..], 1) } else { (FACTORY_KEY, 99) };
        let frame = exchange(socket, &signed(&noop(sequence), key, identity)).await;
        assert_eq!((code_of(&frame), answers(&frame)), (Code::HmacFailure, (Some(sequence), Some(29))));
    };
    for sequence in 0..15 {
        wrong(&mut socket, sequence).await;
    }
    // Whoever has a key may be wrong again.
    assert_eq!(code_of(&exchange(&mut socket, &signed(&noop(15), FACTORY_KEY, 1)).await), Code::Success);
    for sequence in 16..32 {
        wrong(&mut socket, sequence).await;
    }
    ends(&mut socket).await;
    for hmac_auth in [None, Some(HmacAuth::default()), Some(HmacAuth { identity: Some(1), hmac: None })] {
        let mut socket = open(&server).await;
        let message = Message { hmac_auth, ..signed(&noop(1), FACTORY_KEY, 1) };
        assert_eq!(code_of(&exchange(&mut socket, &message).await), Code::HmacFailure);
    }
}

#[tokio::test]
async fn sequences_only_grow() {
    let server = Server::start().await;
    let mut socket = open(&server).await;
    for (sequence, code) in [
        (5, Code::Success),
        (5, Code::InvalidRequest),
        (4, Code::InvalidRequest),
        (-1, Code::InvalidRequest),
        (6, Code::Success),
        (100, Code::Success),
        (7, Code::InvalidRequest),
        (i64::MAX, Code::Success),
        (i64::MAX, Code::InvalidRequest),
    ] {
        assert_eq!(code_of(&exchange(&mut socket, &signed(&noop(sequence), FACTORY_KEY, 1)).await), code, "{sequence}");
    }
}

#[tokio::test]
async fn messages_that_are_none_have_a_clear_answer() {
    let server = Server::start().await;
    let headless = Command { header: None, body: Some(Box::default()), status: None };
    let mut socket = open(&server).await;
    assert_eq!(code_of(&exchange(&mut socket, &signed(&headless, FACTORY_KEY, 1)).await), Code::HeaderRequired);
    let garbage = Bytes::from_static(b"\xff\xff\xff");
    let hmac = Some(Bytes::copy_from_slice(&sign(FACTORY_KEY, &garbage)));
    let message = Message {
        hmac_auth: Some(HmacAuth { identity: Some(1), hmac }),
        command_bytes: Some(garbage.clone()),
        ..signed(&noop(1), FACTORY_KEY, 1)
    };
    assert_eq!(code_of(&exchange(&mut socket, &message).await), Code::InvalidRequest);
    for auth_type in [None, Some(-1), Some(0), Some(auth::UNSOLICITED), Some(9)] {
        let mut socket = open(&server).await;
        let message = Message { auth_type, ..signed(&noop(1), FACTORY_KEY, 1) };
        let frame = exchange(&mut socket, &message).await;
        assert_eq!((frame.message.auth_type, code_of(&frame)), (Some(auth::UNSOLICITED), Code::InvalidRequest));
        assert_eq!(command_of(&frame).header, None);
        ends(&mut socket).await;
    }
    let mut socket = open(&server).await;
    socket.write_all(b"F\0\0\0\x03\0\0\0\0\xff\xff\xff").await.unwrap();
    assert_eq!(code_of(&read_frame(&mut socket, &Limits::default()).await.unwrap()), Code::InvalidRequest);
    let empty = Body::default();
    assert_eq!(empty.encoded_len(), 0);
}

/// Clients wait for the answer to a request by its number, and such answers had none.
#[tokio::test]
async fn what_is_not_read_is_answered_by_its_number() {
    let server = Server::start().await;
    let mut socket = open(&server).await;
    let key_value = KeyValue { tag: Some(vec![7; 100_000].into()), ..KeyValue::default() };
    let body = Some(Box::new(Body { key_value: Some(key_value), ..Body::default() }));
    let header = Header { message_type: Some(RequestKind::Put as i32), sequence: Some(3), ..Header::default() };
    let long = Command { header: Some(header), body, status: None };
    let frame = exchange(&mut socket, &signed(&long, b"wrong", 1)).await;
    assert_eq!((code_of(&frame), answers(&frame)), (Code::HmacFailure, (Some(3), Some(3))));
    // A header, and after it what is no field; a message within another that is none; more messages than anybody needs.
    let within = [&[0x12, 5, 0x32, 3, 0x4a, 1][..], &[0xff]].concat();
    let push = [&[0x12, 0x84, 0x80, 0x10, 0x22, 0x80, 0x80, 0x10][..], &[0x12, 0].repeat(1 << 17)].concat();
    for rest in [&[0xff, 0xff, 0xff][..], &within, &push] {
        let bytes = Bytes::from([noop(9).encode_to_vec(), rest.to_vec()].concat());
        let hmac = Some(Bytes::copy_from_slice(&sign(FACTORY_KEY, &bytes)));
        let hmac_auth = Some(HmacAuth { identity: Some(1), hmac });
        let message = Message { hmac_auth, command_bytes: Some(bytes), ..signed(&noop(9), FACTORY_KEY, 1) };
        let frame = exchange(&mut socket, &message).await;
        assert_eq!((code_of(&frame), answers(&frame)), (Code::InvalidRequest, (Some(9), Some(29))));
    }
    assert_eq!(code_of(&exchange(&mut socket, &signed(&noop(9), FACTORY_KEY, 1)).await), Code::Success);
}

#[tokio::test]
async fn garbage_in_place_of_tls_ends_its_own_connection_only() {
    let server = Server::start().await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3], b"F\0\0\0\0\0\0\0\0"] {
        let mut socket = TcpStream::connect(server.tls).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        drop(socket);
    }
    let mut client = server.tls_client().await;
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
}

/// One client without credentials had all connections, and nobody else got as much as an answer.
#[tokio::test]
async fn strangers_make_room_and_who_finds_none_is_told_so() {
    let connections = ConnectionLimits { total: 3, per_address: 3, ..ConnectionLimits::default() };
    let options = KineticOptions { connections, ..KineticOptions::default() };
    let server = Server::with(Arc::new(MemoryStore::new()), Arc::new(NoSlices), options).await;
    let mut known = server.client().await;
    let limits = known.greeting().body.clone().unwrap().get_log.unwrap().limits.unwrap();
    assert_eq!(limits.max_connections, Some(3), "as many as one client gets");
    assert_eq!(put(&mut known, b"k", "1", b"v").await, Code::Success);
    let (mut first, _second) = (open(&server).await, open(&server).await);
    // Half of a frame makes nobody known.
    first.write_all(b"F\0\0").await.unwrap();
    let mut next = server.client().await;
    assert_eq!(get(&mut next, b"k").await.value, "v");
    let told = read_frame(&mut first, &Limits::default()).await.unwrap();
    assert_eq!((told.message.auth_type, code_of(&told)), (Some(auth::UNSOLICITED), Code::ServiceBusy));
    ends(&mut first).await;
    let mut last = server.client().await;
    assert_eq!(get(&mut last, b"k").await.value, "v");
    // Now all are known, and stay.
    let mut refused = TcpStream::connect(server.plain).await.unwrap();
    assert_eq!(code_of(&read_frame(&mut refused, &Limits::default()).await.unwrap()), Code::ServiceBusy);
    ends(&mut refused).await;
    assert_eq!(get(&mut known, b"k").await.value, "v");
    drop(last);
    let mut late = server.client().await;
    assert_eq!(get(&mut late, b"k").await.value, "v");
}

/// Strangers who waited for answers were deaf to whoever wanted their places, and so nobody else was let in.
#[tokio::test]
async fn strangers_who_wait_for_an_answer_make_room_too() {
    const GUESSING: usize = 12;
    let connections = ConnectionLimits { total: GUESSING, per_address: GUESSING, ..ConnectionLimits::default() };
    let options = KineticOptions { connections, ..KineticOptions::default() };
    let server = Server::with(Arc::new(MemoryStore::new()), Arc::new(NoSlices), options).await;
    let mut admin = server.tls_client().await;
    let security = Security { new_lock_pin: Some("right".into()), ..Security::default() };
    let body = Body { security: Some(security), ..Body::default() };
    assert_eq!(admin.call(RequestKind::Security, body, Bytes::new()).await.unwrap().code, Code::Success);
    drop(admin);
    let mut guessers = tokio::task::JoinSet::new();
    for _ in 0..GUESSING {
        let mut guesser = server.tls_client().await;
        guessers.spawn(async move { while guesser.pin(2, b"wrong").await.is_ok() {} });
    }
    // The first one has been answered, and waits for all others now.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let mut client = server.client().await;
    assert_eq!(get(&mut client, b"k").await.code, Code::NotFound);
}

/// Nobody counted them.
#[tokio::test]
async fn refused_pins_of_strangers_in_clear_end_the_connection() {
    let server = Server::start().await;
    let mut socket = open(&server).await;
    let pin = |sequence| {
        let header = Header { message_type: Some(RequestKind::PinOp as i32), sequence: Some(sequence), ..Header::default() };
        let command = Command { header: Some(header), body: None, status: None };
        let pin_auth = Some(PinAuth { pin: Some("1".into()) });
        let command_bytes = Some(command.encode_to_vec().into());
        Message { auth_type: Some(auth::PIN), pin_auth, command_bytes, ..Message::default() }
    };
    for sequence in 1..=16 {
        assert_eq!(code_of(&exchange(&mut socket, &pin(sequence)).await), Code::InvalidRequest);
    }
    ends(&mut socket).await;
}
