//! The protocol's messages. The numbers of their fields are the protocol's; `docs/reference/kinetic.md` lists them.
//!
//! Every field may be missing. Enumerations are plain numbers here, so that one that this release does not know is kept.

mod bound;
mod log;
mod security;

use bytes::Bytes;
use prost::Message as _;

pub use log::{
    Capacity, Configuration, DeviceLog, GetLog, Interface, LogLimits, LogType, Statistics, Temperature, Utilization,
};
pub use security::{Acl, AclScope, PinOperation, PowerManagement, Security, Setup};

/// How a message shows who sent it.
pub mod auth {
    /// By a keyed hash of the command.
    pub const HMAC: i32 = 1;
    /// By a PIN.
    pub const PIN: i32 = 2;
    /// Not at all: the drive says something unasked.
    pub const UNSOLICITED: i32 = 3;
}

/// What a frame holds beside its value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// One of [`auth`].
    #[prost(int32, optional, tag = "4")]
    pub auth_type: Option<i32>,
    /// With [`auth::HMAC`].
    #[prost(message, optional, tag = "5")]
    pub hmac_auth: Option<HmacAuth>,
    /// With [`auth::PIN`].
    #[prost(message, optional, tag = "6")]
    pub pin_auth: Option<PinAuth>,
    /// A [`Command`], as the bytes that were signed.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub command_bytes: Option<Bytes>,
}

/// Who signed a command.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HmacAuth {
    /// The number of the identity.
    #[prost(int64, optional, tag = "1")]
    pub identity: Option<i64>,
    /// The signature, 20 bytes.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub hmac: Option<Bytes>,
}

/// The PIN that an operation on the whole device needs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PinAuth {
    /// The PIN.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub pin: Option<Bytes>,
}

/// A request or a response.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    /// What it is.
    #[prost(message, optional, tag = "1")]
    pub header: Option<Header>,
    /// What it is about.
    #[prost(message, optional, boxed, tag = "2")]
    pub body: Option<Box<Body>>,
    /// Of a response: how it went.
    #[prost(message, optional, tag = "3")]
    pub status: Option<Status>,
}

/// The head of a command.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Header {
    /// The version of the cluster that the client believes to be in; missing: 0.
    #[prost(int64, optional, tag = "1")]
    pub cluster_version: Option<i64>,
    /// The number of the connection, which the drive chooses.
    #[prost(int64, optional, tag = "3")]
    pub connection_id: Option<i64>,
    /// The number of a request, larger than all before it on the connection.
    #[prost(int64, optional, tag = "4")]
    pub sequence: Option<i64>,
    /// The number of the request that a response answers.
    #[prost(int64, optional, tag = "6")]
    pub ack_sequence: Option<i64>,
    /// The kind; see [`crate::RequestKind`].
    #[prost(int32, optional, tag = "7")]
    pub message_type: Option<i32>,
    /// Milliseconds that the request may take.
    #[prost(int64, optional, tag = "9")]
    pub timeout: Option<i64>,
    /// Whether a defect of the medium is to be told at once.
    #[prost(bool, optional, tag = "10")]
    pub early_exit: Option<bool>,
    /// From 1 (lowest) to 9 (highest); missing: 5.
    #[prost(int32, optional, tag = "12")]
    pub priority: Option<i32>,
    /// Milliseconds after which a long operation gives way. Ours give way by themselves.
    #[prost(int64, optional, tag = "13")]
    pub time_quanta: Option<i64>,
    /// The batch that a command belongs to.
    #[prost(uint32, optional, tag = "14")]
    pub batch_id: Option<u32>,
}

/// How a request went.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// One of [`crate::Code`].
    #[prost(int32, optional, tag = "1")]
    pub code: Option<i32>,
    /// For people.
    #[prost(string, optional, tag = "2")]
    pub status_message: Option<String>,
    /// For programs that know it.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub detailed_message: Option<Bytes>,
}

/// What a command is about: at most one of these.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Body {
    /// One key.
    #[prost(message, optional, tag = "1")]
    pub key_value: Option<KeyValue>,
    /// Many keys.
    #[prost(message, optional, tag = "2")]
    pub range: Option<Range>,
    /// The device's set-up.
    #[prost(message, optional, tag = "3")]
    pub setup: Option<Setup>,
    /// A push to another drive.
    #[prost(message, optional, tag = "4")]
    pub p2p_operation: Option<P2pOperation>,
    /// What the drive says of itself.
    #[prost(message, optional, tag = "6")]
    pub get_log: Option<GetLog>,
    /// Identities and PINs.
    #[prost(message, optional, tag = "7")]
    pub security: Option<Security>,
    /// An operation that a PIN allows.
    #[prost(message, optional, tag = "8")]
    pub pin_op: Option<PinOperation>,
    /// The end of a batch.
    #[prost(message, optional, tag = "9")]
    pub batch: Option<Batch>,
    /// The power level.
    #[prost(message, optional, tag = "10")]
    pub power: Option<PowerManagement>,
    /// A program.
    #[prost(message, optional, tag = "11")]
    pub manage_applet: Option<ManageApplet>,
}

