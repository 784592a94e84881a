//! [`merge`], the function Combine of MSG Express (Montana et al. 2023, section 6): two results of the same kind make
//! one.

use crate::bytes::{Malformed, Reader, Result, put_varint};
use crate::gram::GramResult;
use crate::sums::CellTotals;
use crate::{gram, partials, ranks, sums};

/// Combines two results of `accumulate`, `cell_sums` or `gram`, each over other genes or other cells. The result
/// replaces the first.
pub fn merge(own: &mut Vec<u8>, other: &[u8]) -> Result<()> {
    let (Some(tag), Some(other_tag)) = (own.first(), other.first()) else {
        return Err(Malformed::new("combine() met empty bytes"));
    };
    if tag != other_tag {
        return Err(Malformed::new("combine() met results of different functions"));
    }
    match *tag {
        partials::TAG => {
            let mut merged = crate::Partials::decode(own)?;
            merged.merge(&crate::Partials::decode(other)?)?;
            own.clear();
            merged.encode(own);
            Ok(())
        }
        sums::TAG => {
            let (mut merged, other) = (CellTotals::decode(own)?, CellTotals::decode(other)?);
            add(&mut merged.sums, &other.sums)?;
            add(&mut merged.nonzeros, &other.nonzeros)?;
            own.clear();
            merged.encode(own);
            Ok(())
        }
        gram::TAG => {
            let (mut merged, other) = (GramResult::decode(own)?, GramResult::decode(other)?);
            add(&mut merged.values, &other.values)?;
            own.clear();
            merged.encode(own);
            Ok(())
        }
        ranks::TAG => Err(Malformed::new(
            "a gene is there twice, and ranks of parts of its cells cannot be combined; Wilcoxon's test runs on one dataset at a time",
        )),
        _ => Err(Malformed::new("combine() takes what accumulate(), cell_sums() and gram() give")),
    }
}

fn add(own: &mut [f64], other: &[f64]) -> Result<()> {
    if own.len() != other.len() {
        return Err(Malformed::new(format!("combine() met results of {} and of {} values", own.len(), other.len())));
    }
    own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
    Ok(())
}

pub(crate) fn put_head(out: &mut Vec<u8>, tag: u8, numbers: &[usize]) {
    out.push(tag);
    numbers.iter().for_each(|number| put_varint(out, *number as u64));
}

pub(crate) fn array(reader: &mut Reader<'_>, length: usize) -> Result<Vec<f64>> {
    let bytes = length.checked_mul(8).ok_or_else(|| reader.wrong("is too long"))?;
    let eight = |eight: &[u8]| f64::from_le_bytes(std::array::from_fn(|i| eight[i]));
    Ok(reader.take(bytes)?.chunks_exact(8).map(eight).collect())
}
