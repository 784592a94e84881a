//! What is fuzzed: bytes of a client, up to the point where a store would be asked.

use bytes::Bytes;
use prost::Message as _;

use crate::code::RequestKind;
use crate::frame::{read_frame, write_frame};
use crate::limits::Limits;
use crate::proto::{
    Acl, AclScope, Body, Command, GetLog, Header, HmacAuth, KeyValue, Message, P2pOperation, Peer, PushOperation, Range,
    Security, auth,
};
use crate::sign::{sign, verify};

/// Reads frames until the bytes end. Whether all were frames, and whether each was within its bounds.
pub fn frames(bytes: &[u8]) -> Result<usize, String> {
    let limits = Limits::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut from = bytes;
        let mut count = 0;
        while !from.is_empty() {
            let frame = read_frame(&mut from, &limits).await.map_err(|error| error.to_string())?;
            assert!(frame.value.len() <= limits.value_bytes, "a value beyond its bound was kept");
            let command: Bytes = frame.message.command_bytes.unwrap_or_default();
            let signature = frame.message.hmac_auth.and_then(|auth| auth.hmac).unwrap_or_default();
            verify(crate::FACTORY_KEY, &command, &signature);
            count += 1;
        }
        Ok(count)
    })
}

/// Reads a command, as a whole and as far as its header.
pub fn command(bytes: &[u8]) -> Result<Command, String> {
    let header = Header::of(bytes);
    let command = Command::read(bytes).map_err(|error| error.to_string())?;
    assert_eq!(command.header.clone().unwrap_or_default(), header, "the same bytes have two headers");
    Ok(command)
}

/// Commands as clients send them.
pub fn example_commands() -> Vec<Vec<u8>> {
    let key_value = KeyValue {
        new_version: Some("2".into()),
        key: Some("key".into()),
        db_version: Some("1".into()),
        tag: Some(vec![7; 20].into()),
        algorithm: Some(1),
        metadata_only: Some(true),
        force: Some(true),
        synchronization: Some(1),
    };
    let range = Range {
        start_key: Some("a".into()),
        end_key: Some("z".into()),
        start_key_inclusive: Some(true),
        end_key_inclusive: Some(true),
        max_returned: Some(200),
        reverse: Some(true),
        keys: vec!["a".into(), "b".into()],
    };
    let scope = AclScope { offset: Some(1), value: Some("v".into()), permission: vec![0, 1, 2], tls_required: Some(true) };
    let acl =
        Acl { identity: Some(7), key: Some("key".into()), hmac_algorithm: Some(1), scope: vec![scope], max_priority: Some(5) };
    let peer = Some(Peer { hostname: Some("host".to_owned()), port: Some(8123), tls: Some(true) });
    let operation = PushOperation { key: Some("key".into()), ..PushOperation::default() };
    let inner = P2pOperation { peer: peer.clone(), operation: vec![operation.clone()], ..P2pOperation::default() };
    let outer = PushOperation { p2pop: Some(Box::new(inner)), ..operation };
    let push = P2pOperation { peer, operation: vec![outer], ..P2pOperation::default() };
    let bodies = [
        (RequestKind::Put, Body { key_value: Some(key_value), ..Body::default() }),
        (RequestKind::GetKeyRange, Body { range: Some(range), ..Body::default() }),
        (RequestKind::Security, Body { security: Some(Security { acl: vec![acl], ..Security::default() }), ..Body::default() }),
        (RequestKind::Peer2PeerPush, Body { p2p_operation: Some(push), ..Body::default() }),
        (
            RequestKind::GetLog,
            Body { get_log: Some(GetLog { types: (0..8).collect(), ..GetLog::default() }), ..Body::default() },
        ),
    ];
    let command = |(kind, body): (RequestKind, Body)| {
        let header = Header {
            cluster_version: Some(1),
            connection_id: Some(1 << 40),
            sequence: Some(9),
            message_type: Some(kind as i32),
            timeout: Some(1_000),
            early_exit: Some(true),
            priority: Some(5),
            batch_id: Some(1),
            ..Header::default()
        };
        Command { header: Some(header), body: Some(Box::new(body)), status: None }.encode_to_vec()
    };
    bodies.into_iter().map(command).collect()
}

/// Frames as clients send them, signed with the key that everybody knows.
pub fn example_frames() -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let frame = |command: Vec<u8>| {
        let hmac = Some(Bytes::copy_from_slice(&sign(crate::FACTORY_KEY, &command)));
        let message = Message {
            auth_type: Some(auth::HMAC),
            hmac_auth: Some(HmacAuth { identity: Some(crate::FACTORY_IDENTITY), hmac }),
            command_bytes: Some(command.into()),
            ..Message::default()
        };
        let mut bytes = Vec::new();
        // A vector takes everything.
        let written = runtime.as_ref().map(|runtime| runtime.block_on(write_frame(&mut bytes, &message, b"value")));
        written.is_ok_and(|written| written.is_ok()).then_some(bytes)
    };
    example_commands().into_iter().filter_map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_read() {
        let (commands, examples) = (example_commands(), example_frames());
        assert_eq!((commands.len(), examples.len()), (5, 5));
        assert!(commands.iter().all(|bytes| command(bytes).is_ok()));
        assert_eq!(frames(&examples.concat()), Ok(5));
    }
}
