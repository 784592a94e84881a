//! Frames: `F`, the lengths of a message and of its value (four bytes each, big end first), the message, the value.

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::limits::Limits;
use crate::proto::Message;

const MAGIC: u8 = b'F';
const HEADER_BYTES: usize = 9;
/// Memory is taken for so many bytes at a time, as they arrive: a header that claims more takes nothing.
const STEP_BYTES: usize = 64 << 10;
/// A value of so many bytes at most is copied behind its message, so that both are one write.
const JOINED_BYTES: usize = 32 << 10;
/// A value up to so many times its limit is read and thrown away, so that its request is answered and the connection goes on.
const SKIPPED_FACTOR: u64 = 4;

/// A frame as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The message.
    pub message: Message,
    /// Its value; what was longer than its limit is not kept.
    pub value: Bytes,
    /// Bytes that the value had.
    pub value_bytes: u64,
}

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The other end closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    /// The first byte is another.
    #[error("a frame begins with 'F', and not with byte {0:#04x}")]
    Magic(u8),
    /// A length exceeds its bound.
    #[error("a {part} of {bytes} bytes; at most {bytes_max} are allowed")]
    TooLong {
        /// What is too long.
        part: &'static str,
        /// Its bytes.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// Other clients hold all the room for long messages.
    #[error("no room for a long message; try again later")]
    NoRoom,
    /// The message cannot be read.
    #[error("not a message: {0}")]
    Message(#[from] prost::DecodeError),
    /// The connection failed, or ended within a frame.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The first part of a frame.
#[derive(Debug)]
pub(crate) struct Begun {
    pub message: Message,
    /// Bytes of the value that follows.
    pub value_bytes: u32,
}

/// Reads a frame. Memory is taken only for bytes that have arrived.
pub async fn read_frame(from: &mut (impl AsyncRead + Unpin), limits: &Limits) -> Result<Frame, FrameError> {
    let begun = read_message(from, limits, |_| true).await?;
    begun.read_value(from, limits, true).await
}

/// Reads a frame as far as its value. `has_room`: asked whether so many bytes of the message may be held.
pub(crate) async fn read_message(
    from: &mut (impl AsyncRead + Unpin),
    limits: &Limits,
    has_room: impl FnMut(usize) -> bool,
) -> Result<Begun, FrameError> {
    let mut header = [0; HEADER_BYTES];
    if from.read(&mut header[..1]).await? == 0 {
        return Err(FrameError::Closed);
    }
    if header[0] != MAGIC {
        return Err(FrameError::Magic(header[0]));
    }
    from.read_exact(&mut header[1..]).await?;
    let [_, a, b, c, d, e, f, g, h] = header;
    let (message, value_bytes) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
    check("message", message, limits.message_bytes as u64)?;
    check("value", value_bytes, limits.value_bytes as u64 * SKIPPED_FACTOR)?;
    let message = read_bytes(from, message as usize, has_room).await?;
    Ok(Begun { message: Message::decode(message)?, value_bytes })
}

impl Begun {
    /// Reads the value. It is not kept if it is longer than its limit, or not to be kept.
    pub async fn read_value(
        self,
        from: &mut (impl AsyncRead + Unpin),
        limits: &Limits,
        is_kept: bool,
    ) -> Result<Frame, FrameError> {
        let Begun { message, value_bytes } = self;
        let value = match is_kept && value_bytes as usize <= limits.value_bytes {
            true => read_bytes(from, value_bytes as usize, |_| true).await?,
            false => {
                let skipped = tokio::io::copy(&mut from.take(value_bytes.into()), &mut tokio::io::sink()).await?;
                if skipped < u64::from(value_bytes) {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
                }
                Bytes::new()
            }
        };
        Ok(Frame { message, value, value_bytes: value_bytes.into() })
    }
}

fn check(part: &'static str, bytes: u32, bytes_max: u64) -> Result<(), FrameError> {
    let bytes = u64::from(bytes);
    if bytes > bytes_max { Err(FrameError::TooLong { part, bytes, bytes_max }) } else { Ok(()) }
}

async fn read_bytes(
    from: &mut (impl AsyncRead + Unpin),
    bytes: usize,
    mut has_room: impl FnMut(usize) -> bool,
) -> Result<Bytes, FrameError> {
    let mut read = BytesMut::new();
    while read.len() < bytes {
        let step = STEP_BYTES.max(read.len()).min(bytes - read.len());
        if !has_room(read.len() + step) {
            return Err(FrameError::NoRoom);
        }
        read.reserve(step);
        if from.take((bytes - read.len()) as u64).read_buf(&mut read).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
    }
    Ok(read.freeze())
}

/// Writes a frame, and flushes it.
pub async fn write_frame(to: &mut (impl AsyncWrite + Unpin), message: &Message, value: &[u8]) -> Result<(), std::io::Error> {
    let too_long = || std::io::Error::from(std::io::ErrorKind::InvalidInput);
    let message_bytes = message.encoded_len();
    let joined = if value.len() <= JOINED_BYTES { value } else { &[] };
    let mut head = BytesMut::with_capacity(HEADER_BYTES + message_bytes + joined.len());
    head.extend_from_slice(&[MAGIC]);
    head.extend_from_slice(&u32::try_from(message_bytes).map_err(|_| too_long())?.to_be_bytes());
    head.extend_from_slice(&u32::try_from(value.len()).map_err(|_| too_long())?.to_be_bytes());
    message.encode(&mut head).map_err(|_| too_long())?;
    head.extend_from_slice(joined);
    to.write_all(&head).await?;
    to.write_all(&value[joined.len()..]).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> Result<Frame, FrameError> {
        read_frame(&mut &bytes[..], &Limits::default()).await
    }

    async fn written(value: &[u8]) -> Vec<u8> {
        let message = Message { auth_type: Some(3), ..Message::default() };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &message, value).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn frames_come_back_and_parts_of_them_do_not() {
        for value in [&b""[..], b"value", &[7; JOINED_BYTES], &[7; JOINED_BYTES + 1], &[7; 200_000]] {
            let bytes = written(value).await;
            let frame = read(&bytes).await.unwrap();
            assert_eq!((&frame.value[..], frame.message.auth_type), (value, Some(3)));
            for cut in [1, 8, 9, 10, bytes.len() - 1] {
                assert!(matches!(read(&bytes[..cut]).await, Err(FrameError::Io(_))), "{cut}");
            }
        }
        assert!(matches!(read(b"").await, Err(FrameError::Closed)));
    }

    #[tokio::test]
    async fn lengths_are_checked_before_anything_is_read() {
        let header = |message: u32, value: u32| [&b"F"[..], &message.to_be_bytes(), &value.to_be_bytes()].concat();
        assert!(matches!(read(b"G").await, Err(FrameError::Magic(b'G'))));
        for (message, value, long) in [(u32::MAX, 0, "message"), ((1 << 20) + 1, 0, "message"), (0, u32::MAX, "value")] {
            let error = read(&header(message, value)).await.unwrap_err();
            assert!(matches!(error, FrameError::TooLong { part, .. } if part == long), "{error}");
        }
        // As long as it may be, and not there.
        assert!(matches!(read(&header(1 << 20, 1 << 20)).await, Err(FrameError::Io(_))));
    }

    #[tokio::test]
    async fn a_message_without_room_and_a_value_that_nobody_needs_take_no_memory() {
        let message = Message { command_bytes: Some(vec![7; 200_000].into()), ..Message::default() };
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &message, b"value").await.unwrap();
        let limits = Limits::default();
        let most = std::cell::Cell::new(0);
        let has_room = |bytes| {
            most.set(bytes);
            bytes <= 100_000
        };
        let refused = read_message(&mut &bytes[..], &limits, has_room).await;
        assert!(matches!(refused, Err(FrameError::NoRoom)) && most.get() > 100_000);
        let mut from = &bytes[..];
        let begun = read_message(&mut from, &limits, |_| true).await.unwrap();
        let frame = begun.read_value(&mut from, &limits, false).await.unwrap();
        assert_eq!((frame.value.len(), frame.value_bytes, from.len()), (0, 5, 0));
    }

    #[tokio::test]
    async fn a_value_over_the_limit_is_skipped_and_the_next_frame_read() {
        let long = written(&vec![1; (1 << 20) + 1]).await;
        let bytes = [long, written(b"next").await].concat();
        let mut from = &bytes[..];
        let frame = read_frame(&mut from, &Limits::default()).await.unwrap();
        assert_eq!((frame.value.len(), frame.value_bytes), (0, (1 << 20) + 1));
        assert_eq!(&read_frame(&mut from, &Limits::default()).await.unwrap().value[..], b"next");
    }
}
