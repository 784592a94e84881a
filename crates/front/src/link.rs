//! [`Link`]: a connection's bytes in both directions, with bounds on both.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pithead_entry::Connection;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

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
/// Messages that are larger share the bound below.
const SMALL_BYTES: usize = 64 << 10;
/// Largest message of a client who is not known yet.
const STRANGER_BYTES: usize = 4 << 10;
/// Bytes of large messages of all connections.
const LARGE_BYTES_MAX: usize = 256 << 20;
/// How long a large message waits for room among them.
const ROOM_WAIT: Duration = Duration::from_secs(30);
/// How long one that has room may take until all of it is there: others wait for its room.
const WHOLE_WAIT: Duration = Duration::from_secs(120);

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

/// Room for large messages in memory, of all connections.
#[derive(Debug)]
pub(crate) struct Large {
    room: Arc<Semaphore>,
    /// How long a message that has room may take until all of it is there.
    whole_wait: Duration,
}

/// A large message's room. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Room(#[expect(dead_code, reason = "it is held, and not looked at")] OwnedSemaphorePermit);

impl Default for Large {
    fn default() -> Large {
        Large { room: Arc::new(Semaphore::new(LARGE_BYTES_MAX)), whole_wait: WHOLE_WAIT }
    }
}

#[cfg(test)]
impl Large {
    /// Room for so many bytes.
    pub(crate) fn of(bytes: usize) -> Large {
        Large { room: Arc::new(Semaphore::new(bytes)), whole_wait: Duration::from_millis(300) }
    }
}

impl Large {
    /// Room for a message, in the order in which it is asked for; none: there was none for long.
    pub(crate) async fn take(&self, bytes: usize, wait: Duration) -> Option<Room> {
        let bytes = u32::try_from(bytes).ok()?;
        let permit = timeout(wait, Arc::clone(&self.room).acquire_many_owned(bytes)).await.ok()?;
        permit.ok().map(Room)
    }
}

pub(crate) struct Link {
    read: ReadHalf<Connection>,
    write: WriteHalf<Connection>,
    input: Vec<u8>,
    /// What waits to be sent.
    pub(crate) out: Replies,
    sent: usize,
    large: Arc<Large>,
    /// Whether the client is known; who is not may send small messages only.
    pub(crate) known: bool,
    /// The large message that is being worked on.
    held: Option<Room>,
    metrics: Arc<Metrics>,
}

impl Link {
    pub(crate) fn new(connection: Connection, large: Arc<Large>, metrics: Arc<Metrics>) -> Link {
        let (read, write) = tokio::io::split(connection);
        Link { read, write, input: Vec::new(), out: Replies::default(), sent: 0, large, known: false, held: None, metrics }
    }

    /// The next message. Can be dropped and called again: what was read so far stays.
    pub(crate) async fn next(&mut self) -> Read {
        self.held = None;
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
            return self.skip(tag, bytes, false).await;
        }
        if bytes > SMALL_BYTES {
            match self.large.take(bytes, ROOM_WAIT).await {
                Some(room) => self.held = Some(room),
                None => return self.skip(tag, bytes, true).await,
            }
        }
        let has_come = match self.held.is_some() {
            true => timeout(self.large.whole_wait, self.until(5 + bytes)).await.unwrap_or(false),
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

    /// The room of the message that came last, for who keeps its bytes beyond the next one.
    pub(crate) fn take_room(&mut self) -> Option<Room> {
        self.held.take()
    }

    async fn skip(&mut self, tag: u8, bytes: usize, busy: bool) -> Read {
        if bytes > SKIPPED_BYTES_MAX {
            return Read::Malformed(format!("a message says that it has {bytes} bytes"));
        }
        let mut left = bytes + 5;
        loop {
            let now = left.min(self.input.len());
            self.input.drain(..now);
            left -= now;
            if left == 0 {
                return Read::TooLarge { tag, bytes, busy };
            }
            if !self.more(PART_WAIT).await {
                return Read::Gone;
            }
        }
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
    async fn linked(large: &Arc<Large>) -> (TcpStream, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let protocol = Protocol { name: "test", alpn: b"test", greeting: b"" };
        let (mut connections, accepting) = accept(listener, protocol, None, Gate::new(ConnectionLimits::default()));
        let accepting = tokio::spawn(accepting);
        let client = TcpStream::connect(address).await.unwrap();
        let connection = connections.recv().await.unwrap().unwrap();
        accepting.abort();
        let link = Link::new(connection, Arc::clone(large), Arc::new(Metrics::new()));
        (client, Link { known: true, ..link })
    }

    /// A client that sends a byte now and then kept its room for as long as it liked.
    #[tokio::test]
    async fn a_large_message_that_dribbles_gives_its_room_back() {
        const BYTES: usize = 2 * SMALL_BYTES;
        let large = Arc::new(Large::of(BYTES));
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
        assert!(large.take(BYTES, Duration::from_millis(20)).await.is_some());
        dribbling.abort();
    }

    #[tokio::test]
    async fn large_messages_wait_for_room() {
        const SHORT: Duration = Duration::from_millis(20);
        let large = Large::default();
        let first = large.take(LARGE_BYTES_MAX - 10, SHORT).await.unwrap();
        let mut second = std::pin::pin!(large.take(11, ROOM_WAIT));
        assert!(timeout(SHORT, &mut second).await.is_err(), "there is no room for it");
        drop(first);
        drop(second.await.unwrap());
        let _all = large.take(LARGE_BYTES_MAX, SHORT).await.unwrap();
        assert!(large.take(1, SHORT).await.is_none(), "it does not wait for ever");
    }
}
