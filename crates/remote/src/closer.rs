//! [`Closer`]: a session that is closed however it ends.

use std::sync::Arc;

use pithead_door::{Door, Events, OpenRequest, Opened};
use pithead_model::{Fault, Reply, SessionId};

/// A session that was granted.
pub(crate) struct Begun {
    pub(crate) session: SessionId,
    /// Its events, where they came with OPEN's answer: then it is closed with them.
    pub(crate) events: Option<Events>,
    /// Closes it otherwise.
    pub(crate) closer: Option<Closer>,
}

impl Begun {
    /// OPEN. It goes on when its caller does not wait for it any more, so that a session that is granted late is closed.
    pub(crate) async fn open(door: &Arc<dyn Door>, request: OpenRequest) -> Result<(Opened, Option<Begun>), Fault> {
        let door = Arc::clone(door);
        let opening = tokio::spawn(async move {
            let (opened, events) = door.open_and_get(request).await?;
            let begun = match &opened.reply {
                Reply::Granted(granted) => {
                    let session = granted.session;
                    let runtime = tokio::runtime::Handle::current();
                    let closer = events.is_none().then(|| Closer { door, session, runtime, closed: false });
                    Some(Begun { session, events, closer })
                }
                Reply::Busy { .. } => None,
            };
            Ok((opened, begun))
        });
        opening.await.map_err(Fault::bug)?
    }
}

/// Closes the session: at its end, or else when it is dropped, however that comes.
pub(crate) struct Closer {
    door: Arc<dyn Door>,
    session: SessionId,
    runtime: tokio::runtime::Handle,
    closed: bool,
}

impl Closer {
    /// At the end of its work, before the caller hears of it: a process may end right after. It goes on when its caller does not
    /// wait for it any more.
    pub(crate) async fn close(&mut self) {
        self.closed = true;
        let (door, session) = (Arc::clone(&self.door), self.session);
        let closing = self.runtime.spawn(async move { close(&*door, session).await });
        // It ends early only where the runtime does.
        let _ = closing.await;
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        if !self.closed {
            let (door, session) = (Arc::clone(&self.door), self.session);
            self.runtime.spawn(async move { close(&*door, session).await });
        }
    }
}

async fn close(door: &dyn Door, session: SessionId) {
    if let Err(fault) = door.close(session).await {
        tracing::debug!(%session, %fault, "a session could not be closed; its idle limit will");
    }
}
