//! What goes wrong in the sandbox, as faults.

use pithead_model::{Blame, Fault};
use pithead_program::{ProgramError, ServiceError};
use pithead_sched::TaskLost;

/// Starts a hint at the end of an error's text.
const HINT: &str = " hint: ";

/// An error of the sandbox as its caller is told.
pub(super) fn program_fault(error: ProgramError) -> Fault {
    let blame = match &error {
        ProgramError::Module { .. } | ProgramError::Guest { .. } | ProgramError::Usage(_) => Blame::User,
        ProgramError::Busy(_) => Blame::Limit,
        ProgramError::Stopped(_) => Blame::Cancelled,
        ProgramError::Service(ServiceError::NotFound(_)) => Blame::User,
        ProgramError::Service(ServiceError::Denied(_)) => Blame::Access,
        ProgramError::Service(ServiceError::Failed(_)) => Blame::Device,
        ProgramError::Engine(_) => Blame::Bug,
    };
    let text = error.to_string();
    match text.rsplit_once(HINT) {
        Some((message, hint)) => Fault::new(blame, message.trim_end_matches('.')).hint(hint),
        None => Fault::new(blame, text),
    }
}

/// Work that has no result.
pub(super) fn task_fault(lost: TaskLost) -> Fault {
    match lost {
        TaskLost::Stopped => Fault::new(Blame::Device, "the drive has stopped"),
        TaskLost::Panicked(_) => Fault::new(Blame::Bug, lost.to_string()),
    }
}

/// A fault of the drive as a guest is told.
pub(super) fn service_error(fault: Fault) -> ServiceError {
    match fault.blame {
        Blame::User => ServiceError::NotFound(fault.message),
        Blame::Access => ServiceError::Denied(fault.message),
        _ => ServiceError::Failed(fault.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_at_the_end_of_a_text_is_one() {
        let error = ProgramError::Module { module: "m".into(), cause: "it is old. hint: build it anew".into() };
        let fault = program_fault(error);
        assert_eq!((fault.blame, fault.message.as_str()), (Blame::User, "module m: it is old"));
        assert_eq!(fault.hint.as_deref(), Some("build it anew"));
        assert_eq!(program_fault(ServiceError::Denied("no".into()).into()).blame, Blame::Access);
    }
}
