//! [`Closer`]: a session that is closed however it ends.

use std::sync::Arc;

use pithead_door::{Door, OpenRequest, Opened};
use pithead_model::{Fault, Reply, SessionId};

/// Closes the session: at its end, or else when it is dropped, however that comes.
pub(crate) struct Closer {
    door: Arc<dyn Door>,
    pub(crate) session: SessionId,
    runtime: tokio::runtime::Handle,
    closed: bool,
}

impl Closer {
    /// OPEN. It goes on when its caller does not wait for it any more, so that a session that is granted late is closed.
    pub(crate) async fn open(door: &Arc<dyn Door>, request: OpenRequest) -> Result<(Opened, Option<Closer>), Fault> {
        let door = Arc::clone(door);
        let opening = tokio::spawn(async move {
            let opened = door.open(request).await?;
            let closer = match &opened.reply {
                Reply::Granted(granted) => {
                    Some(Closer { door, session: granted.session, runtime: tokio::runtime::Handle::current(), closed: false })
                }
                Reply::Busy { .. } => None,
            };
            Ok((opened, closer))
        });
        opening.await.map_err(Fault::bug)?
    }

    /// Whether the drive is in this process.
    pub(crate) fn is_in_process(&self) -> bool {
        self.door.is_in_process()
    }

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
