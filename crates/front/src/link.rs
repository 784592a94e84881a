//! [`Link`]: a connection's bytes in both directions, with bounds on both.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pithead_entry::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::large::{Large, Room, Share};
use crate::message::bytes_max;
use crate::metrics::Metrics;
use crate::reply::Replies;

/// How long bytes of a message that has begun may stay away.
const PART_WAIT: Duration = Duration::from_secs(60);
/// How long a client may say nothing.
const IDLE_WAIT: Duration = Duration::from_secs(24 * 3_600);
/// How long a client may take no bytes, as when a person looks at the first page.
const WRITE_WAIT: Duration = Duration::from_secs(6 * 3_600);
/// Bytes that wait before they are sent.
const OUT_BYTES: usize = 64 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes of messages that a client sends on while a statement of it runs.
const AHEAD_BYTES_MAX: usize = 256 << 10;
/// Largest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Largest message whose bytes are read to be thrown away, so that the connection goes on after it.
const SKIPPED_BYTES_MAX: usize = 1 << 30;
/// Messages that are larger need room ([`Large`]).
const SMALL_BYTES: usize = 64 << 10;
/// Largest message of a client who is not known yet.
const STRANGER_BYTES: usize = 4 << 10;
/// How long a large message waits for room.
const ROOM_WAIT: Duration = Duration::from_secs(30);

/// What was read.
#[derive(Debug)]
pub(crate) enum Read {
    /// A message's kind and its body.
    Message(u8, Vec<u8>),
    /// One that is too large, or came when too many large ones did; its bytes are gone.
    TooLarge { tag: u8, bytes: usize, busy: bool },
    /// What is no message.
    Malformed(String),
    /// The client has gone, or was too slow.
    Gone,
}

/// A message that is too large, while its bytes are thrown away.
#[derive(Debug)]
struct Skipped {
    tag: u8,
    bytes: usize,
    busy: bool,
    /// Bytes that have not come yet.
    left: usize,
}

pub(crate) struct Link {
    read: ReadHalf<Connection>,
    write: WriteHalf<Connection>,
    input: Vec<u8>,
    /// What waits to be sent.
    pub(crate) out: Replies,
    sent: usize,
    share: Share,
    /// Whether the client is known; who is not may send small messages only.
    pub(crate) known: bool,
    /// The room of the large message that is being worked on.
    held: Option<Room>,
    /// The message that is being thrown away. What follows in the stream is no message before its end.
    skipped: Option<Skipped>,
    metrics: Arc<Metrics>,
}

impl Link {
    pub(crate) fn new(connection: Connection, large: &Large, metrics: Arc<Metrics>) -> Link {
        let share = large.share(connection.peer().place.address());
        let (read, write) = tokio::io::split(connection);
        let (input, out) = (Vec::new(), Replies::default());
        Link { read, write, input, out, sent: 0, share, known: false, held: None, skipped: None, metrics }
    }

    /// The next message. Can be dropped and called again: what was read so far stays, and what is to be thrown away still is.
    pub(crate) async fn next(&mut self) -> Read {
        self.held = None;
        if self.skipped.is_some() {
            return self.skip().await;
        }
        while self.input.len() < 5 {
            let wait = if self.input.is_empty() { IDLE_WAIT } else { PART_WAIT };
            if !self.more(wait).await {
                return Read::Gone;
            }
        }
        let tag = self.input[0];
        let length = i32::from_be_bytes([self.input[1], self.input[2], self.input[3], self.input[4]]);
        let Some(bytes) = usize::try_from(length).ok().and_then(|length| length.checked_sub(4)) else {
            return Read::Malformed(format!("a message says that it has {length} bytes"));
        };
        if !self.known && bytes > STRANGER_BYTES {
            return Read::Malformed(format!("a message of {bytes} bytes, before it is known who sends it"));
        }
        if bytes > bytes_max(tag, MESSAGE_BYTES_MAX) {
            return self.refuse(tag, bytes, false).await;
        }
        if bytes > SMALL_BYTES {
            match self.share.take(bytes, ROOM_WAIT).await {
                Some(room) => self.held = Some(room),
                None => return self.refuse(tag, bytes, true).await,
            }
        }
        let has_come = match self.held.is_some() {
            true => timeout(self.share.whole_wait(), self.until(5 + bytes)).await.unwrap_or(false),
            false => self.until(5 + bytes).await,
        };
        if !has_come {
            return Read::Gone;
        }
        let body = self.input[5..5 + bytes].to_vec();
        self.input.drain(..5 + bytes);
        self.input.shrink_to(SMALL_BYTES);
        Read::Message(tag, body)
    }

