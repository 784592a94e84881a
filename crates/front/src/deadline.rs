//! [`Deadline`]: how long what the server times itself may take, `SET statement_timeout`: a COPY, or a part of the rows of a cursor. All
//! else is timed by the host.

use std::time::Duration;

use pithead_model::{Blame, Fault, FaultKind};
use tokio::time::Instant;

use crate::connection::Halt;

/// When something is to have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// From now on. None: it may take as long as it needs.
    pub(crate) fn after(timeout: Option<Duration>) -> Option<Deadline> {
        timeout.map(|timeout| Deadline { at: Instant::now() + timeout, timeout })
    }

    /// That something took too long.
    pub(crate) fn fault(self, what: &str) -> Fault {
        let timeout = self.timeout;
        let message = format!("{what} took longer than statement_timeout allows, {timeout:?}, and was cancelled");
        Fault::new(Blame::Limit, message).of_kind(FaultKind::Timeout).hint("SET statement_timeout = 0 allows any time")
    }
}

/// Ends at a deadline, or never. The deadline's fault is that of `what`.
pub(crate) async fn passed(deadline: Option<Deadline>, what: &str) -> Fault {
    match deadline {
        Some(deadline) => {
            tokio::time::sleep_until(deadline.at).await;
            deadline.fault(what)
        }
        None => std::future::pending().await,
    }
}

/// Sends a part of a statement's rows, until the deadline.
pub(crate) async fn in_time<T>(deadline: Option<Deadline>, sending: impl Future<Output = Result<T, Halt>>) -> Result<T, Halt> {
    tokio::select! {
        biased;
        sent = sending => sent,
        fault = passed(deadline, "a part of the statement's rows") => Err(fault.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_comes_too_late_is_a_timeout() {
        let deadline = Deadline::after(Some(Duration::from_millis(1)));
        let late = in_time(deadline, std::future::pending::<Result<(), Halt>>()).await;
        assert!(matches!(&late, Err(Halt::Fault(fault)) if fault.kind == FaultKind::Timeout), "{late:?}");
        assert!(matches!(in_time(deadline, async { Ok(7) }).await, Ok(7)), "what is there already is sent");
        assert!(matches!(in_time(None, async { Ok(7) }).await, Ok(7)));
    }
}
