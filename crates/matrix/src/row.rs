//! [`Row`]: one gene's values in all cells, as bytes.
//!
//! ```text
//! 0xE1, flags, cells, non-zeros, bytes of positions, bytes of values[, packed bytes of both], positions, values
//! ```
//! Positions are the gaps between cells that have a value, as LEB128. Counts have one byte each; 255 is an escape, and
//! the remainder (count − 255) follows all these bytes, as LEB128. Values that are no counts are 32-bit floats. With
//! zstd, positions and values are compressed apart, and floats by planes of bytes, since each of these has statistics
//! of its own.

use crate::bytes::{Malformed, Reader, Result, floats, put_varint, unzip, zip};

/// The most cells of a matrix. The description of each takes some 40 bytes of memory at a drive.
pub const CELLS_MAX: usize = 1 << 22;
const TAG: u8 = 0xE1;
const FLOATS: u8 = 1;
const ZSTD: u8 = 2;
const ESCAPE: u8 = 255;
/// The most bytes of a number of 32 bits.
const NUMBER_BYTES_MAX: usize = 5;

/// Whether a row is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Codec {
    /// It is not compressed: for drives with a weak CPU.
    None,
    /// It is compressed by zstd, which takes a third of the bytes and some more CPU time.
    #[default]
    Zstd,
}

/// The values of a row that are not zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values<'a> {
    /// Counts of molecules.
    Counts(&'a [u32]),
    /// Anything else.
    Floats(&'a [f32]),
}

/// A row to encode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row<'a> {
    /// Cells of the matrix.
    pub n_cells: usize,
    /// Positions of the cells that have a value, ascending.
    pub cells: &'a [u32],
    /// Their values, none of them zero.
    pub values: Values<'a>,
}

impl Row<'_> {
    /// The row as bytes. Panics if there are not as many values as cells. Cells that do not ascend give bytes that
    /// cannot be decoded.
    pub fn encode(&self, codec: Codec, out: &mut Vec<u8>) {
        let mut positions = Vec::with_capacity(self.cells.len() * 2);
        let mut next = 0_u32;
        for cell in self.cells {
            put_varint(&mut positions, u64::from(cell.wrapping_sub(next)));
            next = cell.wrapping_add(1);
        }
        let (flag, values, length) = match self.values {
            Values::Counts(counts) => (0, counts_as_bytes(counts), counts.len()),
            Values::Floats(floats) => (FLOATS, floats_as_bytes(floats, codec), floats.len()),
        };
        assert_eq!(self.cells.len(), length, "a value for each cell");
        out.push(TAG);
        out.push(if codec == Codec::Zstd { flag | ZSTD } else { flag });
        for number in [self.n_cells, self.cells.len(), positions.len(), values.len()] {
            put_varint(out, number as u64);
        }
        match codec {
            Codec::None => {
                out.extend_from_slice(&positions);
                out.extend_from_slice(&values);
            }
            Codec::Zstd => {
                let packed = [zip(&positions), zip(&values)];
                packed.iter().for_each(|part| put_varint(out, part.len() as u64));
                packed.iter().for_each(|part| out.extend_from_slice(part));
            }
        }
    }
}

fn counts_as_bytes(counts: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(counts.len() + 8);
    bytes.extend(counts.iter().map(|count| u8::try_from(*count).unwrap_or(ESCAPE)));
    for count in counts.iter().filter(|count| **count >= u32::from(ESCAPE)) {
        put_varint(&mut bytes, u64::from(count - u32::from(ESCAPE)));
    }
    bytes
}

fn floats_as_bytes(floats: &[f32], codec: Codec) -> Vec<u8> {
    match codec {
        Codec::None => floats.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Codec::Zstd => (0..4).flat_map(|plane| floats.iter().map(move |value| value.to_le_bytes()[plane])).collect(),
    }
}

/// A decoded row. A value that is reused for many rows needs no new memory.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    /// Cells of the matrix.
    pub n_cells: usize,
    /// Positions of the cells that have a value, ascending, below `n_cells`.
    pub cells: Vec<u32>,
    /// The values, if they are counts.
    pub counts: Vec<u32>,
    /// The values, if they are not counts.
    pub floats: Vec<f32>,
    positions: Vec<u8>,
    values: Vec<u8>,
}

