//! How many parts a command may hold: messages, and keys and texts of which there may be many. An empty one takes two bytes
//! of a frame and up to hundreds of memory, so they are counted before they are read.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Parts of one command at most. What is asked for needs far fewer, and is held to limits of its own.
pub(crate) const PARTS_MAX: usize = 1 << 16;

/// The fields of a message that may be many or hold many.
struct Fields(&'static [(u32, &'static Fields)]);

/// A message, bytes or a text with nothing within that is counted.
static LEAF: Fields = Fields(&[]);
static COMMAND: Fields = Fields(&[(2, &BODY)]);
static BODY: Fields = Fields(&[(2, &RANGE), (4, &PUSH), (6, &LOG), (7, &SECURITY), (11, &APPLET)]);
static RANGE: Fields = Fields(&[(8, &LEAF)]);
static PUSH: Fields = Fields(&[(2, &ENTRY)]);
static ENTRY: Fields = Fields(&[(8, &PUSH)]);
static LOG: Fields = Fields(&[(2, &LEAF), (3, &LEAF), (5, &CONFIGURATION), (6, &LEAF)]);
static CONFIGURATION: Fields = Fields(&[(9, &LEAF)]);
static SECURITY: Fields = Fields(&[(2, &ACL)]);
static ACL: Fields = Fields(&[(4, &LEAF)]);
static APPLET: Fields = Fields(&[(3, &LEAF), (7, &LEAF)]);

/// Parts of a command, which may be hostile.
pub(crate) fn parts(command: &[u8]) -> Result<usize, DecodeError> {
    let mut found = 0;
    // Each part lies within another, so there are no more of them to look at than there are bytes.
    let mut left = vec![(command, &COMMAND)];
    while let Some((mut bytes, fields)) = left.pop() {
        while !bytes.is_empty() {
            let (tag, wire_type) = decode_key(&mut bytes)?;
            let within = fields.0.iter().find(|(field, _)| *field == tag && wire_type == WireType::LengthDelimited);
            let Some((_, within)) = within else {
                skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
                continue;
            };
            let length = usize::try_from(decode_varint(&mut bytes)?).unwrap_or(usize::MAX);
            // What is cut off the decoder says better.
            let Some((part, rest)) = bytes.split_at_checked(length) else { return Ok(found) };
            found += 1;
            if !within.0.is_empty() {
                left.push((part, within));
            }
            bytes = rest;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message as _;

    use super::*;
    use crate::proto::{Body, Command, CommandError, ManageApplet, P2pOperation, PushOperation, Range};

    fn push(count: usize, within: Option<P2pOperation>) -> P2pOperation {
        let entry = PushOperation { p2pop: within.map(Box::new), ..PushOperation::default() };
        P2pOperation { operation: vec![entry; count], ..P2pOperation::default() }
    }

    fn command(push: P2pOperation) -> Vec<u8> {
        with(Body { p2p_operation: Some(push), ..Body::default() })
    }

    fn with(body: Body) -> Vec<u8> {
        Command { body: Some(Box::new(body)), ..Command::default() }.encode_to_vec()
    }

    #[test]
    fn parts_are_counted_at_all_depths() {
        assert_eq!(parts(&command(push(3, None))), Ok(2 + 3));
        assert_eq!(parts(&command(push(3, Some(push(4, None))))), Ok(2 + 3 * (1 + 1 + 4)));
        assert_eq!(parts(b""), Ok(0));
    }

    /// Keys and parameters were not counted: each took two bytes of a frame, and up to sixteen times as much memory.
    #[test]
    fn keys_and_parameters_without_end_are_refused_before_they_are_read() {
        let keys = |count| {
            // What is in a key is no message.
            let range = Range { keys: vec![Bytes::from_static(b"\xff"); count], ..Range::default() };
            with(Body { range: Some(range), ..Body::default() })
        };
        let program = |keys, parameters| {
            let applet = ManageApplet {
                program_key: vec![Bytes::new(); keys],
                program_param: vec![String::new(); parameters],
                ..ManageApplet::default()
            };
            with(Body { manage_applet: Some(applet), ..Body::default() })
        };
        let most = PARTS_MAX - 2;
        for command in [keys(most), program(most, 0), program(0, most), program(most / 2, most / 2)] {
            assert!(Command::read(&command).is_ok());
        }
        for command in [keys(most + 1), program(most + 1, 0), program(0, most + 1), program(most, 1)] {
            assert_eq!(Command::read(&command), Err(CommandError::TooMany(PARTS_MAX + 1)));
        }
    }

    #[test]
    fn empty_messages_without_end_are_refused_before_they_are_read() {
        assert!(Command::read(&command(push(PARTS_MAX - 2, None))).is_ok());
        let refused = Command::read(&command(push(PARTS_MAX - 1, None)));
        assert_eq!(refused, Err(CommandError::TooMany(PARTS_MAX + 1)));
    }

    #[test]
    fn what_is_cut_off_is_no_command() {
        let whole = command(push(3, Some(push(4, None))));
        for end in 1..whole.len() {
            let _ = parts(&whole[..end]);
            assert!(Command::read(&whole[..end]).is_err(), "{end}");
        }
    }
}
