//! Tags: what clients compute of a value, so that they see whether it is whole. Those whose algorithm is known here are computed
//! again by MEDIASCAN.

use pithead_store::Tag;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

const SHA1: i32 = 1;
const SHA2: i32 = 2;
/// Bytes of a SHA-224, a SHA-384 and a SHA-512. The protocol does not say which of the family SHA2 is.
const OTHERS_OF_SHA2: [usize; 3] = [28, 48, 64];

/// Computes the tag of a value.
type Compute = fn(&[u8]) -> Vec<u8>;

/// What computes such a tag. None: there is no tag, or its algorithm is not known here, or is ambiguous.
pub(crate) fn computed(tag: &Tag) -> Option<Compute> {
    match tag.algorithm {
        _ if tag.bytes.is_empty() => None,
        SHA1 => Some(|value| Sha1::digest(value).to_vec()),
        SHA2 if OTHERS_OF_SHA2.contains(&tag.bytes.len()) => None,
        SHA2 => Some(|value| Sha256::digest(value).to_vec()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a tag is that of `abc`, the first case of FIPS 180-4.
    fn judged(algorithm: i32, hex: &str) -> Option<bool> {
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let tag = Tag { algorithm, bytes: bytes.into() };
        computed(&tag).map(|compute| compute(b"abc") == tag.bytes)
    }

    #[test]
    fn tags_are_judged_where_their_algorithm_is_known() {
        let sha1 = "a9993e364706816aba3e25717850c26c9cd0d89d";
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((judged(SHA1, sha1), judged(SHA2, sha256)), (Some(true), Some(true)));
        assert_eq!((judged(SHA1, sha256), judged(SHA2, sha1)), (Some(false), Some(false)));
        assert_eq!((judged(SHA1, &sha1[2..]), judged(SHA2, "00")), (Some(false), Some(false)));
        for (algorithm, hex) in [(SHA1, ""), (SHA2, ""), (0, sha1), (3, sha256), (4, "364b3fb7"), (100, sha1), (-1, sha1)] {
            assert_eq!(judged(algorithm, hex), None, "{algorithm} {hex}");
        }
        for bytes in OTHERS_OF_SHA2 {
            assert_eq!(judged(SHA2, &"00".repeat(bytes)), None, "{bytes} bytes");
        }
    }
}
