//! [`Cells`]: what a computation must know of the cells, as bytes that travel in a sub-plan.
//!
//! ```text
//! 0xE3, checksum (xxh3 of the rest), flags, cells, groups, reference + 1, columns of the basis, target sum, base, packed codes, packed totals, basis
//! ```
//! The checksum comes first: a plan printed as text shows the first bytes of a literal, and two plans must not look
//! alike.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::{Malformed, Reader, Result, floats, put_f64, put_varint, unzip, zip};
use crate::row::CELLS_MAX;
use crate::transform::Transform;

const TAG: u8 = 0xE3;
const LOG1P: u8 = 1;
const SCALED: u8 = 2;
const SUM_EXPM1: u8 = 4;
const CENTERED: u8 = 8;
const UNIT_VARIANCE: u8 = 16;
const BASED: u8 = 32;

/// The most groups.
pub const GROUPS_MAX: usize = 60_000;
/// The most columns of a basis.
pub(crate) const COLUMNS_MAX: usize = 4_096;
/// The most numbers of a basis, and of a product with one.
pub(crate) const BASIS_MAX: usize = 1 << 23;

/// The description of the cells, as a program gives it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellsSpec {
    /// Cells of the matrix.
    pub n_cells: usize,
    /// Number of groups.
    pub n_groups: usize,
    /// Each cell's group. `n_groups`: the cell is in no group, but counts as "rest"; above: it does not count at all.
    /// Empty: all cells are in no group.
    pub codes: Vec<u16>,
    /// Each cell's sum of counts, by which its values are divided; empty: they are not divided.
    pub totals: Vec<f64>,
    /// The sum to which the values of a cell are scaled, with `totals`.
    pub target_sum: f64,
    /// Whether values are `ln(1 + value)`.
    pub log1p: bool,
    /// The base of that logarithm; none: e.
    pub base: Option<f64>,
    /// Whether partials have sums of `expm1(value)`, too.
    pub sum_expm1: bool,
    /// The group that others are compared with, for ranks; none: the rest.
    pub reference: Option<usize>,
    /// Whether a gene's mean is subtracted, for Gram matrices.
    pub centered: bool,
    /// Whether genes are scaled to unit variance, for Gram matrices.
    pub unit_variance: bool,
    /// A matrix of `n_cells` rows by which a Gram matrix is multiplied, row by row; empty: none.
    pub basis: Vec<f32>,
}

impl CellsSpec {
    /// The description as bytes. The error says what is wrong with it.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let mut body = vec![
            flag(self.log1p, LOG1P)
                | flag(!self.totals.is_empty(), SCALED)
                | flag(self.sum_expm1, SUM_EXPM1)
                | flag(self.centered, CENTERED)
                | flag(self.unit_variance, UNIT_VARIANCE)
                | flag(self.base.is_some(), BASED),
        ];
        put_varint(&mut body, self.n_cells as u64);
        put_varint(&mut body, self.n_groups as u64);
        put_varint(&mut body, self.reference.map_or(0, |group| group as u64 + 1));
        put_varint(&mut body, self.basis.len().checked_div(self.n_cells).unwrap_or(0) as u64);
        put_f64(&mut body, self.target_sum);
        put_f64(&mut body, self.base.unwrap_or(0.0));
        // Low bytes and high bytes are stored apart: with few groups, the latter are all alike.
        let codes = if self.codes.is_empty() { vec![self.n_groups as u16; self.n_cells] } else { self.codes.clone() };
        let planes = codes.iter().map(|code| *code as u8).chain(codes.iter().map(|code| (code >> 8) as u8));
        put_packed(&mut body, &planes.collect::<Vec<u8>>());
        let totals = self.totals.iter().map(|total| total.to_le_bytes());
        let planes: Vec<[u8; 8]> = totals.collect();
        put_packed(&mut body, &(0..8).flat_map(|plane| planes.iter().map(move |bytes| bytes[plane])).collect::<Vec<u8>>());
        body.extend(self.basis.iter().flat_map(|value| value.to_le_bytes()));
        let mut bytes = vec![TAG];
        bytes.extend_from_slice(&xxh3_64(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Malformed::new(what));
        if self.n_cells > CELLS_MAX {
            return wrong(format!("{} cells; at most {CELLS_MAX} are allowed", self.n_cells));
        }
        if self.n_groups > GROUPS_MAX {
            return wrong(format!("{} groups; at most {GROUPS_MAX} are allowed", self.n_groups));
        }
        let fits = |length: usize| length == 0 || length == self.n_cells;
        if !fits(self.codes.len()) || !fits(self.totals.len()) {
            return wrong(format!(
                "expected a group and a total for each of {} cells, got {} and {}",
                self.n_cells,
                self.codes.len(),
                self.totals.len()
            ));
        }
        if self.reference.is_some_and(|group| group >= self.n_groups) {
            return wrong("the reference is none of the groups".into());
        }
        if !self.basis.len().is_multiple_of(self.n_cells) {
            return wrong("a basis needs a row for each cell".into());
        }
        let is_scale = self.target_sum.is_finite() && self.target_sum > 0.0;
        if !self.totals.is_empty() && !is_scale {
            return wrong(format!("expected a target sum above 0, got {}", self.target_sum));
        }
        match self.base {
            Some(base) if !(base.is_finite() && base > 0.0 && base != 1.0) => {
                wrong(format!("expected a base above 0 and other than 1, got {base}"))
            }
            _ => Ok(()),
        }
    }
}

