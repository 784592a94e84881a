//! A file's rows as slices of a dataset.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use pithead_model::{ColumnSummary, SLICE_BYTES_MAX, SliceEntry};

use super::file::ArrowFile;
use super::read::{BatchRows, Shared};
use super::segments::{Segment, slices};
use crate::arrow_ipc::ArrowEncoding;
use crate::attached::{AttachedFile, AttachedRows, AttachedSlice};
use crate::guard::guarded;
use crate::header::seal;
use crate::parquet::{Columns, Origin, Source, constant_summary};
use crate::{Encoding, SliceError, SliceReader};

impl AttachedFile for ArrowFile {
    fn schema(&self) -> &SchemaRef {
        ArrowFile::schema(self)
    }

    fn encoding(&self) -> &'static str {
        ArrowEncoding.name()
    }

    fn attach(self: Arc<Self>, schema: &SchemaRef, origins: &[Origin]) -> Result<Vec<AttachedSlice>, SliceError> {
        let columns = Columns::new(Arc::clone(schema), ArrowFile::schema(&self), origins)?;
        let made = slices(self.batches.iter().map(|batch| (batch.rows, batch.bytes)));
        let shared = Arc::new(Shared { file: self, columns });
        Ok(made.into_iter().map(|segments| AttachedSlice::new(Batches::new(&shared, segments))).collect())
    }
}

/// Rows of some batches, as a slice of a dataset.
#[derive(Debug)]
struct Batches {
    shared: Arc<Shared>,
    segments: Arc<[Segment]>,
    entry: Arc<SliceEntry>,
}

impl Batches {
    fn new(shared: &Arc<Shared>, segments: Vec<Segment>) -> Batches {
        let rows = segments.iter().map(Segment::len).sum();
        let stored = segments.iter().map(|segment| {
            let batch = shared.file.batches[segment.batch];
            let bytes = u128::from(batch.block.bodyLength().unsigned_abs()) * u128::from(segment.len());
            (bytes / u128::from(batch.rows.max(1))) as u64
        });
        let bytes: u64 = stored.sum();
        let entry = SliceEntry { rows, bytes: bytes.max(1), columns: summaries(&shared.columns, rows) };
        Batches { shared: Arc::clone(shared), segments: segments.into(), entry: Arc::new(entry) }
    }

    fn reader(&self) -> Result<BatchRows, SliceError> {
        BatchRows::new(Arc::clone(&self.shared), Arc::clone(&self.segments), &self.entry)
    }
}

impl AttachedRows for Batches {
    fn entry(&self) -> &Arc<SliceEntry> {
        &self.entry
    }

    fn is_far(&self) -> bool {
        self.shared.file.source.is_far()
    }

    fn open(&self) -> Result<Arc<dyn SliceReader>, SliceError> {
        Ok(Arc::new(self.reader()?))
    }

    fn stored(&self) -> Result<Bytes, SliceError> {
        let body = guarded(|| self.reader()?.encoded())?;
        let columns = self.shared.columns.schema.fields().len() as u32;
        let slice = seal(ArrowEncoding.id(), self.entry.rows, columns, &body);
        match slice.len() <= SLICE_BYTES_MAX {
            true => Ok(slice.into()),
            false => {
                let (batch, bytes) = (self.segments.first().map_or(0, |segment| segment.batch), slice.len());
                let what = format!("batch {batch} makes a slice of {bytes} bytes, over the bound of {SLICE_BYTES_MAX}");
                Err(SliceError::Schema(what))
            }
        }
    }
}

/// What is known of so many rows: nothing, but of columns that have one value.
fn summaries(columns: &Columns, rows: u64) -> Vec<ColumnSummary> {
    let column = |source: &Source| match source {
        Source::Constant(value) => constant_summary(value, rows),
        Source::Root(_) => ColumnSummary { nulls_unknown: true, ..Default::default() },
    };
    columns.sources.iter().map(column).collect()
}
