//! [`Limits`]: the bounds that this server holds its clients to, and tells them in its greeting. All are inclusive.

use pithead_store::TAG_BYTES_MAX;

use crate::code::Failure;
use crate::proto::LogLimits;

/// The bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of a version.
    pub version_bytes: usize,
    /// Bytes of a tag.
    pub tag_bytes: usize,
    /// Bytes of a message without its value.
    pub message_bytes: usize,
    /// Requests of all connections that wait for their turn.
    pub waiting: usize,
    /// Keys of one range.
    pub range_keys: usize,
    /// Identities.
    pub identities: usize,
    /// Scopes of one identity.
    pub scopes: usize,
    /// Bytes of a PIN.
    pub pin_bytes: usize,
    /// Commands of one batch.
    pub batch_commands: usize,
    /// Open batches of one connection.
    pub batches: usize,
    /// Bytes that open batches of all connections hold. One client has half of them at most, and less where others hold some.
    pub batch_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 4_096,
            value_bytes: 1 << 20,
            version_bytes: 2_048,
            tag_bytes: TAG_BYTES_MAX,
            message_bytes: 1 << 20,
            waiting: 1_024,
            range_keys: 200,
            identities: 256,
            scopes: 256,
            pin_bytes: 256,
            batch_commands: 15,
            batches: 5,
            batch_bytes: 512 << 20,
        }
    }
}

impl Limits {
    /// As clients are told. `connections`: how many one client may have at one time.
    pub fn told(&self, connections: usize) -> LogLimits {
        let number = |bound: usize| u32::try_from(bound).ok();
        LogLimits {
            max_key_size: number(self.key_bytes),
            max_value_size: number(self.value_bytes),
            max_version_size: number(self.version_bytes),
            max_tag_size: number(self.tag_bytes),
            max_connections: number(connections),
            max_outstanding_read_requests: number(self.waiting),
            max_outstanding_write_requests: number(self.waiting),
            max_message_size: number(self.message_bytes),
            max_key_range_count: number(self.range_keys),
            max_identity_count: number(self.identities),
            max_pin_size: number(self.pin_bytes),
            max_operation_count_per_batch: number(self.batch_commands),
            max_batch_count_per_device: number(self.batches),
        }
    }
}

/// Refuses more bytes than a bound.
pub(crate) fn check_bytes(what: &str, bytes: usize, bytes_max: usize) -> Result<(), Failure> {
    match bytes <= bytes_max {
        true => Ok(()),
        false => Err(Failure::invalid(format!("a {what} of {bytes} bytes; at most {bytes_max} are allowed"))),
    }
}
