//! Following a drive's part of an application to its end, and what one application puts out to another one.

use std::sync::{Arc, Weak};

use futures::stream::{BoxStream, StreamExt};
use pithead_door::ApplicationEvent;
use pithead_model::{Blame, Fault};

use crate::state::Shared;
use crate::{HostReader, HostWriter};

/// Takes what one drive says. Whatever ends it early ends the application.
pub(crate) async fn follow(
    shared: Weak<Shared>,
    drive: usize,
    labels: Vec<String>,
    mut events: BoxStream<'static, Result<ApplicationEvent, Fault>>,
) {
    let broken = || Err(Fault::new(Blame::Device, "its part of the application was broken off"));
    loop {
        let event = events.next().await.unwrap_or_else(broken);
        let Some(shared) = Weak::upgrade(&shared) else { return };
        let taken = event.and_then(|event| shared.change(|state| take(state, drive, event)));
        // In a line of its own, so that the lock is free again.
        let deadlock = shared.lock().deadlock(|drive| labels[drive].clone());
        if let Some(what) = deadlock {
            return shared.fail(Fault::invalid(what));
        }
        match taken {
            Ok(false) => {}
            Ok(true) => return,
            Err(fault) => return shared.fail(fault.at_drive(&labels[drive])),
        }
        drop::<Arc<_>>(shared);
    }
}

/// Passes what one application puts out on to an input of another one, until one of both has ended. The other one is told by the ends
/// that are dropped then: that nobody reads any more, or that there is no more.
pub(crate) async fn pass_on(reader: HostReader, writer: HostWriter) {
    loop {
        match reader.get().await {
            Ok(Some(batch)) => {
                // An application that has ended, well or not, reads no more, and what it reads of goes on.
                if !writer.put(batch).await.unwrap_or(false) {
                    return;
                }
            }
            Ok(None) => return,
            Err(fault) => {
                let what = format!("the application {}, which it reads, has failed: {}", reader.application(), fault.message);
                return writer.fail(Fault { message: what, ..fault });
            }
        }
    }
}

/// What comes once the application has ended elsewhere says nothing any more.
fn take(state: &mut crate::state::ApplicationState, drive: usize, event: ApplicationEvent) -> Result<bool, Fault> {
    match state.sides.is_empty() {
        true => Ok(true),
        false => state.take(drive, event),
    }
}