    /// The room of the message that came last, for who keeps its bytes beyond the next one, or has read them before that.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
        self.held.take()
    }

    /// Throws a message away that begins here.
    async fn refuse(&mut self, tag: u8, bytes: usize, busy: bool) -> Read {
        if bytes > SKIPPED_BYTES_MAX {
            return Read::Malformed(format!("a message says that it has {bytes} bytes"));
        }
        self.skipped = Some(Skipped { tag, bytes, busy, left: bytes + 5 });
        self.skip().await
    }

    /// Throws away what has not come yet of such a message. Where it is dropped, the next call goes on with it.
    async fn skip(&mut self) -> Read {
        while let Some(skipped) = &mut self.skipped {
            let now = skipped.left.min(self.input.len());
            self.input.drain(..now);
            skipped.left -= now;
            if skipped.left == 0 {
                let read = Read::TooLarge { tag: skipped.tag, bytes: skipped.bytes, busy: skipped.busy };
                self.skipped = None;
                return read;
            }
            if !self.more(PART_WAIT).await {
                break;
            }
        }
        Read::Gone
    }

    /// Reads until so many bytes are there; false: they will not be.
    async fn until(&mut self, bytes: usize) -> bool {
        while self.input.len() < bytes {
            if !self.more(PART_WAIT).await {
                return false;
            }
        }
        true
    }

    /// Reads some bytes; false: there will be none.
    async fn more(&mut self, wait: Duration) -> bool {
        self.input.reserve(READ_BYTES);
        matches!(timeout(wait, self.read.read_buf(&mut self.input)).await, Ok(Ok(count)) if count > 0)
    }

    /// Ends once the client has gone, while a statement runs; reads ahead meanwhile, as far as the bound allows.
    pub(crate) async fn gone(&mut self) {
        loop {
            if self.input.len() >= AHEAD_BYTES_MAX {
                std::future::pending::<()>().await;
            }
            self.input.reserve(READ_BYTES);
            match self.read.read_buf(&mut self.input).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
        }
    }

    /// Whether enough waits to be sent.
    pub(crate) fn is_full(&self) -> bool {
        self.out.bytes.len() - self.sent >= OUT_BYTES
    }

    /// Sends what waits. Can be dropped and called again: no byte is sent twice.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.out.bytes.len() {
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            let written = timeout(WRITE_WAIT, self.write.write(&self.out.bytes[self.sent..])).await.map_err(|_| late())??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent += written;
            self.metrics.sent_bytes.inc_by(written as u64);
        }
        self.out.bytes.clear();
        self.out.bytes.shrink_to(2 * OUT_BYTES);
        self.sent = 0;
        timeout(WRITE_WAIT, self.write.flush()).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Sends what waits within a short time, and ends the connection so that the client gets it.
    pub(crate) async fn close(&mut self) {
        const WAIT: Duration = Duration::from_secs(1);
        let _ = timeout(WAIT, async {
            if self.flush().await.is_ok() {
                let _ = self.write.shutdown().await;
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use pithead_entry::{ConnectionLimits, Gate, Protocol, accept};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A client, and its link to a server.
    async fn linked(large: &Large) -> (TcpStream, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocol = Protocol { name: "test", alpn: b"test", greeting: b"" };
        let (mut connections, accepting) = accept(listener, protocol, None, Gate::new(ConnectionLimits::default()));
        let accepting = tokio::spawn(accepting);
        let client = TcpStream::connect(address).await.unwrap();
        let connection = connections.recv().await.unwrap().unwrap();
        accepting.abort();
        let link = Link::new(connection, large, Arc::new(Metrics::new()));
        (client, Link { known: true, ..link })
    }

    /// A client that sends a byte now and then kept its room for as long as it liked.
    #[tokio::test]
    async fn a_large_message_that_dribbles_gives_its_room_back() {
        const BYTES: usize = 2 * SMALL_BYTES;
        let large = Large::of(BYTES);
        let message = [&b"d"[..], &(BYTES as u32 + 4).to_be_bytes(), &vec![b'x'; BYTES]].concat();
        let (mut quick, mut link) = linked(&large).await;
        quick.write_all(&message).await.unwrap();
        assert!(matches!(link.next().await, Read::Message(b'd', body) if body.len() == BYTES));
        drop(link);
        let (mut slow, mut link) = linked(&large).await;
        let dribbling = tokio::spawn(async move {
            for byte in message {
                let _ = slow.write_all(&[byte]).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let read = timeout(Duration::from_secs(20), link.next()).await;
        assert!(matches!(read, Ok(Read::Gone)), "{read:?}");
        drop(link);
        assert!(large.share([127, 0, 0, 1].into()).take(BYTES, Duration::from_millis(20)).await.is_some());
        dribbling.abort();
    }

    /// A regression: a COPY that failed in the middle of a message that is too large had the rest of its bytes read as messages, and
    /// statements that rows are full of were run.
    #[tokio::test]
    async fn the_rest_of_a_message_that_is_too_large_is_no_message() {
        const BYTES: usize = MESSAGE_BYTES_MAX + 100;
        let hidden = [&b"Q"[..], &15_u32.to_be_bytes(), b"DROP TABLE\0"].concat();
        let (mut client, mut link) = linked(&Large::default()).await;
        let mut message = [&b"d"[..], &(BYTES as u32 + 4).to_be_bytes()].concat();
        message.extend(hidden.iter().cycle().take(BYTES));
        let (first, rest) = message.split_at(5 + 3 * hidden.len());
        client.write_all(first).await.unwrap();
        // As who waits for the next message and for something else that comes first.
        assert!(timeout(Duration::from_millis(200), link.next()).await.is_err(), "the message has not come");
        let rest = [rest, b"Q", &12_u32.to_be_bytes(), b"SELECT\0 "].concat();
        let sending = tokio::spawn(async move {
            client.write_all(&rest).await.unwrap();
            client
        });
        let read = link.next().await;
        assert!(matches!(read, Read::TooLarge { tag: b'd', bytes: BYTES, busy: false }), "{read:?}");
        let read = link.next().await;
        assert!(matches!(&read, Read::Message(b'Q', body) if body == b"SELECT\0 "), "{read:?}");
        drop(sending.await.unwrap());
    }
}
