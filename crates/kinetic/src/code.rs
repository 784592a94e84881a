//! Kinds of requests, and codes of their answers, by the protocol's numbers.

use pithead_store::StoreError;

/// A kind of request. The number of its answer is one less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the protocol's")]
pub enum RequestKind {
    Get = 2,
    Put = 4,
    Delete = 6,
    GetNext = 8,
    GetPrevious = 10,
    GetKeyRange = 12,
    GetVersion = 16,
    Setup = 22,
    GetLog = 24,
    Security = 26,
    Peer2PeerPush = 28,
    Noop = 30,
    FlushAllData = 32,
    PinOp = 36,
    MediaScan = 38,
    MediaOptimize = 40,
    StartBatch = 42,
    EndBatch = 44,
    AbortBatch = 46,
    SetPowerLevel = 48,
    ManageApplet = 50,
}

impl RequestKind {
    /// All kinds, by number.
    pub const ALL: [RequestKind; 21] = [
        RequestKind::Get,
        RequestKind::Put,
        RequestKind::Delete,
        RequestKind::GetNext,
        RequestKind::GetPrevious,
        RequestKind::GetKeyRange,
        RequestKind::GetVersion,
        RequestKind::Setup,
        RequestKind::GetLog,
        RequestKind::Security,
        RequestKind::Peer2PeerPush,
        RequestKind::Noop,
        RequestKind::FlushAllData,
        RequestKind::PinOp,
        RequestKind::MediaScan,
        RequestKind::MediaOptimize,
        RequestKind::StartBatch,
        RequestKind::EndBatch,
        RequestKind::AbortBatch,
        RequestKind::SetPowerLevel,
        RequestKind::ManageApplet,
    ];

    /// The kind of request with this number; none if there is no such request.
    pub fn of(number: i32) -> Option<RequestKind> {
        RequestKind::ALL.into_iter().find(|kind| *kind as i32 == number)
    }

    /// The number of its answer.
    pub fn response(self) -> i32 {
        self as i32 - 1
    }

    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Get => "get",
            RequestKind::Put => "put",
            RequestKind::Delete => "delete",
            RequestKind::GetNext => "getnext",
            RequestKind::GetPrevious => "getprevious",
            RequestKind::GetKeyRange => "getkeyrange",
            RequestKind::GetVersion => "getversion",
            RequestKind::Setup => "setup",
            RequestKind::GetLog => "getlog",
            RequestKind::Security => "security",
            RequestKind::Peer2PeerPush => "peer2peerpush",
            RequestKind::Noop => "noop",
            RequestKind::FlushAllData => "flushalldata",
            RequestKind::PinOp => "pinop",
            RequestKind::MediaScan => "mediascan",
            RequestKind::MediaOptimize => "mediaoptimize",
            RequestKind::StartBatch => "start_batch",
            RequestKind::EndBatch => "end_batch",
            RequestKind::AbortBatch => "abort_batch",
            RequestKind::SetPowerLevel => "set_power_level",
            RequestKind::ManageApplet => "manage_applet",
        }
    }

    /// Whether it is about one key.
    pub(crate) fn has_key(self) -> bool {
        use RequestKind::{Delete, Get, GetNext, GetPrevious, GetVersion, Put};
        matches!(self, Get | Put | Delete | GetNext | GetPrevious | GetVersion)
    }
}

/// How a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the protocol's")]
pub enum Code {
    NotAttempted = 0,
    Success = 1,
    HmacFailure = 2,
    NotAuthorized = 3,
    VersionFailure = 4,
    InternalError = 5,
    HeaderRequired = 6,
    NotFound = 7,
    VersionMismatch = 8,
    ServiceBusy = 9,
    Expired = 10,
    DataError = 11,
    PermDataError = 12,
    RemoteConnectionError = 13,
    NoSpace = 14,
    NoSuchHmacAlgorithm = 15,
    InvalidRequest = 16,
    NestedOperationErrors = 17,
    DeviceLocked = 18,
    DeviceAlreadyUnlocked = 19,
    ConnectionTerminated = 20,
    InvalidBatch = 21,
    Hibernate = 22,
    Shutdown = 23,
    InvalidExecute = 24,
    ExecuteComplete = 25,
}

