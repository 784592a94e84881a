//! The decoder of what a coordinator sends, for a fuzzer.

use pithead_model::Fault;
pub use pithead_remote::{Expected, ScanSpec, Slot};

use crate::codec;

/// What a worker makes of a remote scan's bytes.
pub fn decode_scan(bytes: &[u8]) -> Result<ScanSpec, Fault> {
    codec::decode(bytes)
}

/// A remote scan as bytes that [`decode_scan`] reads, to seed a fuzzer with.
pub fn scan_bytes(spec: &ScanSpec) -> Result<Vec<u8>, Fault> {
    codec::encode(spec)
}
