//! [`LowerSession`]: a session at a drive below, closed however it ends. And faults of drives below.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pithead_door::{Door, OpenRequest};
use pithead_fleet::ConnectedDrive;
use pithead_model::{Blame, Fault, Reply, SessionId};

/// A session at a drive below.
#[derive(Debug)]
pub(crate) struct LowerSession {
    /// The drive, by its place among the array's.
    pub(crate) drive: usize,
    pub(crate) label: String,
    pub(crate) door: Arc<dyn Door>,
    pub(crate) id: SessionId,
    runtime: tokio::runtime::Handle,
    closed: AtomicBool,
}

impl LowerSession {
    /// OPEN. It goes on when its caller does not wait for it any more, so that a session that is granted late is closed.
    pub(crate) async fn open(index: usize, drive: &ConnectedDrive, request: OpenRequest) -> Result<Reply<LowerSession>, Fault> {
        let (door, label) = (Arc::clone(&drive.door), drive.label().to_owned());
        let opening = tokio::spawn(async move {
            let opened = door.open(request).await.map_err(|fault| fault.at_drive(&label))?;
            Ok(match opened.reply {
                Reply::Granted(granted) => Reply::Granted(LowerSession {
                    drive: index,
                    label,
                    door,
                    id: granted.session,
                    runtime: tokio::runtime::Handle::current(),
                    closed: AtomicBool::new(false),
                }),
                Reply::Busy { why, retry_after_ms } => Reply::Busy { why: format!("drive {label}: {why}"), retry_after_ms },
            })
        });
        opening.await.map_err(|lost| Fault::new(Blame::Bug, format!("opening a session below ended early: {lost}")))?
    }

    /// CLOSE, once.
    pub(crate) async fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            close(&*self.door, self.id).await;
        }
    }
}

impl Drop for LowerSession {
    fn drop(&mut self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            let (door, session) = (Arc::clone(&self.door), self.id);
            self.runtime.spawn(async move { close(&*door, session).await });
        }
    }
}

async fn close(door: &dyn Door, session: SessionId) {
    if let Err(fault) = door.close(session).await {
        tracing::debug!(%session, %fault, "a session below could not be closed; its idle limit will");
    }
}

/// What a drive below should not have sent.
pub(crate) fn broken(label: &str, what: impl std::fmt::Display) -> Fault {
    Fault::new(Blame::Device, format!("drive {label} broke the protocol: {what}"))
}
