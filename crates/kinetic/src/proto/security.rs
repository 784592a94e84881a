//! Messages that set up the device: cluster version, identities, PINs, power.

use bytes::Bytes;

/// The device's set-up.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Setup {
    /// The version of the cluster that requests have to name from now on.
    #[prost(int64, optional, tag = "1")]
    pub new_cluster_version: Option<i64>,
    /// Of old clients: delete all keys.
    #[prost(bool, optional, tag = "2")]
    pub instant_secure_erase: Option<bool>,
    /// Of old clients: the PIN that an erase needs.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub pin: Option<Bytes>,
    /// Of old clients: the value is firmware.
    #[prost(bool, optional, tag = "5")]
    pub firmware_download: Option<bool>,
    /// Of new clients: 1 firmware, 2 cluster version.
    #[prost(int32, optional, tag = "6")]
    pub setup_op_type: Option<i32>,
}

/// Identities and PINs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Security {
    /// Identities that are made or replaced.
    #[prost(message, repeated, tag = "2")]
    pub acl: Vec<Acl>,
    /// The PIN for locks as it is.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub old_lock_pin: Option<Bytes>,
    /// The PIN for locks as it is to be.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub new_lock_pin: Option<Bytes>,
    /// The PIN for erasing as it is.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub old_erase_pin: Option<Bytes>,
    /// The PIN for erasing as it is to be.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub new_erase_pin: Option<Bytes>,
    /// Of new clients: 1 identities, 2 the PIN for erasing, 3 the PIN for locks. The other fields say as much.
    #[prost(int32, optional, tag = "7")]
    pub security_op_type: Option<i32>,
}

/// One identity.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Acl {
    /// Its number.
    #[prost(int64, optional, tag = "1")]
    pub identity: Option<i64>,
    /// The key of its signatures.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub key: Option<Bytes>,
    /// How it signs: 1, HMAC with SHA-1.
    #[prost(int32, optional, tag = "3")]
    pub hmac_algorithm: Option<i32>,
    /// What it may do.
    #[prost(message, repeated, tag = "4")]
    pub scope: Vec<AclScope>,
    /// The highest priority that its requests may have.
    #[prost(int32, optional, tag = "5")]
    pub max_priority: Option<i32>,
}

/// What an identity may do with some keys.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AclScope {
    /// Where in a key the value has to be.
    #[prost(int64, optional, tag = "1")]
    pub offset: Option<i64>,
    /// What has to be there.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
    /// See [`crate::Permission`].
    #[prost(int32, repeated, packed = "false", tag = "3")]
    pub permission: Vec<i32>,
    /// Only over TLS.
    #[prost(bool, optional, tag = "4")]
    pub tls_required: Option<bool>,
}

/// An operation that a PIN allows.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PinOperation {
    /// 1 unlock, 2 lock, 3 erase, 4 secure erase.
    #[prost(int32, optional, tag = "1")]
    pub pin_op_type: Option<i32>,
}

/// A power level.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PowerManagement {
    /// 1 operational, 2 hibernate, 3 shut down, 4 failed.
    #[prost(int32, optional, tag = "1")]
    pub level: Option<i32>,
}
