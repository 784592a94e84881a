//! JSON bodies within their bounds.

use bytes::Bytes;
use pithead_model::MESSAGE_BYTES_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::WireError;

/// What a JSON body may take of a message.
const JSON_BYTES_MAX: usize = MESSAGE_BYTES_MAX - (64 << 10);

/// A value as JSON, within a message's bound.
pub(crate) fn json(value: &impl Serialize) -> Result<Bytes, WireError> {
    let bytes = serde_json::to_vec(value).map_err(|error| WireError::encode("a message", error))?;
    check_bound("a message", bytes.len(), JSON_BYTES_MAX)?;
    Ok(bytes.into())
}

/// A value from JSON.
pub(crate) fn from_json<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(bytes).map_err(|error| WireError::malformed(what, error))
}

/// Refuses what is over its bound.
pub(crate) fn check_bound(what: &'static str, bytes: usize, max: usize) -> Result<(), WireError> {
    if bytes <= max { Ok(()) } else { Err(WireError::TooLarge { what, bytes, max }) }
}
