//! What the server times itself by `SET statement_timeout`: a COPY, a part of the rows of a cursor, and until a statement is answered.
//! What plans a statement may work for seconds without a pause, in which the host's own time for the statement is not looked at.

use pithead_host::Deadline;
use pithead_model::Fault;

use crate::connection::Halt;

/// What takes too long where a statement does, before it is answered.
pub(crate) const STATEMENT: &str = "the statement";

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
    in_time_of(deadline, "a part of the statement's rows", sending).await
}

/// Does work until the deadline, whose fault is that of `what`.
pub(crate) async fn in_time_of<T>(
    deadline: Option<Deadline>,
    what: &str,
    work: impl Future<Output = Result<T, Halt>>,
) -> Result<T, Halt> {
    tokio::select! {
        biased;
        done = work => done,
        fault = passed(deadline, what) => Err(fault.into()),
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
