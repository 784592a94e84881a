//! [`Partials`]: what Accumulate gives for one gene, group by group, and how two of them make one (Combine; Montana et
//! al. 2023, section 6).
//!
//! ```text
//! 0xE2, flags, groups, then for each: cells, non-zeros, and if there are any: mean, M2[, sum of expm1]
//! ```

use crate::bytes::{Reader, Result, put_f64, put_varint};
use crate::cells::GROUPS_MAX;

pub(crate) const TAG: u8 = 0xE2;
const SUM_EXPM1: u8 = 1;

/// Summary statistics of one gene in one group of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// The number of cells.
    pub n: u64,
    /// The number of cells whose value is not zero.
    pub nonzeros: u64,
    /// Mean of the values.
    pub mean: f64,
    /// Sum of squared distances from the mean.
    pub m2: f64,
    /// Sum of `expm1(value)`; 0 if it was not requested.
    pub sum_expm1: f64,
}

impl Moments {
    /// The moments of both sets of cells together, by the formula of Chan et al. 1979, "Updating formulae and a
    /// pairwise algorithm for computing sample variances".
    pub fn merge(self, other: Moments) -> Moments {
        if self.n == 0 || other.n == 0 {
            return if self.n == 0 { other } else { self };
        }
        let (own, others) = (self.n as f64, other.n as f64);
        let all = own + others;
        let distance = other.mean - self.mean;
        Moments {
            n: self.n + other.n,
            nonzeros: self.nonzeros + other.nonzeros,
            mean: self.mean + distance * (others / all),
            m2: self.m2 + other.m2 + distance * distance * (own * others / all),
            sum_expm1: self.sum_expm1 + other.sum_expm1,
        }
    }

    /// The variance of a sample. For one cell it is NaN, as in numpy.
    pub fn variance(&self) -> f64 {
        self.m2 / (self.n as f64 - 1.0)
    }
}

/// The moments of one gene in all groups and, last, in the cells of no group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partials {
    /// The moments, by group.
    pub groups: Vec<Moments>,
    /// Whether they have sums of `expm1`.
    pub has_expm1: bool,
}

impl Partials {
    /// The moments as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend([TAG, if self.has_expm1 { SUM_EXPM1 } else { 0 }]);
        put_varint(out, self.groups.len() as u64);
        for moments in &self.groups {
            put_varint(out, moments.n);
            put_varint(out, moments.nonzeros);
            if moments.nonzeros > 0 {
                put_f64(out, moments.mean);
                put_f64(out, moments.m2);
                if self.has_expm1 {
                    put_f64(out, moments.sum_expm1);
                }
            }
        }
    }

    /// Decodes the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Partials> {
        let mut reader = Reader::new(bytes, "partials");
        let (tag, flags) = (reader.u8()?, reader.u8()?);
        if tag != TAG || flags & !SUM_EXPM1 != 0 {
            return Err(reader.wrong("are expected, as accumulate() gives them"));
        }
        let has_expm1 = flags & SUM_EXPM1 != 0;
        let groups = reader.bounded(GROUPS_MAX + 1, "groups")?;
        let groups = (0..groups).map(|_| moments(&mut reader, has_expm1)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(Partials { groups, has_expm1 })
    }

    /// Adds the moments of other cells.
    pub(crate) fn merge(&mut self, other: &Partials) -> Result<()> {
        if self.groups.len() != other.groups.len() || self.has_expm1 != other.has_expm1 {
            let reader = Reader::new(&[], "partials");
            return Err(reader.wrong(&format!(
                "of {} and of {} groups cannot be combined",
                self.groups.len(),
                other.groups.len()
            )));
        }
        for (own, other) in self.groups.iter_mut().zip(&other.groups) {
            *own = own.merge(*other);
        }
        Ok(())
    }
}

fn moments(reader: &mut Reader<'_>, has_expm1: bool) -> Result<Moments> {
    // The numbers of cells are far too small for their sums to wrap.
    const MOST: usize = 1 << 48;
    let n = reader.bounded(MOST, "cells")? as u64;
    let nonzeros = reader.bounded(n as usize, "non-zeros")? as u64;
    let mut moments = Moments { n, nonzeros, ..Moments::default() };
    if nonzeros > 0 {
        moments.mean = reader.f64()?;
        moments.m2 = reader.f64()?;
        moments.sum_expm1 = if has_expm1 { reader.f64()? } else { 0.0 };
    }
    Ok(moments)
}