impl RowBuffer {
    /// The values.
    pub fn values(&self) -> Values<'_> {
        if self.floats.is_empty() { Values::Counts(&self.counts) } else { Values::Floats(&self.floats) }
    }

    /// Decodes a row, and replaces what is in the buffer.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        let what = "a gene's row";
        let mut reader = Reader::new(bytes, what);
        let (tag, flags) = (reader.u8()?, reader.u8()?);
        if tag != TAG || flags & !(FLOATS | ZSTD) != 0 {
            return Err(reader.wrong("is not one, or of a newer release"));
        }
        self.n_cells = reader.bounded(CELLS_MAX, "cells")?;
        let count = reader.bounded(self.n_cells, "values")?;
        let lengths = [reader.bounded(count * NUMBER_BYTES_MAX, "bytes of positions")?, {
            let most = count * (1 + NUMBER_BYTES_MAX);
            reader.bounded(most, "bytes of values")?
        }];
        self.cells.clear();
        self.counts.clear();
        self.floats.clear();
        let (mut positions, mut values) = (std::mem::take(&mut self.positions), std::mem::take(&mut self.values));
        let parts = if flags & ZSTD == 0 {
            let parts = (reader.take(lengths[0])?, reader.take(lengths[1])?);
            reader.end().map(|()| parts)
        } else {
            let packed = [reader.bounded(bytes.len(), "packed bytes")?, reader.bounded(bytes.len(), "packed bytes")?];
            unzip(reader.take(packed[0])?, lengths[0], &mut positions, what)
                .and_then(|()| unzip(reader.take(packed[1])?, lengths[1], &mut values, what))
                .and_then(|()| reader.end())
                .map(|()| (positions.as_slice(), values.as_slice()))
        };
        let decoded = parts.and_then(|(positions, values)| {
            self.decode_positions(positions, count)?;
            if flags & FLOATS == 0 { self.decode_counts(values, count) } else { self.decode_floats(values, count, flags) }
        });
        (self.positions, self.values) = (positions, values);
        decoded
    }

    fn decode_positions(&mut self, mut bytes: &[u8], count: usize) -> Result<()> {
        self.cells.reserve(count);
        // As u64, sums of gaps cannot wrap before they are checked.
        let mut next = 0_u64;
        while self.cells.len() < count {
            // These are eight gaps of one byte each, which most gaps are.
            while let Some((eight, rest)) = bytes.split_first_chunk::<8>()
                && u64::from_le_bytes(*eight) & 0x8080_8080_8080_8080 == 0
                && self.cells.len() + 8 <= count
            {
                let mut cells = [0_u32; 8];
                for (cell, gap) in cells.iter_mut().zip(eight) {
                    let at = next + u64::from(*gap);
                    *cell = at as u32;
                    next = at + 1;
                }
                self.cells.extend_from_slice(&cells);
                bytes = rest;
                if next > self.n_cells as u64 {
                    return Err(Malformed::new("a gene's row has a cell beyond its last"));
                }
            }
            if self.cells.len() < count {
                let at = next + number(&mut bytes)?;
                if at >= self.n_cells as u64 {
                    return Err(Malformed::new("a gene's row has a cell beyond its last"));
                }
                self.cells.push(at as u32);
                next = at + 1;
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(Malformed::new("a gene's row has positions that stand for no value")) }
    }

    fn decode_counts(&mut self, bytes: &[u8], count: usize) -> Result<()> {
        let (small, mut escapes) =
            bytes.split_at_checked(count).ok_or_else(|| Malformed::new("a gene's row has too few counts"))?;
        self.counts.extend(small.iter().map(|count| u32::from(*count)));
        if !escapes.is_empty() {
            for count in self.counts.iter_mut().filter(|count| **count == u32::from(ESCAPE)) {
                let whole = number(&mut escapes)? + u64::from(ESCAPE);
                *count = u32::try_from(whole).map_err(|_| Malformed::new("a gene's row has a count over 32 bits"))?;
            }
        } else if small.contains(&ESCAPE) {
            return Err(Malformed::new("a gene's row lacks the rest of a count"));
        }
        if escapes.is_empty() { Ok(()) } else { Err(Malformed::new("a gene's row has bytes after its counts")) }
    }

    fn decode_floats(&mut self, bytes: &[u8], count: usize, flags: u8) -> Result<()> {
        if bytes.len() != count * 4 {
            return Err(Malformed::new("a gene's row has too few or too many values"));
        }
        if flags & ZSTD == 0 {
            self.floats.extend(floats(bytes));
            return Ok(());
        }
        let (low, high) = bytes.split_at(count * 2);
        let ((a, b), (c, d)) = (low.split_at(count), high.split_at(count));
        let planes = a.iter().zip(b).zip(c.iter().zip(d));
        self.floats.extend(planes.map(|((a, b), (c, d))| f32::from_le_bytes([*a, *b, *c, *d])));
        Ok(())
    }
}

