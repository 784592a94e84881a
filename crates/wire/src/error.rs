//! What can go wrong on the wire, and how a [`Fault`] travels as a gRPC status.
//!
//! A status carries the fault as JSON in its details, so that blame, message and hint arrive as they were. A status
//! without such details comes from something that is not a drive, or from the link itself.

use std::error::Error;
use std::fmt;

use bytes::Bytes;
use pithead_model::{Blame, Fault};
use tonic::{Code, ConnectError, Status};

/// Most bytes of a fault's JSON: statuses travel in headers, as base64, and peers bound their headers.
pub(crate) const FAULT_BYTES_MAX: usize = 6 << 10;
/// Most bytes of the text that clients other than ours see.
const STATUS_TEXT_BYTES_MAX: usize = 1 << 10;
/// Ends a text that was cut.
const CUT: &str = "…";

/// A connection that was refused with a fault of its own. It comes back from under HTTP/2 as a source of its error.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Fault);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl Error for Refused {}

/// What can go wrong on the wire.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// Bytes from the other end are not a message of the protocol.
    #[error("malformed {what}: {why}")]
    Malformed {
        /// The message.
        what: &'static str,
        /// What does not hold.
        why: String,
    },
    /// A message or what it carries is over its bound.
    #[error("{what} of {bytes} bytes is over the bound of {max}")]
    TooLarge {
        /// The message.
        what: &'static str,
        /// Its bytes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// What crossed the wire whole is refused by the door's own checks.
    #[error("{}", .0.message)]
    Refused(Fault),
    /// An address that is not one.
    #[error("expected a drive's address as HOST:PORT, pithead://HOST:PORT or pithead+tls://HOST:PORT, got {0:?}")]
    Address(String),
    /// Nothing answers at the address.
    #[error("cannot reach the drive at {address}: {why}")]
    Unreachable {
        /// The address.
        address: String,
        /// What the connection said.
        why: String,
    },
    /// The link or the peer failed.
    #[error("drive {address}: {why}")]
    Link {
        /// The address.
        address: String,
        /// What was said.
        why: String,
    },
    /// No answer in time.
    #[error("drive {address} did not answer {call} within {limit_s} s")]
    Late {
        /// The address.
        address: String,
        /// The call.
        call: &'static str,
        /// The limit, seconds.
        limit_s: u64,
    },
    /// The sender of a stream went away before its end.
    #[error("the stream was broken off before its end; nothing was kept")]
    BrokenOff,
    /// The drive is stopping.
    #[error("the drive is stopping")]
    Stopping,
    /// The listening socket or the server failed.
    #[error("the server failed: {0}")]
    Serve(String),
    /// Something of ours cannot be put into a message.
    #[error("cannot encode {what}: {why}")]
    Encode {
        /// The message.
        what: &'static str,
        /// What the encoder said.
        why: String,
    },
}

impl WireError {
    /// A [`WireError::Malformed`].
    pub(crate) fn malformed(what: &'static str, why: impl ToString) -> Self {
        WireError::Malformed { what, why: why.to_string() }
    }

    /// A [`WireError::Encode`].
    pub(crate) fn encode(what: &'static str, why: impl ToString) -> Self {
        WireError::Encode { what, why: why.to_string() }
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        let blame = match &error {
            WireError::Malformed { .. } | WireError::Address(_) => Blame::User,
            WireError::TooLarge { .. } => Blame::Limit,
            WireError::Refused(fault) => fault.blame,
            WireError::Unreachable { .. } | WireError::Link { .. } | WireError::Late { .. } => Blame::Device,
            WireError::Stopping | WireError::Serve(_) => Blame::Device,
            WireError::BrokenOff => Blame::Cancelled,
            WireError::Encode { .. } => Blame::Bug,
        };
        let fault = Fault::new(blame, error.to_string());
        match error {
            WireError::Refused(fault) => fault,
            WireError::Unreachable { address, .. } => {
                fault.hint(format!("start one with `pithead drive serve --data DIR --listen {address}`"))
            }
            _ => fault,
        }
    }
}

impl From<Fault> for WireError {
    fn from(fault: Fault) -> WireError {
        WireError::Refused(fault)
    }
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Status {
        to_status(&error.into())
    }
}

