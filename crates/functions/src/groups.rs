//! Code that is common to the accumulators of many groups.

use arrow::array::{Array, BooleanArray, BooleanBufferBuilder, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::ArrowPrimitiveType;
use datafusion::logical_expr::EmitTo;

/// The rows that count: those that are not NULL and pass the filter. None: all rows count.
pub(crate) fn valid_rows<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    filter: Option<&BooleanArray>,
) -> Option<NullBuffer> {
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    let kept = filter.map(|filter| match filter.nulls() {
        Some(nulls) => NullBuffer::new(filter.values() & nulls.inner()),
        None => NullBuffer::new(filter.values().clone()),
    });
    NullBuffer::union(nulls, kept.as_ref())
}

/// The groups that have had a value. The result of a group is NULL until it has one.
pub(crate) enum GroupValidity {
    /// All groups of this many.
    All(usize),
    Some(BooleanBufferBuilder),
}

impl GroupValidity {
    /// Notes that every row of these groups has a value. A new group always comes with a row.
    pub(crate) fn all(&mut self, group_indices: &[usize], groups: usize) {
        match self {
            GroupValidity::All(count) => *count = groups,
            GroupValidity::Some(bits) => {
                bits.append_n(groups.saturating_sub(bits.len()), false);
                for group in group_indices {
                    bits.set_bit(*group, true);
                }
            }
        }
    }

    /// The bits of this many groups, which the caller puts back.
    pub(crate) fn take_some(&mut self, groups: usize) -> BooleanBufferBuilder {
        let mut bits = match std::mem::replace(self, GroupValidity::All(0)) {
            GroupValidity::Some(bits) => bits,
            GroupValidity::All(count) => {
                let mut bits = BooleanBufferBuilder::new(groups);
                bits.append_n(count, true);
                bits
            }
        };
        bits.append_n(groups.saturating_sub(bits.len()), false);
        bits
    }

    /// Which of the groups that are handed on have a value; none: all.
    pub(crate) fn emit(&mut self, emit_to: EmitTo) -> Option<NullBuffer> {
        let mut bits = match (&mut *self, emit_to) {
            (GroupValidity::All(count), EmitTo::All) => {
                *count = 0;
                return None;
            }
            (GroupValidity::All(count), EmitTo::First(n)) => {
                *count = count.saturating_sub(n);
                return None;
            }
            (GroupValidity::Some(_), _) => self.take_some(0),
        };
        let bits = bits.finish();
        let EmitTo::First(n) = emit_to else { return Some(NullBuffer::new(bits)) };
        let mut rest = BooleanBufferBuilder::new(bits.len() - n);
        rest.append_buffer(&bits.slice(n, bits.len() - n));
        *self = GroupValidity::Some(rest);
        Some(NullBuffer::new(bits.slice(0, n)))
    }

    /// The bytes that it uses besides its own struct.
    pub(crate) fn size(&self) -> usize {
        match self {
            GroupValidity::All(_) => 0,
            GroupValidity::Some(bits) => bits.capacity() / 8,
        }
    }
}
