//! Exchanges of a client with a server of protocol 3.0.7, sent again with this server's connection numbers and new signatures. Answers
//! are compared by their fields. Where ours differ, `docs/reference/kinetic.md` says why; the names are in [`OURS`].

use std::net::SocketAddr;

use bytes::Bytes;
use pithead_kinetic::proto::{Body, Command, GetLog, Header, KeyValue, Message, auth};
use pithead_kinetic::{Code, FACTORY_KEY, Frame, Limits, RequestKind, read_frame, sign, verify, write_frame};
use prost::Message as _;
use tokio::net::TcpStream;

use crate::server::{Server, key_value};

/// Exchanges whose answers differ in some field.
const OURS: [&str; 7] = [
    "hello-unsolicited-status",
    "getlog-limits",
    "getlog-capacities",
    "getlog-configuration",
    "getlog-all6",
    "identity-unknown",
    "sequence-repeat",
];

struct Exchange {
    name: &'static str,
    request: Option<Vec<u8>>,
    response: Option<Vec<u8>>,
}

fn exchanges() -> Vec<Exchange> {
    let lines = include_str!("exchanges.txt").lines().filter(|line| !line.starts_with('#'));
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let digits = (hex != "-").then_some(hex)?;
        Some((0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect())
    };
    let exchange = |line: &'static str| {
        let parts: Vec<&str> = line.split(' ').collect();
        let [name, request, response] = parts[..] else { panic!("{line}") };
        Exchange { name, request: bytes(request), response: bytes(response) }
    };
    lines.map(exchange).collect()
}

async fn parse(bytes: &[u8]) -> Frame {
    read_frame(&mut &bytes[..], &Limits::default()).await.unwrap()
}

fn command_of(message: &Message) -> Command {
    Command::read(&message.command_bytes.clone().unwrap_or_default()).unwrap()
}

/// A connection that sends frames as they are.
struct Wire {
    socket: TcpStream,
    id: i64,
    last: i64,
}

impl Wire {
    async fn open(address: SocketAddr) -> (Wire, Frame) {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let greeting = read_frame(&mut socket, &Limits::default()).await.unwrap();
        let id = command_of(&greeting.message).header.unwrap().connection_id.unwrap();
        (Wire { socket, id, last: -1 }, greeting)
    }

    /// Sends a request with this connection's number. `wrong`: its signature stays a wrong one.
    async fn send(&mut self, frame: &Frame, keep_id: bool, wrong: bool) {
        let mut message = frame.message.clone();
        let mut command = command_of(&message);
        if let Some(header) = &mut command.header {
            header.connection_id = if keep_id { header.connection_id } else { Some(self.id) };
            self.last = header.sequence.unwrap_or(0);
        }
        let bytes = command.encode_to_vec();
        if let Some(hmac) = &mut message.hmac_auth {
            let key: &[u8] = if wrong { b"another key" } else { FACTORY_KEY };
            hmac.hmac = Some(Bytes::copy_from_slice(&sign(key, &bytes)));
        }
        message.command_bytes = Some(bytes.into());
        write_frame(&mut self.socket, &message, &frame.value).await.unwrap();
    }

    async fn receive(&mut self) -> Frame {
        read_frame(&mut self.socket, &Limits::default()).await.unwrap()
    }
}

/// What is compared: connection numbers, texts and signatures are each server's own.
#[derive(Debug, PartialEq)]
struct Answer {
    auth: Option<i32>,
    has_header: bool,
    batch: Option<u32>,
    identity: Option<i64>,
    kind: Option<i32>,
    ack: Option<i64>,
    cluster_version: Option<i64>,
    body: Option<Body>,
    code: Option<i32>,
    value: Bytes,
}

fn answer_of(frame: &Frame) -> Answer {
    let command = command_of(&frame.message);
    let has_header = command.header.is_some();
    let header = command.header.unwrap_or_default();
    Answer {
        auth: frame.message.auth_type,
        has_header,
        batch: header.batch_id,
        identity: frame.message.hmac_auth.as_ref().and_then(|auth| auth.identity),
        kind: header.message_type,
        ack: header.ack_sequence,
        cluster_version: header.cluster_version,
        body: command.body.map(|body| *body),
        code: command.status.and_then(|status| status.code),
        value: frame.value.clone(),
    }
}

/// Commands that were not captured, but lie between two that were: a PUT in a batch.
fn missing(before: &str) -> Option<(i64, u32, KeyValue)> {
    let put = |key: &[u8], force: Option<bool>| KeyValue {
        new_version: Some("x".into()),
        db_version: force.is_none().then(|| "wrong".into()),
        force,
        synchronization: Some(1),
        ..key_value(key)
    };
    match before {
        "abort-batch-2" => Some((49, 2, put(b"b2", Some(true)))),
        "end-batch-version-mismatch" => Some((1, 3, put(b"key1", None))),
        _ => None,
    }
}