/// The fault of a caller whom nobody knows as a status: other clients tell it from a right that is missing by its code.
pub(crate) fn not_known_status(fault: &Fault) -> Status {
    let status = to_status(fault);
    Status::with_details(Code::Unauthenticated, status.message(), Bytes::copy_from_slice(status.details()))
}

/// A fault as a status. Texts over [`FAULT_BYTES_MAX`] are cut at their end.
pub(crate) fn to_status(fault: &Fault) -> Status {
    let code = match fault.blame {
        Blame::User => Code::InvalidArgument,
        Blame::Unsupported => Code::Unimplemented,
        Blame::Limit => Code::ResourceExhausted,
        Blame::Device => Code::Unavailable,
        Blame::Conflict => Code::Aborted,
        Blame::Access => Code::PermissionDenied,
        Blame::Cancelled => Code::Cancelled,
        Blame::Corrupt => Code::DataLoss,
        Blame::Bug => Code::Internal,
    };
    let mut text = fault.message.clone();
    cut(&mut text, STATUS_TEXT_BYTES_MAX);
    Status::with_details(code, text, Bytes::from(fault_json(fault)))
}

/// A fault as JSON that fits into a status: long texts are cut at their end.
pub fn fault_json(fault: &Fault) -> Vec<u8> {
    let mut fault = fault.clone();
    let mut text_bytes_max = FAULT_BYTES_MAX;
    loop {
        // A fault is three strings, which JSON always holds.
        let json = serde_json::to_vec(&fault).unwrap_or_default();
        if json.len() <= FAULT_BYTES_MAX {
            return json;
        }
        // Escapes may make the JSON several times the text, so cut until it fits.
        text_bytes_max /= 2;
        cut(&mut fault.message, text_bytes_max);
        if let Some(hint) = &mut fault.hint {
            cut(hint, text_bytes_max / 4);
        }
    }
}

/// Cuts a text to at most `bytes_max`, on a character's boundary, and marks the cut.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(CUT.len())));
        text.push_str(CUT);
    }
}

/// The fault that a status from `address` stands for.
pub fn from_status(status: &Status, address: &str) -> Fault {
    if let Ok(fault) = serde_json::from_slice::<Fault>(status.details()) {
        return fault;
    }
    if let Some(refused) = status.source().and_then(|source| chain(source).find_map(|error| error.downcast_ref::<Refused>())) {
        return refused.0.clone();
    }
    let address = address.to_owned();
    match status.source().map(|source| (is_connect_error(source), root_cause(source))) {
        Some((true, why)) => WireError::Unreachable { address, why }.into(),
        Some((false, why)) => WireError::Link { address, why: format!("the connection was lost: {why}") }.into(),
        None => WireError::Link { address, why: format!("{} (gRPC {:?})", status.message(), status.code()) }.into(),
    }
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn is_connect_error(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|error| error.is::<ConnectError>())
}

fn root_cause(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use pithead_model::FaultKind;

    use super::*;

    #[test]
    fn a_fault_survives_a_status() {
        let fault =
            Fault::new(Blame::Conflict, "dataset \"t\" – changed\nmeanwhile").of_kind(FaultKind::Exists).hint("try again");
        assert_eq!(from_status(&to_status(&fault), "somewhere"), fault);
    }

    #[test]
    fn long_texts_are_cut_on_a_character() {
        for text in ["é".repeat(20_000), "\u{1}".repeat(20_000), "x".repeat(20_000)] {
            let fault = Fault::new(Blame::User, text.clone()).hint(text);
            let status = to_status(&fault);
            assert!(status.details().len() <= FAULT_BYTES_MAX && status.message().len() <= STATUS_TEXT_BYTES_MAX);
            let back = from_status(&status, "somewhere");
            assert!(back.blame == Blame::User && back.message.ends_with(CUT) && back.hint.is_some());
        }
    }

    #[test]
    fn a_foreign_status_is_a_device_fault_that_names_the_drive() {
        let fault = from_status(&Status::unimplemented("no such method"), "store1:7433");
        assert_eq!(fault.blame, Blame::Device);
        assert!(fault.message.contains("store1:7433") && fault.message.contains("no such method"));
    }
}
