//! Reading and writing whole numbers and floats in bytes, with every length checked.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

/// An error: which bytes are malformed, and in what way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Malformed>;

/// Reads from the front of bytes. `what` names them in errors.
pub(crate) struct Reader<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { left: bytes, what }
    }

    pub(crate) fn wrong(&self, how: &str) -> Malformed {
        Malformed(format!("{} {how}", self.what))
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.left.split_at_checked(length).ok_or_else(|| self.wrong("ends too early"))?;
        self.left = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| self.wrong("ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array()?))
    }

    /// A number in groups of seven bits, the least significant first (LEB128).
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.wrong("has a number of over 64 bits"))
    }

    /// A number that may not be above `max`.
    pub(crate) fn bounded(&mut self, max: usize, name: &str) -> Result<usize> {
        let value = self.varint()?;
        match usize::try_from(value) {
            Ok(value) if value <= max => Ok(value),
            _ => Err(self.wrong(&format!("has {value} {name}; at most {max} are allowed"))),
        }
    }

    /// All bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.left
    }

    /// Refuses bytes after the expected end.
    pub(crate) fn end(self) -> Result<()> {
        if self.left.is_empty() { Ok(()) } else { Err(self.wrong("has bytes after its end")) }
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_f64(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// The level of zstd. At higher levels, entropy-coded gaps and codes get no smaller.
const LEVEL: i32 = 1;

thread_local! {
    // Making a context takes longer than handling a small row.
    static UNPACK: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    static PACK: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses bytes.
pub(crate) fn zip(bytes: &[u8]) -> Vec<u8> {
    let packed = PACK.with_borrow_mut(|pack| match pack {
        Some(pack) => pack.compress(bytes),
        None => pack.insert(Compressor::new(LEVEL)?).compress(bytes),
    });
    // Compression into a buffer with enough room cannot fail.
    packed.unwrap_or_default()
}

/// Decompresses exactly `length` bytes into `out`, and replaces what `out` has.
pub(crate) fn unzip(packed: &[u8], length: usize, out: &mut Vec<u8>, what: &'static str) -> Result<()> {
    out.clear();
    out.reserve(length);
    let written = UNPACK.with_borrow_mut(|unpack| match unpack {
        Some(unpack) => unpack.decompress_to_buffer(packed, out),
        None => unpack.insert(Decompressor::new()?).decompress_to_buffer(packed, out),
    });
    match written {
        Ok(written) if written == length => Ok(()),
        Ok(written) => Err(Malformed(format!("{what} holds {written} bytes, not {length}"))),
        Err(error) => Err(Malformed(format!("{what} cannot be decompressed: {error}"))),
    }
}

/// Floats of 32 bits, little-endian.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_size_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Reader::new(&bytes, "it").varint().unwrap(), value);
        }
        assert!(Reader::new(&[0xff; 11], "it").varint().is_err());
        assert!(Reader::new(&[0x80], "it").varint().is_err());
    }
}