fn batched((sequence, batch, key_value): (i64, u32, KeyValue), like: &Frame) -> Frame {
    let header = Header {
        cluster_version: Some(0),
        sequence: Some(sequence),
        message_type: Some(RequestKind::Put as i32),
        batch_id: Some(batch),
        ..Header::default()
    };
    let body = Some(Box::new(Body { key_value: Some(key_value), ..Body::default() }));
    let command = Command { header: Some(header), body, status: None }.encode_to_vec();
    let message = Message { command_bytes: Some(command.into()), ..like.message.clone() };
    Frame { message, value: Bytes::from_static(b"v"), value_bytes: 1 }
}

#[tokio::test]
async fn every_captured_exchange_is_answered_alike() {
    let server = Server::start().await;
    let (mut wire, greeting) = Wire::open(server.plain).await;
    let mut compared = 0;
    let mut differing = Vec::new();
    for Exchange { name, request, response } in exchanges() {
        let expected = match &response {
            Some(bytes) => Some(answer_of(&parse(bytes).await)),
            None => None,
        };
        let Some(request) = request else {
            compare(name, &expected, &answer_of(&greeting), &mut differing);
            continue;
        };
        let request = parse(&request).await;
        let sequence = command_of(&request.message).header.unwrap().sequence.unwrap_or(0);
        // The capture opened another connection wherever the sequence begins anew.
        if sequence <= wire.last && name != "sequence-repeat" {
            wire = Wire::open(server.plain).await.0;
        }
        if let Some(command) = missing(name) {
            wire.send(&batched(command, &request), false, false).await;
        }
        wire.send(&request, name == "wrong-connection-id", name == "hmac-wrong-key").await;
        if expected.is_none() {
            continue;
        }
        let answer = wire.receive().await;
        check_signature(&answer, name);
        compare(name, &expected, &answer_of(&answer), &mut differing);
        compared += 1;
    }
    assert!(compared > 55, "{compared}");
    differing.sort_unstable();
    let mut ours = OURS.to_vec();
    ours.sort_unstable();
    assert_eq!(differing, ours, "the list of what differs is not what differs");
}

fn check_signature(answer: &Frame, name: &str) {
    let Some(auth) = answer.message.hmac_auth.as_ref().filter(|_| answer.message.auth_type == Some(auth::HMAC)) else { return };
    let command = answer.message.command_bytes.clone().unwrap();
    let signed = verify(FACTORY_KEY, &command, auth.hmac.as_ref().unwrap());
    assert_eq!(signed, name != "identity-unknown", "{name}");
}

/// The same code in any case, but for those who were answered nothing; all other fields, or the name is noted.
fn compare(name: &'static str, expected: &Option<Answer>, answer: &Answer, differing: &mut Vec<&'static str>) {
    let expected = expected.as_ref().unwrap();
    match name {
        "identity-unknown" => assert_eq!((expected.code, answer.code), (None, Some(Code::HmacFailure as i32))),
        _ => assert_eq!(answer.code, expected.code, "{name}"),
    }
    if answer == expected {
        return;
    }
    assert!(OURS.contains(&name), "{name}: expected {expected:?}, got {answer:?}");
    // Even then, the answer is about the same.
    assert_eq!(answer.kind.is_some(), expected.kind.is_some() || name == "identity-unknown", "{name}");
    let logs = |body: &Option<Body>| body.as_ref().and_then(|body| body.get_log.as_ref()).map(of_log);
    assert_eq!(logs(&answer.body), logs(&expected.body), "{name}");
    differing.push(name);
}

/// Which parts a log has. The simulator makes up how warm it is, and we do not.
fn of_log(log: &GetLog) -> (Vec<i32>, bool, bool, bool, bool, bool) {
    let has = (log.capacity.is_some(), log.configuration.is_some(), !log.statistics.is_empty(), log.messages.is_some());
    (log.types.clone(), has.0, has.1, has.2, has.3, log.limits.is_some())
}

#[tokio::test]
async fn the_next_connection_is_served_after_a_bad_magic() {
    let server = Server::start().await;
    let (mut wire, _) = Wire::open(server.plain).await;
    tokio::io::AsyncWriteExt::write_all(&mut wire.socket, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(read_frame(&mut wire.socket, &Limits::default()).await.is_err());
    assert!(server.client().await.greeting().status.is_some());
}