impl Code {
    const ALL: [(Code, &'static str); 26] = [
        (Code::NotAttempted, "NOT_ATTEMPTED"),
        (Code::Success, "SUCCESS"),
        (Code::HmacFailure, "HMAC_FAILURE"),
        (Code::NotAuthorized, "NOT_AUTHORIZED"),
        (Code::VersionFailure, "VERSION_FAILURE"),
        (Code::InternalError, "INTERNAL_ERROR"),
        (Code::HeaderRequired, "HEADER_REQUIRED"),
        (Code::NotFound, "NOT_FOUND"),
        (Code::VersionMismatch, "VERSION_MISMATCH"),
        (Code::ServiceBusy, "SERVICE_BUSY"),
        (Code::Expired, "EXPIRED"),
        (Code::DataError, "DATA_ERROR"),
        (Code::PermDataError, "PERM_DATA_ERROR"),
        (Code::RemoteConnectionError, "REMOTE_CONNECTION_ERROR"),
        (Code::NoSpace, "NO_SPACE"),
        (Code::NoSuchHmacAlgorithm, "NO_SUCH_HMAC_ALGORITHM"),
        (Code::InvalidRequest, "INVALID_REQUEST"),
        (Code::NestedOperationErrors, "NESTED_OPERATION_ERRORS"),
        (Code::DeviceLocked, "DEVICE_LOCKED"),
        (Code::DeviceAlreadyUnlocked, "DEVICE_ALREADY_UNLOCKED"),
        (Code::ConnectionTerminated, "CONNECTION_TERMINATED"),
        (Code::InvalidBatch, "INVALID_BATCH"),
        (Code::Hibernate, "HIBERNATE"),
        (Code::Shutdown, "SHUTDOWN"),
        (Code::InvalidExecute, "INVALID_EXECUTE"),
        (Code::ExecuteComplete, "EXECUTE_COMPLETE"),
    ];

    /// The code with this number; none if there is no such code.
    pub fn of(number: i32) -> Option<Code> {
        Code::ALL.iter().map(|(code, _)| *code).find(|code| *code as i32 == number)
    }

    /// The protocol's name for it.
    pub fn name(self) -> &'static str {
        Code::ALL.iter().find(|(code, _)| *code == self).map_or("", |(_, name)| name)
    }
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", code.name())]
pub struct Failure {
    /// What the client is told as a number.
    pub code: Code,
    /// What the client is told as a text.
    pub what: String,
}

impl Failure {
    /// A failure with a text for people.
    pub fn new(code: Code, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidRequest, what)
    }

    pub(crate) fn not_authorized(what: impl Into<String>) -> Failure {
        Failure::new(Code::NotAuthorized, what)
    }

    pub(crate) fn not_found() -> Failure {
        Failure::new(Code::NotFound, "there is no such key")
    }
}

/// What a client is told of a key whose version is not the expected one.
pub(crate) const OTHER_VERSION: &str = "the key has another version";

/// A client learns what is wrong with its request, and not by which names we store its keys, or where our files are.
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let (code, what) = match &error {
            StoreError::Conflict { .. } => (Code::VersionMismatch, OTHER_VERSION),
            StoreError::NoSpace { .. } => (Code::NoSpace, "the medium is full"),
            StoreError::Corrupt { .. } | StoreError::Damaged { .. } => {
                (Code::PermDataError, "the stored value is damaged; the drive's log says where")
            }
            StoreError::TooLarge(_) => (Code::InvalidRequest, "it is larger than what the drive stores at once"),
            StoreError::InUse { .. } | StoreError::Format { .. } | StoreError::Io { .. } | StoreError::Index { .. } => {
                (Code::InternalError, "the store failed; the drive's log says why")
            }
        };
        match code {
            Code::PermDataError | Code::InternalError => tracing::error!(%error, "a request of a Kinetic client failed"),
            _ => tracing::debug!(%error, "a request of a Kinetic client was refused"),
        }
        Failure::new(code, what)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::*;

    /// Texts of the store were sent as they are, with its own keys and paths.
    #[test]
    fn clients_learn_no_names_of_ours() {
        let (key, path, what) = (|| "kinetic/key/k".to_owned(), || PathBuf::from("/disk1/kv"), || "wrong".to_owned());
        let errors = [
            (StoreError::Conflict { key: key() }, Code::VersionMismatch, "another version"),
            (StoreError::NoSpace { path: path(), needed: 7 }, Code::NoSpace, "full"),
            (StoreError::Corrupt { key: key(), what: what() }, Code::PermDataError, "damaged"),
            (StoreError::Damaged { path: path(), what: what() }, Code::PermDataError, "damaged"),
            (StoreError::TooLarge(format!("the key {} has 5,000 bytes", key())), Code::InvalidRequest, "larger"),
            (StoreError::InUse { path: path() }, Code::InternalError, "failed"),
            (StoreError::Format { path: path(), found: what(), newest: 5 }, Code::InternalError, "failed"),
            (StoreError::Io { path: path(), source: io::Error::other(what()) }, Code::InternalError, "failed"),
            (StoreError::Index { path: path(), what: what() }, Code::InternalError, "failed"),
        ];
        for (error, code, told) in errors {
            let said = error.to_string();
            let failure = Failure::from(error);
            assert_eq!(failure.code, code, "{said}");
            assert!(failure.what.contains(told) && !failure.what.contains('/'), "{said}: {}", failure.what);
        }
    }
}
