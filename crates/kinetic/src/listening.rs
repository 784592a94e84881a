//! What a connection waits for: a frame, the client's end, or the server's.

use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::code::{Code, Failure};
use crate::frame::{Frame, FrameError, read_message};
use crate::limits::Limits;
use crate::proto::Message;
use crate::receiving::Held;
use crate::reply::FRAME_WAIT;

/// The end of the time in which something has to be said. It is put off with each request, and the timer only once it has rung.
pub(crate) struct Idle {
    until: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    pub fn new(wait: Duration) -> Idle {
        Idle { until: Instant::now() + wait, timer: Box::pin(sleep(wait)) }
    }

    /// Puts it off until so long from now.
    pub fn renew(mut self: Pin<&mut Self>, wait: Duration) {
        self.until = Instant::now() + wait;
    }
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            if Instant::now() >= self.until {
                return Poll::Ready(());
            }
            let until = self.until;
            self.timer.as_mut().reset(until);
        }
    }
}

/// The next frame, which has to begin before `idle` is over; or what the client is told before the connection ends. A value is kept only
/// where `is_kept` says so of its message.
pub(crate) async fn next_frame(
    stream: &mut (impl AsyncBufRead + Unpin),
    idle: Pin<&mut Idle>,
    limits: &Limits,
    held: &mut Held,
    is_kept: impl Fn(&Message) -> bool,
) -> Result<Frame, Option<Failure>> {
    let has_begun = tokio::select! {
        biased;
        begun = stream.fill_buf() => matches!(begun, Ok(bytes) if !bytes.is_empty()),
        () = idle => false,
    };
    if !has_begun {
        return Err(None);
    }
    let reading = async {
        let begun = read_message(stream, limits, |bytes| held.grow(bytes)).await?;
        let is_kept = begun.value_bytes > 0 && is_kept(&begun.message);
        begun.read_value(stream, limits, is_kept).await
    };
    let Ok(read) = timeout(FRAME_WAIT, reading).await else { return Err(None) };
    read.map_err(|error| match error {
        FrameError::TooLong { .. } => Some(Failure::invalid("the frame is too long")),
        FrameError::NoRoom => Some(Failure::new(Code::ServiceBusy, "other clients send long messages; try again later")),
        FrameError::Message(_) => Some(Failure::invalid("the frame has no message")),
        FrameError::Closed | FrameError::Magic(_) | FrameError::Io(_) => None,
    })
}

/// Ends when nobody waits for an answer any more. A client that has sent more meanwhile is taken to wait.
pub(crate) async fn gone(stream: &mut (impl AsyncBufRead + Unpin), stop: &mut watch::Receiver<bool>) {
    let closed = async {
        if matches!(stream.fill_buf().await, Ok(bytes) if !bytes.is_empty()) {
            pending::<()>().await;
        }
    };
    tokio::select! {
        () = closed => {}
        () = told(stop) => {}
    }
}

/// Ends when the server is told to stop.
pub(crate) async fn told(stop: &mut watch::Receiver<bool>) {
    // An error says that the server is gone, which is as good.
    let _ = stop.wait_for(|stop| *stop).await;
}
