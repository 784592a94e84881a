//! [`Refused`]: why a call is not answered, as gRPC says it.
//!
//! A status carries no details: clients of gRPC read those as protobuf messages, and fail on any others.

use pithead_model::{Blame, Fault, FaultKind, RECEIVING_BYTES_PER_CONNECTION_MAX};
use tonic::{Code, Status};

/// Most bytes of a text. It travels in a header, percent-encoded, and JDBC's client takes 8 KiB of headers.
const TEXT_BYTES_MAX: usize = 2 << 10;
/// Ends a text that was cut.
const CUT: &str = "…";

/// A call that is not answered.
#[derive(Debug)]
pub(crate) struct Refused(Box<Status>);

impl Refused {
    /// The request is not one that can be right.
    pub(crate) fn invalid(message: impl Into<String>) -> Refused {
        Status::invalid_argument(message).into()
    }

    /// What is asked for is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Refused {
        Status::not_found(message).into()
    }

    /// This release does not do it.
    pub(crate) fn unimplemented(message: impl Into<String>) -> Refused {
        Status::unimplemented(message).into()
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        to_status(&fault).into()
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Refused {
        Refused(Box::new(status))
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        *refused.0
    }
}

/// A fault as a status. Texts over [`TEXT_BYTES_MAX`] are cut at their end.
pub(crate) fn to_status(fault: &Fault) -> Status {
    let mut text = fault.to_string();
    if text.len() > TEXT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX - CUT.len()));
        text.push_str(CUT);
    }
    Status::new(code(fault), text)
}

/// The code of a fault. Who is to blame says the class; of what users do wrong and of limits, the kind says which it is.
fn code(fault: &Fault) -> Code {
    match (fault.blame, fault.kind) {
        (Blame::User, FaultKind::NoTable) => Code::NotFound,
        (Blame::User, FaultKind::Exists) => Code::AlreadyExists,
        (Blame::User, _) => Code::InvalidArgument,
        (Blame::Unsupported, _) => Code::Unimplemented,
        (Blame::Limit, FaultKind::Timeout) => Code::DeadlineExceeded,
        (Blame::Limit, _) => Code::ResourceExhausted,
        (Blame::Device, _) => Code::Unavailable,
        (Blame::Conflict, _) => Code::Aborted,
        (Blame::Access, _) => Code::PermissionDenied,
        (Blame::Cancelled, _) => Code::Cancelled,
        (Blame::Corrupt, _) => Code::DataLoss,
        (Blame::Bug, _) => Code::Internal,
    }
}

/// What a call's own stream failed with, as a fault.
pub(crate) fn broken(status: &Status) -> Fault {
    let blame = match status.code() {
        Code::ResourceExhausted | Code::OutOfRange => Blame::Limit,
        Code::InvalidArgument | Code::Internal => Blame::User,
        _ => Blame::Cancelled,
    };
    let fault = Fault::new(blame, format!("the client's stream failed: {}", status.message()));
    match blame {
        Blame::Limit => fault.hint(format!(
            "send rows in record batches of at most {RECEIVING_BYTES_PER_CONNECTION_MAX} bytes each: `table.to_reader(max_chunksize=100_000)` of pyarrow"
        )),
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_that_drivers_know() {
        let code = |blame, kind| to_status(&Fault::new(blame, "it is so").of_kind(kind)).code();
        assert_eq!(code(Blame::User, FaultKind::NoTable), Code::NotFound);
        assert_eq!(code(Blame::User, FaultKind::Exists), Code::AlreadyExists);
        assert_eq!(code(Blame::User, FaultKind::Syntax), Code::InvalidArgument);
        assert_eq!(code(Blame::Limit, FaultKind::Timeout), Code::DeadlineExceeded);
        assert_eq!(code(Blame::Access, FaultKind::Other), Code::PermissionDenied);
    }

    #[test]
    fn who_sends_too_much_at_once_is_told_how_to_send_it() {
        let fault = broken(&Status::out_of_range("decoded message length too large"));
        assert!(fault.blame == Blame::Limit && fault.hint.unwrap().contains("max_chunksize"));
        assert!(broken(&Status::aborted("the client broke it off")).hint.is_none());
    }

    #[test]
    fn texts_fit_into_headers_and_hints_are_told() {
        let status = to_status(&Fault::invalid("é".repeat(5_000)));
        assert!(status.message().len() <= TEXT_BYTES_MAX && status.message().ends_with(CUT));
        assert!(status.details().is_empty());
        assert_eq!(to_status(&Fault::invalid("no").hint("do this")).message(), "no\nhint: do this");
    }
}