fn put_packed(out: &mut Vec<u8>, bytes: &[u8]) {
    let packed = zip(bytes);
    put_varint(out, packed.len() as u64);
    out.extend_from_slice(&packed);
}

/// The description of the cells, as a computation uses it.
#[derive(Clone, Debug)]
pub struct Cells {
    /// Cells of the matrix.
    pub n_cells: usize,
    /// Number of groups.
    pub n_groups: usize,
    /// Each cell's group: below `n_groups`; `n_groups`: in no group; `n_groups + 1`: the cell does not count.
    pub codes: Vec<u16>,
    /// The number of cells of each group, then of those in no group.
    pub sizes: Vec<u64>,
    /// The group that others are compared with; none: the rest.
    pub reference: Option<usize>,
    /// Whether partials have sums of `expm1(value)`.
    pub sum_expm1: bool,
    /// Whether a gene's mean is subtracted.
    pub centered: bool,
    /// Whether genes are scaled to unit variance.
    pub unit_variance: bool,
    /// The number of each counting cell among the counting cells; `u32::MAX`: the cell does not count.
    pub numbers: Vec<u32>,
    /// Columns of the basis.
    pub columns: usize,
    /// The basis, row by row, with a row for each cell.
    pub basis: Vec<f32>,
    /// Sums of its columns, over the cells that count.
    pub(crate) column_sums: Vec<f64>,
    pub(crate) transform: Transform,
}

impl Cells {
    /// Decodes the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Cells> {
        let what = "a description of cells";
        let mut reader = Reader::new(bytes, what);
        let (tag, checksum) = (reader.u8()?, reader.u64()?);
        let body = reader.take(bytes.len() - 9)?;
        if tag != TAG || xxh3_64(body) != checksum {
            return Err(Malformed::new("a description of cells is damaged, or is none"));
        }
        let mut reader = Reader::new(body, what);
        let flags = reader.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let n_cells = reader.bounded(CELLS_MAX, "cells")?;
        let n_groups = reader.bounded(GROUPS_MAX, "groups")?;
        let reference = reader.bounded(n_groups, "as reference")?.checked_sub(1);
        let columns = reader.bounded(COLUMNS_MAX, "columns of a basis")?;
        let (target_sum, base) = (reader.f64()?, reader.f64()?);
        let codes = codes(&mut reader, n_cells, n_groups)?;
        let totals = totals(&mut reader, if has(SCALED) { n_cells } else { 0 })?;
        if n_cells * columns > BASIS_MAX {
            return Err(reader.wrong("has too large a basis"));
        }
        let basis: Vec<f32> = floats(reader.take(n_cells * columns * 4)?).collect();
        reader.end()?;
        let mut sizes = vec![0; n_groups + 2];
        codes.iter().for_each(|code| sizes[usize::from(*code)] += 1);
        sizes.truncate(n_groups + 1);
        let mut next = 0;
        let number = |code: &u16| {
            let counts = usize::from(*code) <= n_groups;
            next += u32::from(counts);
            if counts { next - 1 } else { u32::MAX }
        };
        let numbers: Vec<u32> = codes.iter().map(number).collect();
        let column_sums = column_sums(&basis, columns, &numbers);
        let transform = Transform::new(&totals, target_sum, has(LOG1P), has(BASED).then_some(base));
        let (sum_expm1, centered, unit_variance) = (has(SUM_EXPM1), has(CENTERED), has(UNIT_VARIANCE));
        Ok(Cells {
            n_cells,
            n_groups,
            codes,
            sizes,
            reference,
            sum_expm1,
            centered,
            unit_variance,
            numbers,
            columns,
            basis,
            column_sums,
            transform,
        })
    }

    /// The number of cells that count.
    pub fn counting(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// Refuses a row of another matrix.
    pub(crate) fn check(&self, n_cells: usize) -> Result<()> {
        if n_cells == self.n_cells {
            return Ok(());
        }
        Err(Malformed::new(format!("a gene's row has {n_cells} cells, and {} cells are described", self.n_cells)))
    }
}

