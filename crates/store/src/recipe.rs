//! What a deduplicated value is made of: parts of packs, in order.
//!
//! A pack is a value of the store's own: an ordinary record under a key that no client can name, so that compaction,
//! checks, repairs and the journal treat it as any other. It has the bytes that several values share, or those that
//! were left of a value when the rest of it was found elsewhere. A pack never changes, and its number is never given
//! again, so that a part of a pack has the same bytes for ever.
//!
//! ```text
//! recipe   number (8)   bytes of the value (8)   shares, 16 bytes each:
//!          pack (8)   offset in it (4)   bytes (4)               all numbers little-endian
//! ```

use std::collections::BTreeSet;

use crate::record::take_u64;
use crate::{Key, VALUE_BYTES_MAX};

/// Keys that begin with these bytes are the store's own. They are the last of all keys.
pub(crate) const OWN: [u8; 8] = [u8::MAX; 8];
/// The most shares of a recipe, which bounds its record to 32 KiB.
pub(crate) const SHARES_MAX: usize = 2_048;
/// The most of one that deduplication finds: a part of the value can still be put between others.
pub(crate) const FOUND_SHARES_MAX: usize = SHARES_MAX - 2;
const SHARE_BYTES: usize = 16;

/// A part of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub pack: u64,
    pub offset: u32,
    pub bytes: u32,
}

/// What a value is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipe<'a> {
    /// No other recipe ever has this number.
    pub number: u64,
    /// Bytes of the value.
    pub bytes: u64,
    shares: &'a [u8],
}

impl Share {
    /// The offset behind its last byte.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.bytes)
    }
}

impl<'a> Recipe<'a> {
    /// Reads a recipe; none if the bytes are not one, or if its shares do not add up to a value.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (number, rest) = take_u64(bytes)?;
        let (bytes, shares) = take_u64(rest)?;
        let recipe = Self { number, bytes, shares };
        let count = shares.len() / SHARE_BYTES;
        let is_whole = shares.len().is_multiple_of(SHARE_BYTES) && (1..=SHARES_MAX).contains(&count);
        let sum: u64 = recipe.shares().map(|share| u64::from(share.bytes)).sum();
        let fits = sum == bytes && bytes <= VALUE_BYTES_MAX as u64;
        (is_whole && fits && recipe.shares().all(|share| share.bytes > 0)).then_some(recipe)
    }

    /// Its shares, in the order of the value.
    pub fn shares(&self) -> impl Iterator<Item = Share> + use<'a> {
        self.shares.as_chunks::<SHARE_BYTES>().0.iter().map(|share| Share {
            pack: u64::from_le_bytes(share[..8].try_into().unwrap_or_default()),
            offset: u32::from_le_bytes(share[8..12].try_into().unwrap_or_default()),
            bytes: u32::from_le_bytes(share[12..].try_into().unwrap_or_default()),
        })
    }

    /// The packs that it names.
    pub fn packs(&self) -> BTreeSet<u64> {
        self.shares().map(|share| share.pack).collect()
    }

    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.extend(self.bytes.to_le_bytes());
        out.extend(self.shares);
    }

    pub fn encoded_bytes(&self) -> usize {
        16 + self.shares.len()
    }
}

/// A recipe as bytes. The shares must add up to a value.
pub(crate) fn encode(number: u64, shares: &[Share]) -> Vec<u8> {
    let bytes: u64 = shares.iter().map(|share| u64::from(share.bytes)).sum();
    let mut out = Vec::with_capacity(16 + shares.len() * SHARE_BYTES);
    out.extend(number.to_le_bytes());
    out.extend(bytes.to_le_bytes());
    for share in shares {
        out.extend(share.pack.to_le_bytes());
        out.extend(share.offset.to_le_bytes());
        out.extend(share.bytes.to_le_bytes());
    }
    out
}

/// Whether a key is one of the store's own.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.starts_with(&OWN)
}

/// The key of a pack.
pub(crate) fn pack_key(pack: u64) -> Key {
    [OWN, pack.to_be_bytes()].concat().into()
}

/// The number of the pack that a key names.
pub(crate) fn pack_of(key: &[u8]) -> Option<u64> {
    let number = key.strip_prefix(&OWN)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn recipes_read_as_written(number: u64, shares in vec((any::<u64>(), any::<u32>(), 1..1_000_u32), 1..100)) {
            let shares: Vec<Share> = shares.into_iter().map(|(pack, offset, bytes)| Share { pack, offset, bytes }).collect();
            let encoded = encode(number, &shares);
            let recipe = Recipe::decode(&encoded).unwrap();
            prop_assert_eq!(recipe.number, number);
            prop_assert_eq!(recipe.bytes, shares.iter().map(|share| u64::from(share.bytes)).sum::<u64>());
            prop_assert_eq!(recipe.shares().collect::<Vec<_>>(), shares);
            let mut again = Vec::new();
            recipe.encode_into(&mut again);
            prop_assert_eq!((again.len(), &again), (recipe.encoded_bytes(), &encoded));
            prop_assert!(Recipe::decode(&encoded[..encoded.len() - 1]).is_none());
            prop_assert!(Recipe::decode(&encoded[..encoded.len() - 16]).is_none());
        }

        #[test]
        fn any_bytes_are_a_recipe_that_adds_up_or_none(bytes: Vec<u8>) {
            if let Some(recipe) = Recipe::decode(&bytes) {
                prop_assert_eq!(recipe.shares().map(|share| u64::from(share.bytes)).sum::<u64>(), recipe.bytes);
            }
        }
    }

    #[test]
    fn recipes_that_do_not_add_up_are_refused() {
        let share = Share { pack: 1, offset: 0, bytes: 10 };
        assert!(Recipe::decode(&encode(1, &[share; SHARES_MAX])).is_some());
        assert!(Recipe::decode(&encode(1, &[share; SHARES_MAX + 1])).is_none());
        assert!(Recipe::decode(&encode(1, &[])).is_none());
        assert!(Recipe::decode(&encode(1, &[share, Share { bytes: 0, ..share }])).is_none());
        assert!(Recipe::decode(&encode(1, &[Share { bytes: u32::MAX, ..share }])).is_none());
    }

    #[test]
    fn keys_of_packs_are_the_last_of_all() {
        assert_eq!(pack_of(&pack_key(77)), Some(77));
        assert!(is_own(&pack_key(0)) && pack_key(1) < pack_key(256));
        assert!(!is_own(&[u8::MAX; 7]) && pack_of(&OWN).is_none());
    }
}
