//! What a fuzzer of stores needs to get past checksums to the decoders behind them. The bytes on a medium can have been
//! written to do harm, with correct checksums.

use xxhash_rust::xxh3::xxh3_64;

use crate::blocks;
use crate::recipe::{Recipe, Share, encode};
use crate::record::{self, Body, Record};

/// Makes the checksums of all blocks of an index's file (see `blocks`) correct.
pub fn reseal_index(file: &mut [u8]) {
    blocks::reseal(file);
}

/// A record of the index as it is stored, with an inline value.
pub fn record_bytes(key: &[u8], version: &[u8], tag: &[u8], value: &[u8]) -> Vec<u8> {
    Record { version, tag_algorithm: 1, tag, checksum: xxh3_64(value), body: Body::Inline(value) }.encode(key)
}

/// A record of the index of a value that is made of parts of packs: of each the pack's number, the offset in it and the bytes.
pub fn recipe_bytes(key: &[u8], number: u64, shares: &[(u64, u32, u32)]) -> Vec<u8> {
    let shares: Vec<Share> =
        shares.iter().map(|(pack, offset, bytes)| Share { pack: *pack, offset: *offset, bytes: *bytes }).collect();
    let recipe = encode(number, &shares);
    let body = Recipe::decode(&recipe).map_or(Body::Inline(b"no recipe"), Body::Recipe);
    Record { version: b"1", tag_algorithm: 1, tag: b"", checksum: number, body }.encode(key)
}

/// Makes a record's checksum correct, as far as its bytes can be read as a record.
pub fn reseal_record(key: &[u8], bytes: &mut [u8]) {
    record::reseal(key, bytes);
}

/// The number of bytes of the value that a record names, if the bytes are a record of this key.
pub fn decode_record(key: &[u8], bytes: &[u8]) -> Result<u64, String> {
    Record::decode(key, bytes).map(|record| record.value_bytes())
}
