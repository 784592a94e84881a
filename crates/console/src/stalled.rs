//! [`Impatient`]: a connection that ends when its client takes nothing for too long, so that answers do not stay in memory for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long a client may take nothing of what is there for it.
const STALL_MAX: Duration = Duration::from_secs(30);

/// A stream whose writes fail once they were stuck for too long.
pub(crate) struct Impatient<S> {
    stream: S,
    stuck: Option<Pin<Box<Sleep>>>,
    stall_max: Duration,
}

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S) -> Impatient<S> {
        Impatient { stream, stuck: None, stall_max: STALL_MAX }
    }

    /// What a write comes to: an error where it has been stuck for too long.
    fn judged<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let (now, stall_max) = (Instant::now(), self.stall_max);
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(now + stall_max)));
        match stuck.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judged(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judged(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judged(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judged(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_takes_nothing_is_hung_up_on() {
        let (here, mut there) = tokio::io::duplex(16);
        let mut here = Impatient { stall_max: Duration::from_millis(50), ..Impatient::new(here) };
        here.write_all(&[0; 16]).await.unwrap();
        let writing = here.write_all(&[0; 16]);
        assert_eq!(writing.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        there.read_exact(&mut [0; 16]).await.unwrap();
        here.write_all(&[0; 16]).await.unwrap();
    }
}
