//! [`RankSums`]: the sums of ranks that the rank sum test needs (Wilcoxon 1945), for one gene in every group. A row
//! holds the gene's values in all cells, so the ranks are exact.
//!
//! ```text
//! 0xE4, against (0 rest, 1 a reference), groups, then for each: cells, rank sum, ties; against a reference: its cells
//! ```

use crate::bytes::{Reader, Result, put_f64, put_varint};
use crate::cells::{Cells, GROUPS_MAX};
use crate::row::RowBuffer;

pub(crate) const TAG: u8 = 0xE4;

/// A group's ranks among its own cells and the cells that it is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupRanks {
    /// The number of cells of the group.
    pub n: u64,
    /// The number of cells that it is compared with.
    pub others: u64,
    /// Sum of its ranks; equal values share the mean of their ranks.
    pub rank_sum: f64,
    /// Sum of t³ − t over runs of t equal values.
    pub ties: f64,
}

/// The ranks of one gene in every group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranks {
    /// The sums of ranks, by group.
    pub groups: Vec<GroupRanks>,
}

impl Ranks {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(TAG);
        put_varint(out, self.groups.len() as u64);
        for group in &self.groups {
            put_varint(out, group.n);
            put_varint(out, group.others);
            put_f64(out, group.rank_sum);
            put_f64(out, group.ties);
        }
    }

    /// Decodes the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Ranks> {
        let mut reader = Reader::new(bytes, "sums of ranks");
        if reader.u8()? != TAG {
            return Err(reader.wrong("are expected, as rank_sums() gives them"));
        }
        let count = reader.bounded(GROUPS_MAX, "groups")?;
        let mut group = || {
            let (n, others) = (reader.varint()?, reader.varint()?);
            Ok(GroupRanks { n, others, rank_sum: reader.f64()?, ties: reader.f64()? })
        };
        let groups = (0..count).map(|_| group()).collect::<Result<_>>()?;
        reader.end()?;
        Ok(Ranks { groups })
    }
}

/// Turns rows into sums of ranks. A value that is reused for many rows needs no new memory.
#[derive(Debug, Default)]
pub struct RankSums {
    row: RowBuffer,
    values: Vec<f32>,
    /// Value and code of each cell, so that they sort by value.
    keys: Vec<u64>,
    zeros: Vec<u64>,
    block: Vec<(usize, u64)>,
    tally: Vec<u64>,
}

impl RankSums {
    /// Appends the gene's ranks to `out`, as bytes. NaN ranks above all numbers.
    pub fn row(&mut self, bytes: &[u8], cells: &Cells, out: &mut Vec<u8>) -> Result<()> {
        self.row.decode(bytes)?;
        cells.check(self.row.n_cells)?;
        cells.transform.apply(&self.row.cells, self.row.values(), &mut self.values);
        self.zeros.clear();
        self.zeros.extend_from_slice(&cells.sizes);
        self.keys.clear();
        for (cell, value) in self.row.cells.iter().zip(&self.values) {
            let code = cells.codes[*cell as usize];
            // A transformed value may be zero, and is then one of the zeros.
            if let Some(zeros) = self.zeros.get_mut(usize::from(code)).filter(|_| *value != 0.0) {
                *zeros -= 1;
                self.keys.push(u64::from(ordered(*value)) << 16 | u64::from(code));
            }
        }
        self.keys.sort_unstable();
        let mut tables = Tables::new(cells);
        self.tally.clear();
        self.tally.resize(cells.n_groups + 1, 0);
        let zero = u64::from(ordered(0.0)) << 16;
        let split = self.keys.partition_point(|key| *key < zero);
        let (below, above) = self.keys.split_at(split);
        walk(below, &mut self.tally, &mut self.block, &mut tables);
        self.block.clear();
        self.block.extend(self.zeros.iter().copied().enumerate().filter(|(_, count)| *count > 0));
        tables.block(&self.block);
        walk(above, &mut self.tally, &mut self.block, &mut tables);
        tables.finish(cells).encode(out);
        Ok(())
    }
}

/// Hands on runs of equal values, as the number of cells of each code.
fn walk(keys: &[u64], tally: &mut [u64], block: &mut Vec<(usize, u64)>, tables: &mut Tables) {
    for run in keys.chunk_by(|a, b| a >> 16 == b >> 16) {
        block.clear();
        for key in run {
            let code = (key & 0xffff) as usize;
            if tally[code] == 0 {
                block.push((code, 0));
            }
            tally[code] += 1;
        }
        for (code, count) in block.iter_mut() {
            *count = std::mem::take(&mut tally[*code]);
        }
        tables.block(block);
    }
}