/// A key, and what is said of its value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Of a PUT: the version that the value gets.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub new_version: Option<Bytes>,
    /// The key.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub key: Option<Bytes>,
    /// The version that the value has.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub db_version: Option<Bytes>,
    /// The client's proof that the value is whole.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub tag: Option<Bytes>,
    /// How the tag was computed.
    #[prost(int32, optional, tag = "6")]
    pub algorithm: Option<i32>,
    /// Of a GET: do not send the value.
    #[prost(bool, optional, tag = "7")]
    pub metadata_only: Option<bool>,
    /// Of a PUT or DELETE: whatever the version is.
    #[prost(bool, optional, tag = "8")]
    pub force: Option<bool>,
    /// Of a PUT or DELETE: 1 write through, 2 write back, 3 flush.
    #[prost(int32, optional, tag = "9")]
    pub synchronization: Option<i32>,
}

/// Keys between two others.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Range {
    /// The lower end.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub start_key: Option<Bytes>,
    /// The upper end.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub end_key: Option<Bytes>,
    /// Whether the lower end belongs to it.
    #[prost(bool, optional, tag = "3")]
    pub start_key_inclusive: Option<bool>,
    /// Whether the upper end belongs to it.
    #[prost(bool, optional, tag = "4")]
    pub end_key_inclusive: Option<bool>,
    /// The most keys.
    #[prost(int32, optional, tag = "5")]
    pub max_returned: Option<i32>,
    /// From the upper end to the lower.
    #[prost(bool, optional, tag = "6")]
    pub reverse: Option<bool>,
    /// Of a response: the keys.
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub keys: Vec<Bytes>,
}

/// Entries that the drive is to push to another one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct P2pOperation {
    /// The other drive.
    #[prost(message, optional, tag = "1")]
    pub peer: Option<Peer>,
    /// The entries.
    #[prost(message, repeated, tag = "2")]
    pub operation: Vec<PushOperation>,
    /// Of a response: all of them, and all within them, succeeded.
    #[prost(bool, optional, tag = "3")]
    pub all_child_operations_succeeded: Option<bool>,
}

/// Where another drive is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Peer {
    /// Its name or address.
    #[prost(string, optional, tag = "1")]
    pub hostname: Option<String>,
    /// Its port.
    #[prost(int32, optional, tag = "2")]
    pub port: Option<i32>,
    /// Whether it speaks TLS there.
    #[prost(bool, optional, tag = "3")]
    pub tls: Option<bool>,
}

/// One entry to push.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PushOperation {
    /// Its key here.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub key: Option<Bytes>,
    /// The version that the other drive has of it.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub version: Option<Bytes>,
    /// Its key there, if another.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub new_key: Option<Bytes>,
    /// Whatever version the other drive has.
    #[prost(bool, optional, tag = "6")]
    pub force: Option<bool>,
    /// Of a response: how it went.
    #[prost(message, optional, tag = "7")]
    pub status: Option<Status>,
    /// What the other drive is to push on.
    #[prost(message, optional, boxed, tag = "8")]
    pub p2pop: Option<Box<P2pOperation>>,
}

/// The end of a batch.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Batch {
    /// Of a request: how many commands the client sent in it.
    #[prost(int32, optional, tag = "1")]
    pub count: Option<i32>,
    /// Of a response: the sequences of the commands in it. Both ways to write them are read.
    #[prost(int64, repeated, tag = "2")]
    pub sequence: Vec<i64>,
    /// Of a response: the first command that failed.
    #[prost(int64, optional, tag = "3")]
    pub failed_sequence: Option<i64>,
}

/// A program at the drive.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ManageApplet {
    /// From 1, EXECUTE, to 9, UNWATCH.
    #[prost(int32, optional, tag = "1")]
    pub applet_type: Option<i32>,
    /// The language: 1 the vendor's own, 2 LLVM bitcode, 3 Java, 4 eBPF.
    #[prost(int32, optional, tag = "2")]
    pub language: Option<i32>,
    /// The keys whose values, one after the other, are the program.
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub program_key: Vec<Bytes>,
    /// How long it may run.
    #[prost(int64, optional, tag = "4")]
    pub max_run_time: Option<i64>,
    /// What it is told.
    #[prost(string, repeated, tag = "7")]
    pub program_param: Vec<String>,
    /// When the answer is sent: 1 on receipt, 2 on completion.
    #[prost(int32, optional, tag = "8")]
    pub acknowledge_mode: Option<i32>,
    /// The key that gets its output.
    #[prost(bytes = "bytes", optional, tag = "11")]
    pub output_key: Option<Bytes>,
    /// Whether its output is the answer's value.
    #[prost(bool, optional, tag = "12")]
    pub set_value_in_response: Option<bool>,
}

impl Command {
    /// Reads a command, which may be hostile.
    pub fn read(bytes: &[u8]) -> Result<Command, CommandError> {
        match bound::parts(bytes)? {
            found if found > bound::PARTS_MAX => Err(CommandError::TooMany(found)),
            _ => Ok(Command::decode(bytes)?),
        }
    }
}

/// A command as far as its header.
#[derive(Clone, PartialEq, prost::Message)]
struct HeaderOnly {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

impl Header {
    /// The header in the bytes of a command that is not read: its sender is not known, or it cannot be read. It takes no memory,
    /// however long they are. What stands before a defect counts, and all that is missing is left out.
    pub fn of(command: &[u8]) -> Header {
        let mut only = HeaderOnly::default();
        // What was read before an error stays.
        let _ = only.merge(command);
        only.header.unwrap_or_default()
    }
}

/// Why bytes are no command.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommandError {
    /// They are none of the protocol's.
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
    /// It would take too much memory.
    #[error("it holds {0} messages, keys and parameters; at most {max} are allowed", max = bound::PARTS_MAX)]
    TooMany(usize),
}
