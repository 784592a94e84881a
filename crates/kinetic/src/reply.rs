//! What goes onto a connection: answers, and what is said unasked.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use crate::code::{Failure, RequestKind};
use crate::execute::Answer;
use crate::frame::write_frame;
use crate::proto::{Command, Header, HmacAuth, Message, Status, auth};
use crate::sign::sign;

/// How long a frame may take from its first byte to its last, here and there.
pub(crate) const FRAME_WAIT: Duration = Duration::from_secs(60);

/// What goes onto the connection.
pub(crate) type Reply = (Message, Bytes);

/// How an answer is signed.
pub(crate) enum Signer<'a> {
    Identity(i64, &'a [u8]),
    Pin,
}

pub(crate) async fn send(stream: &mut (impl AsyncWrite + Unpin), (message, value): Reply) -> bool {
    matches!(timeout(FRAME_WAIT, write_frame(stream, &message, &value)).await, Ok(Ok(())))
}

/// The answer to a request, whose batch it does not name. `version`: the cluster version, where the client has to know it.
pub(crate) fn respond(signer: &Signer<'_>, asked: &Header, answer: Answer, version: Option<i64>) -> Reply {
    let header = Header {
        cluster_version: version,
        connection_id: asked.connection_id,
        ack_sequence: Some(asked.sequence.unwrap_or(0)),
        message_type: asked.message_type.map(|kind| RequestKind::of(kind).map_or(-1, RequestKind::response)),
        ..Header::default()
    };
    let status = Some(status(&answer));
    let command = Command { header: Some(header), body: answer.body.map(Box::new), status }.encode_to_vec();
    let message = match signer {
        Signer::Pin => Message { auth_type: Some(auth::PIN), command_bytes: Some(command.into()), ..Message::default() },
        Signer::Identity(number, key) => {
            let hmac = Some(Bytes::copy_from_slice(&sign(key, &command)));
            Message {
                auth_type: Some(auth::HMAC),
                hmac_auth: Some(HmacAuth { identity: Some(*number), hmac }),
                command_bytes: Some(command.into()),
                ..Message::default()
            }
        }
    };
    (message, answer.value)
}

/// What a client is told unasked before its connection ends. Only the greeting has a header.
pub(crate) fn unsolicited(failure: &Failure) -> Reply {
    let command = Command { header: None, body: None, status: Some(status(&failure.clone().into())) };
    (message_unsolicited(&command), Bytes::new())
}

pub(crate) fn message_unsolicited(command: &Command) -> Message {
    let command_bytes = Some(command.encode_to_vec().into());
    Message { auth_type: Some(auth::UNSOLICITED), command_bytes, ..Message::default() }
}

pub(crate) fn status(answer: &Answer) -> Status {
    let status_message = (!answer.what.is_empty()).then(|| answer.what.clone());
    Status { code: Some(answer.code as i32), status_message, detailed_message: answer.detailed.clone() }
}