/// Reads a number of at most five bytes from the front.
fn number(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in 0..NUMBER_BYTES_MAX {
        let (byte, rest) = bytes.split_first().ok_or_else(|| Malformed::new("a gene's row ends too early"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * shift);
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed::new("a gene's row has a number of over five bytes"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn encoded(n_cells: usize, cells: &[u32], values: Values<'_>, codec: Codec) -> Vec<u8> {
        let mut bytes = Vec::new();
        Row { n_cells, cells, values }.encode(codec, &mut bytes);
        bytes
    }

    /// Cells with one value each, for gaps of many sizes.
    fn entries() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let gap = prop_oneof![6 => 0_u32..20, 2 => 100..400_u32, 1 => 10_000..70_000_u32];
        let count = prop_oneof![6 => 1_u32..4, 2 => 250..260_u32, 1 => any::<u32>().prop_map(|count| count.max(1))];
        prop::collection::vec((gap, count), 0..100).prop_map(|gaps| {
            let mut next = 0;
            let place = |(gap, count)| {
                let cell = next + gap;
                next = cell + 1;
                (cell, count)
            };
            gaps.into_iter().map(place).collect()
        })
    }

    proptest! {
        #[test]
        fn rows_come_back(entries in entries(), spare in 0_usize..50, zstd: bool, is_float: bool) {
            let codec = if zstd { Codec::Zstd } else { Codec::None };
            let cells: Vec<u32> = entries.iter().map(|(cell, _)| *cell).collect();
            let counts: Vec<u32> = entries.iter().map(|(_, count)| *count).collect();
            let floats: Vec<f32> = counts.iter().map(|count| f32::from_bits(*count)).collect();
            let n_cells = cells.last().map_or(0, |last| *last as usize + 1) + spare;
            let values = if is_float { Values::Floats(&floats) } else { Values::Counts(&counts) };
            let mut row = RowBuffer::default();
            row.decode(&encoded(n_cells, &cells, values, codec)).unwrap();
            prop_assert_eq!((row.n_cells, &row.cells), (n_cells, &cells));
            match row.values() {
                Values::Counts(back) if !is_float || back.is_empty() => prop_assert_eq!(back, if is_float { &[] } else { &counts[..] }),
                Values::Floats(back) if is_float => {
                    prop_assert!(back.iter().map(|value| value.to_bits()).eq(counts.iter().copied()));
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }

        #[test]
        fn hostile_bytes_end_in_an_error_or_a_row_in_order(
            entries in entries(), zstd: bool, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut: prop::sample::Index
        ) {
            let cells: Vec<u32> = entries.iter().map(|(cell, _)| *cell).collect();
            let counts: Vec<u32> = entries.iter().map(|(_, count)| *count).collect();
            let n_cells = cells.last().map_or(0, |last| *last as usize + 1);
            let mut bytes = encoded(n_cells, &cells, Values::Counts(&counts), if zstd { Codec::Zstd } else { Codec::None });
            for (place, byte) in flips {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
                let mut row = RowBuffer::default();
                if row.decode(bytes).is_ok() {
                    prop_assert!(row.cells.is_sorted_by(|a, b| a < b));
                    prop_assert!(row.cells.last().is_none_or(|last| (*last as usize) < row.n_cells));
                    prop_assert_eq!(row.cells.len(), row.counts.len() + row.floats.len());
                }
            }
        }
    }

    #[test]
    fn a_count_takes_two_bytes() {
        let cells: Vec<u32> = (0..1_000).map(|i| i * 14).collect();
        let counts = vec![1; 1_000];
        let plain = encoded(14_000, &cells, Values::Counts(&counts), Codec::None);
        assert!(plain.len() < 2_020, "{}", plain.len());
    }
}
