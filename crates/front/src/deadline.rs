//! What the server times itself by `SET statement_timeout`: a COPY, or a part of the rows of a cursor. All else is timed by the host.

use pithead_host::Deadline;
use pithead_model::Fault;

use crate::connection::Halt;

/// Ends at a deadline, or never. The deadline's fault is that of `what`.
pub(crate) async fn passed(deadline: Option<Deadline>, what: &str) -> Fault {
    match deadline {
        Some(deadline) => {
            deadline.passed().await;
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
    use std::time::Duration;

    use pithead_model::FaultKind;

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