fn codes(reader: &mut Reader<'_>, n_cells: usize, n_groups: usize) -> Result<Vec<u16>> {
    let planes = packed(reader, n_cells * 2)?;
    let (low, high) = planes.split_at(n_cells);
    let code = |(low, high): (&u8, &u8)| u16::from_le_bytes([*low, *high]).min(n_groups as u16 + 1);
    Ok(low.iter().zip(high).map(code).collect())
}

fn totals(reader: &mut Reader<'_>, n_cells: usize) -> Result<Vec<f64>> {
    let planes = packed(reader, n_cells * 8)?;
    let total = |cell: usize| f64::from_le_bytes(std::array::from_fn(|plane| planes[plane * n_cells + cell]));
    Ok((0..n_cells).map(total).collect())
}

fn column_sums(basis: &[f32], columns: usize, numbers: &[u32]) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    let counting = basis.chunks_exact(columns.max(1)).zip(numbers).filter(|(_, number)| **number != u32::MAX);
    counting.for_each(|(row, _)| sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(*value)));
    sums
}

fn packed(reader: &mut Reader<'_>, length: usize) -> Result<Vec<u8>> {
    let packed = reader.bounded(length + 1_024, "packed bytes")?;
    let packed = reader.take(packed)?;
    let mut bytes = Vec::new();
    unzip(packed, length, &mut bytes, "a description of cells")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cells_come_back(codes in prop::collection::vec(0_u16..6, 0..50), totals in prop::collection::vec(0.0_f64..1e6, 50), scaled: bool) {
            let n_cells = codes.len();
            let spec = CellsSpec {
                n_cells, n_groups: 4, codes: codes.clone(), target_sum: 1e4,
                totals: if scaled { totals[..n_cells].to_vec() } else { vec![] },
                reference: Some(2), basis: vec![0.5; n_cells * 3], ..CellsSpec::default()
            };
            let cells = Cells::decode(&spec.encode().unwrap()).unwrap();
            prop_assert_eq!(&cells.codes, &codes);
            prop_assert_eq!((cells.n_groups, cells.reference), (4, Some(2)));
            prop_assert_eq!(cells.counting(), codes.iter().filter(|code| **code <= 4).count() as u64);
            prop_assert_eq!(cells.basis, spec.basis);
        }

        #[test]
        fn any_changed_byte_is_noticed(place: prop::sample::Index, byte: u8) {
            let spec = CellsSpec { n_cells: 9, n_groups: 2, codes: vec![0, 1, 2, 3, 0, 1, 2, 3, 9], ..CellsSpec::default() };
            let mut bytes = spec.encode().unwrap();
            let place = place.index(bytes.len());
            prop_assume!(bytes[place] != byte);
            bytes[place] = byte;
            prop_assert!(Cells::decode(&bytes).is_err());
            prop_assert!(Cells::decode(&bytes[..place]).is_err());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = CellsSpec { n_cells: 2, n_groups: 1, ..CellsSpec::default() };
        for bad in [
            CellsSpec { codes: vec![0], ..good.clone() },
            CellsSpec { reference: Some(1), ..good.clone() },
            CellsSpec { totals: vec![1.0, 2.0], ..good.clone() },
            CellsSpec { basis: vec![1.0; 3], ..good.clone() },
            CellsSpec { base: Some(1.0), ..good.clone() },
            CellsSpec { n_groups: GROUPS_MAX + 1, ..good.clone() },
        ] {
            assert!(bad.encode().is_err(), "{bad:?}");
        }
        assert!(good.encode().is_ok());
    }
}
