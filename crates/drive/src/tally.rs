//! [`Tally`]: what rounds did, summed up until an annotation says so.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use pithead_exec::RoundStats;

/// What one or several rounds did.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) slices: Vec<u32>,
    pub(crate) slices_skipped: u32,
    pub(crate) pages_read: u64,
    pub(crate) pages_skipped: u64,
    pub(crate) rows_in: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

impl Tally {
    pub(crate) fn of(stats: RoundStats, cpu_ns: u64, wall_ns: u64) -> Self {
        Self {
            slices: stats.slices,
            slices_skipped: stats.slices_skipped,
            pages_read: stats.pages_read,
            pages_skipped: stats.pages_skipped,
            rows_in: stats.rows_in,
            medium_bytes: stats.medium_bytes,
            cpu_ns,
            wall_ns,
        }
    }

    /// Adds what another round did, side by side or before.
    pub(crate) fn add(&mut self, other: Tally) {
        self.slices.extend(other.slices);
        self.slices_skipped += other.slices_skipped;
        self.pages_read += other.pages_read;
        self.pages_skipped += other.pages_skipped;
        self.rows_in += other.rows_in;
        self.medium_bytes += other.medium_bytes;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns = self.wall_ns.max(other.wall_ns);
    }
}

/// Bytes that a batch's rows take as Arrow buffers, whatever else the buffers hold.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| array_bytes(column)).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    let fixed = array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_buffer_memory_size());
    match array.data_type() {
        DataType::Utf8View => fixed + array.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => fixed + array.as_binary_view().total_buffer_bytes_used(),
        _ => fixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use std::sync::Arc;

    #[test]
    fn a_slice_counts_its_own_rows_only() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1_000));
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..1_000).map(|_| "twenty bytes of text")));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        assert_eq!(batch_bytes(&batch.slice(10, 10)), 10 * (8 + 16 + 20));
    }
}
