//! [`Connection`]: one connection of a server, from the socket to the first bytes of its protocol.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use crate::gate::ConnectionPermit;
use crate::protocol::Protocol;
use crate::tls::names_of;

/// How long a connection may take from its first packet to its first accepted call: handshakes, headers, credentials.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a caller whose handshake failed has to take the reason.
const LINGER: Duration = Duration::from_millis(500);

/// What calls know of their connection.
#[derive(Debug)]
pub struct Peer {
    /// Its place at the gate.
    pub place: Arc<ConnectionPermit>,
    /// Names in the caller's certificate, where it had to show one.
    pub certificate: Option<Vec<String>>,
    /// Calls with wrong credentials.
    pub(crate) failures: AtomicU32,
    /// Bytes of messages that have arrived in part.
    pub receiving: AtomicU64,
    /// The connection's socket, to ask how it does; none where it could not be doubled.
    pub socket: Option<OwnedFd>,
}

impl Peer {
    /// Of a connection that nobody has called over yet.
    pub fn new(place: Arc<ConnectionPermit>, certificate: Option<Vec<String>>, socket: Option<OwnedFd>) -> Peer {
        Peer { place, certificate, failures: AtomicU32::new(0), receiving: AtomicU64::new(0), socket }
    }
}

/// A connection that has begun to speak its protocol.
pub struct Connection {
    stream: Stream,
    /// What of the protocol's greeting the server has yet to read: it was taken from the stream already.
    greeting: &'static [u8],
    /// Until the connection is admitted: when it has to be.
    overdue: Option<Pin<Box<Sleep>>>,
    peer: Arc<Peer>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Brings a new connection as far as its protocol: TLS if there is any, and the greeting. The error says for the log why it
    /// does not come that far.
    pub(crate) async fn begin(
        socket: TcpStream,
        protocol: Protocol,
        tls: Option<Arc<ServerConfig>>,
        place: Arc<ConnectionPermit>,
    ) -> Result<Connection, String> {
        let deadline = Instant::now() + WAIT_MAX;
        let asked = socket.as_fd().try_clone_to_owned().ok();
        let begun = async {
            let (mut stream, certificate) = match tls {
                None => (Stream::Plain(socket), None),
                Some(config) => {
                    let stream = handshake(socket, config).await?;
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(names_of);
                    (Stream::Tls(Box::new(stream)), shown)
                }
            };
            let mut greeting = vec![0; protocol.greeting.len()];
            stream.read_exact(&mut greeting).await.map_err(|error| error.to_string())?;
            match greeting == protocol.greeting {
                true => Ok((stream, certificate)),
                false => Err(format!("it does not speak {} here", protocol.name)),
            }
        };
        let (stream, certificate) = tokio::select! {
            begun = begun => begun?,
            () = place.end().ended() => return Err("closed for newer ones".to_owned()),
            () = tokio::time::sleep_until(deadline) => return Err(format!("no {} within {} s", protocol.name, WAIT_MAX.as_secs())),
        };
        let overdue = Some(Box::pin(tokio::time::sleep_until(deadline)));
        let peer = Arc::new(Peer::new(place, certificate, asked));
        Ok(Connection { stream, greeting: protocol.greeting, overdue, peer })
    }

    /// The same connection within TLS, for a protocol that begins in clear and agrees on TLS by a message of its own. The error says for
    /// the log why it does not come that far.
    pub async fn secure(self, config: Arc<ServerConfig>) -> Result<Connection, String> {
        let Connection { stream: Stream::Plain(socket), peer, overdue, .. } = self else {
            return Err("the connection is within TLS already".to_owned());
        };
        let stream = tokio::select! {
            stream = handshake(socket, config) => stream?,
            () = peer.place.end().ended() => return Err("closed for newer ones".to_owned()),
            () = tokio::time::sleep(WAIT_MAX) => return Err(format!("no TLS within {} s", WAIT_MAX.as_secs())),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(names_of);
        let socket = peer.socket.as_ref().and_then(|socket| socket.try_clone().ok());
        let peer = Arc::new(Peer::new(Arc::clone(&peer.place), certificate, socket));
        Ok(Connection { stream: Stream::Tls(Box::new(stream)), greeting: b"", overdue, peer })
    }

    /// What calls over it know of it.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Tells the caller why the connection ends, as far as that goes at once. What it has sent is taken: a socket that is closed over
    /// unread bytes would take back what was said.
    fn say(&mut self, context: &mut Context<'_>, words: &[u8]) {
        const READS_MAX: usize = 16;
        let _ = Pin::new(&mut self.stream).poll_write(context, words);
        let _ = Pin::new(&mut self.stream).poll_flush(context);
        let mut unread = [0; 4096];
        for _ in 0..READS_MAX {
            let mut buffer = ReadBuf::new(&mut unread);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            if !matches!(read, Poll::Ready(Ok(()))) || buffer.filled().is_empty() {
                break;
            }
        }
    }

    /// An error once the connection has to end: it was ended, or waited too long.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.peer.place.end().poll(context).is_ready() {
            if let Some(words) = self.peer.place.end().last_words() {
                self.say(context, words);
            }
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was ended"));
        }
        if let Some(overdue) = &mut self.overdue {
            if self.peer.place.is_admitted() {
                self.overdue = None;
            } else if overdue.as_mut().poll(context).is_ready() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no call of the connection was accepted in time"));
            }
        }
        Ok(())
    }
}

async fn handshake(socket: TcpStream, config: Arc<ServerConfig>) -> Result<TlsStream<TcpStream>, String> {
    match TlsAcceptor::from(config).accept(socket).into_fallible().await {
        Ok(stream) => Ok(stream),
        Err((error, mut socket)) => {
            // The alert is sent. Closing while bytes of the caller's are unread would make it lose the alert.
            let mut rest = tokio::io::sink();
            let drained = async {
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut socket).await;
                let _ = tokio::io::copy(&mut socket, &mut rest).await;
            };
            let _ = tokio::time::timeout(LINGER, drained).await;
            Err(error.to_string())
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        if !self.greeting.is_empty() {
            let (now, later) = self.greeting.split_at(self.greeting.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.greeting = later;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, buffers),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