/// A number with the same order as the float.
fn ordered(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() {
        u32::MAX
    } else if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// Sums over runs of equal values, in ascending order.
struct Tables {
    reference: Option<usize>,
    /// By group: the rank sum against the rest; against a reference, the number of its smaller cells, where equal ones
    /// count a half.
    sums: Vec<f64>,
    /// The number of cells so far: of all cells, or of the reference.
    below: u64,
    /// The sum of t³ − t over all runs: of all cells, or of the reference.
    ties: f64,
    /// By group, what it adds to the ties of the reference.
    more_ties: Vec<f64>,
}

impl Tables {
    fn new(cells: &Cells) -> Self {
        let groups = cells.n_groups + 1;
        Self { reference: cells.reference, sums: vec![0.0; groups], below: 0, ties: 0.0, more_ties: vec![0.0; groups] }
    }

    fn block(&mut self, block: &[(usize, u64)]) {
        match self.reference {
            None => {
                let size: u64 = block.iter().map(|(_, count)| count).sum();
                let rank = self.below as f64 + (size as f64 + 1.0) / 2.0;
                block.iter().for_each(|(code, count)| self.sums[*code] += *count as f64 * rank);
                self.ties += ties(size);
                self.below += size;
            }
            Some(reference) => {
                let own = block.iter().find(|(code, _)| *code == reference).map_or(0, |(_, count)| *count);
                let smaller = self.below as f64 + own as f64 / 2.0;
                for (code, count) in block.iter().filter(|(code, _)| *code != reference) {
                    self.sums[*code] += *count as f64 * smaller;
                    self.more_ties[*code] += ties(own + count) - ties(own);
                }
                self.ties += ties(own);
                self.below += own;
            }
        }
    }

    fn finish(self, cells: &Cells) -> Ranks {
        let all = cells.counting();
        let group = |group: usize| {
            let n = cells.sizes[group];
            match self.reference {
                None => GroupRanks { n, others: all - n, rank_sum: self.sums[group], ties: self.ties },
                Some(reference) => {
                    let own = n as f64 * (n as f64 + 1.0) / 2.0;
                    let (others, ties) = (cells.sizes[reference], self.ties + self.more_ties[group]);
                    GroupRanks { n, others, rank_sum: self.sums[group] + own, ties }
                }
            }
        };
        Ranks { groups: (0..cells.n_groups).map(group).collect() }
    }
}

fn ties(run: u64) -> f64 {
    let run = run as f64;
    run * run * run - run
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::CellsSpec;
    use crate::row::tests::encoded;
    use crate::row::{Codec, Values};
    use proptest::prelude::*;

    /// By definition, a rank is one more than the number of smaller values, plus half of the other equal ones.
    fn brute(own: &[f32], others: &[f32]) -> (f64, f64) {
        let all: Vec<f32> = own.iter().chain(others).copied().collect();
        let rank = |value: &f32| {
            let smaller = all.iter().filter(|other| *other < value).count() as f64;
            let equal = all.iter().filter(|other| *other == value).count() as f64;
            smaller + (equal + 1.0) / 2.0
        };
        let ties = all.iter().map(|value| (all.iter().filter(|other| *other == value).count() as f64).powi(2) - 1.0).sum();
        (own.iter().map(rank).sum(), ties)
    }

    proptest! {
        #[test]
        fn ranks_are_those_by_definition(
            entries in prop::collection::vec((0_u16..5, prop_oneof![Just(0.0_f32), (-3_i8..4).prop_map(f32::from), -2.0_f32..2.0]), 1..40),
            reference in prop::option::of(0_usize..3),
        ) {
            let codes: Vec<u16> = entries.iter().map(|(code, _)| *code).collect();
            let (at, floats): (Vec<u32>, Vec<f32>) = (0_u32..).zip(&entries).filter(|(_, entry)| entry.1 != 0.0).map(|(cell, entry)| (cell, entry.1)).unzip();
            let spec = CellsSpec { n_cells: entries.len(), n_groups: 3, codes, reference, ..CellsSpec::default() };
            let mut out = Vec::new();
            let row = encoded(entries.len(), &at, Values::Floats(&floats), Codec::None);
            RankSums::default().row(&row, &Cells::decode(&spec.encode().unwrap()).unwrap(), &mut out).unwrap();
            let ranks = Ranks::decode(&out).unwrap();
            for group in (0..3_u16).filter(|group| Some(usize::from(*group)) != reference) {
                let of = |want: &dyn Fn(u16) -> bool| -> Vec<f32> { entries.iter().filter(|entry| want(entry.0)).map(|entry| entry.1).collect() };
                let own = of(&|code| code == group);
                let others = of(&|code| reference.map_or(code <= 3 && code != group, |reference| usize::from(code) == reference));
                let found = ranks.groups[usize::from(group)];
                prop_assert_eq!((found.n, found.others), (own.len() as u64, others.len() as u64));
                prop_assert_eq!((found.rank_sum, found.ties), brute(&own, &others));
            }
        }
    }
}
