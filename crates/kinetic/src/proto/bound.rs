//! How many messages a command may hold. An empty message takes two bytes of a frame and hundreds of memory, so they are counted
//! before they are read.

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Messages in one command at most.
pub(crate) const MESSAGES_MAX: usize = 1 << 16;

/// The fields of a message that are messages themselves, and may be many or hold many.
struct Fields(&'static [(u32, &'static Fields)]);

static LEAF: Fields = Fields(&[]);
static COMMAND: Fields = Fields(&[(2, &BODY)]);
static BODY: Fields = Fields(&[(4, &PUSH), (6, &LOG), (7, &SECURITY)]);
static PUSH: Fields = Fields(&[(2, &ENTRY)]);
static ENTRY: Fields = Fields(&[(8, &PUSH)]);
static LOG: Fields = Fields(&[(2, &LEAF), (3, &LEAF), (5, &CONFIGURATION), (6, &LEAF)]);
static CONFIGURATION: Fields = Fields(&[(9, &LEAF)]);
static SECURITY: Fields = Fields(&[(2, &ACL)]);
static ACL: Fields = Fields(&[(4, &LEAF)]);

/// Messages within a command, which may be hostile.
pub(crate) fn messages(command: &[u8]) -> Result<usize, DecodeError> {
    let mut found = 0;
    // Each message lies within another, so there are no more of them to look at than there are bytes.
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
            let Some((message, rest)) = bytes.split_at_checked(length) else { return Ok(found) };
            found += 1;
            left.push((message, within));
            bytes = rest;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{Body, Command, CommandError, P2pOperation, PushOperation};

    fn push(count: usize, within: Option<P2pOperation>) -> P2pOperation {
        let entry = PushOperation { p2pop: within.map(Box::new), ..PushOperation::default() };
        P2pOperation { operation: vec![entry; count], ..P2pOperation::default() }
    }

    fn command(push: P2pOperation) -> Vec<u8> {
        let body = Body { p2p_operation: Some(push), ..Body::default() };
        Command { body: Some(Box::new(body)), ..Command::default() }.encode_to_vec()
    }

    #[test]
    fn messages_are_counted_at_all_depths() {
        assert_eq!(messages(&command(push(3, None))), Ok(2 + 3));
        assert_eq!(messages(&command(push(3, Some(push(4, None))))), Ok(2 + 3 * (1 + 1 + 4)));
        assert_eq!(messages(b""), Ok(0));
    }

    #[test]
    fn empty_messages_without_end_are_refused_before_they_are_read() {
        assert!(Command::read(&command(push(MESSAGES_MAX - 2, None))).is_ok());
        let refused = Command::read(&command(push(MESSAGES_MAX - 1, None)));
        assert_eq!(refused, Err(CommandError::TooMany(MESSAGES_MAX + 1)));
    }

    #[test]
    fn what_is_cut_off_is_no_command() {
        let whole = command(push(3, Some(push(4, None))));
        for end in 1..whole.len() {
            let _ = messages(&whole[..end]);
            assert!(Command::read(&whole[..end]).is_err(), "{end}");
        }
    }
}
