//! [`HttpConnection`]: a connection as HTTP/2 is served over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pithead_entry::{Connection, Peer, Protocol};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

/// HTTP/2, which begins with its preface (RFC 9113, 3.4).
pub(crate) const HTTP_2: Protocol = Protocol { name: "HTTP/2", alpn: b"h2", greeting: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" };

/// How long a client has to hear the last words of a server and to hang up.
const LINGER: Duration = Duration::from_secs(1);

/// Tells the server whose connection a call came over.
///
/// A system resets a connection that is closed while bytes lie there unread, and the client loses what it was told last. So what a
/// client still says is read, and dropped, until it hangs up, too, or for a second.
pub(crate) struct HttpConnection<C = Connection> {
    connection: C,
    /// Once nothing more is said: until when the client is waited for.
    until: Option<Pin<Box<Sleep>>>,
}

impl<C> HttpConnection<C> {
    pub(crate) fn new(connection: C) -> Self {
        Self { connection, until: None }
    }
}

impl<C: AsyncRead + Unpin> HttpConnection<C> {
    fn poll_hung_up(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut space = [0; 4_096];
        while until.as_mut().poll(context).is_pending() {
            let mut dropped = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.connection).poll_read(context, &mut dropped)) {
                Ok(()) if !dropped.filled().is_empty() => {}
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl Connected for HttpConnection {
    type ConnectInfo = Arc<Peer>;

    fn connect_info(&self) -> Arc<Peer> {
        Arc::clone(self.connection.peer())
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for HttpConnection<C> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HttpConnection<C> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.until.is_none() {
            ready!(Pin::new(&mut self.connection).poll_shutdown(context))?;
        }
        self.poll_hung_up(context).map(Ok)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn last_words_are_heard_by_a_client_that_talks() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut server = HttpConnection::new(listener.accept().await.unwrap().0);
        client.write_all(&[7; 10_000]).await.unwrap();
        let serving = tokio::spawn(async move {
            server.write_all(b"good bye").await.unwrap();
            server.shutdown().await.unwrap();
        });
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"good bye");
        // It says more, and hangs up.
        client.write_all(&[8; 10_000]).await.unwrap();
        drop(client);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_stays_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        HttpConnection::new(listener.accept().await.unwrap().0).shutdown().await.unwrap();
    }
}
