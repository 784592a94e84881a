//! The encodings of this release, and functions that make and open slices with them.

use std::sync::Arc;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::StreamExt;
use pithead_model::{SLICE_BYTES_MAX, SliceEntry};

use crate::arrow_ipc::ArrowEncoding;
use crate::marks::{MARKED, check_marked};
use crate::nsm::Nsm;
use crate::paged::PagedEncoding;
use crate::pages::PageIndex;
use crate::parquet::ParquetEncoding;
use crate::pax::Pax;
use crate::stored::SliceParts;
use crate::summary::with_distinct;
use crate::vortex::VortexEncoding;
use crate::{ColumnSketches, Encoding, Header, ScanRequest, SliceError, SliceReader, seal, unseal, verify};

static ENCODINGS: LazyLock<[Arc<dyn Encoding>; 5]> = LazyLock::new(|| {
    let (nsm, pax) = (PagedEncoding::<Nsm>::new(), PagedEncoding::<Pax>::new());
    [Arc::new(VortexEncoding), Arc::new(ArrowEncoding), Arc::new(ParquetEncoding), Arc::new(nsm), Arc::new(pax)]
});

/// The encoding with a name.
pub fn encoding(name: &str) -> Option<Arc<dyn Encoding>> {
    ENCODINGS.iter().find(|encoding| encoding.name() == name).cloned()
}

/// Names of all encodings, the default first.
pub fn encoding_names() -> Vec<&'static str> {
    ENCODINGS.iter().map(|encoding| encoding.name()).collect()
}

/// The encoding with a header's number and version, whether or not the slice has deletion marks; [`SliceError::Version`] if this
/// release does not read it.
pub fn encoding_by_id((encoding, version): (u16, u16)) -> Result<Arc<dyn Encoding>, SliceError> {
    ENCODINGS.iter().find(|known| known.id() == (encoding, version & !MARKED)).cloned().ok_or_else(|| {
        let known: Vec<String> =
            ENCODINGS.iter().map(|known| format!("{} ({} version {})", known.name(), known.id().0, known.id().1)).collect();
        SliceError::Version { encoding, version, known: known.join(", ") }
    })
}

/// Makes a slice of whole rows (at least one) of a normalised schema: its bytes, and its entry in the directory. It
/// reads the slice back and compares it with the rows first, since a writer can fail without an error. Blocks for as
/// long as compression takes.
pub fn encode_slice(encoding: &dyn Encoding, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<EncodedSlice, SliceError> {
    encoding.supports(schema)?;
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows == 0 {
        return Err(SliceError::Schema("a slice needs at least one row".into()));
    }
    let body = encoding.encode(schema, batches)?;
    let bytes = Bytes::from(seal(encoding.id(), rows, schema.fields().len() as u32, &body));
    if bytes.len() > SLICE_BYTES_MAX {
        return Err(SliceError::TooLarge { bytes: bytes.len(), max: SLICE_BYTES_MAX });
    }
    compare(open_slice(schema, bytes.clone())?.as_ref(), schema, batches)?;
    let mut sketches = ColumnSketches::new(schema.fields().len());
    batches.iter().for_each(|batch| sketches.update(batch));
    let (_, index) = PageIndex::split(body.into(), schema.fields().len())?;
    let mut columns = index.totals()?;
    with_distinct(&mut columns, &sketches);
    let entry = SliceEntry { rows, bytes: bytes.len() as u64, columns };
    Ok(EncodedSlice { bytes, entry, sketches })
}

/// A slice that was made and read back.
#[derive(Clone, Debug)]
pub struct EncodedSlice {
    /// The whole slice, with its header.
    pub bytes: Bytes,
    /// Its entry in the directory.
    pub entry: SliceEntry,
    /// Sketches of its columns, which the caller merges over a partition's slices.
    pub sketches: ColumnSketches,
}

/// Opens a slice after it has checked both checksums.
pub fn open_slice(schema: &SchemaRef, slice: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
    let (header, body) = unseal(slice)?;
    verify(&header, &body)?;
    open_verified(schema, &header, body)
}

/// Opens a body whose checksum was checked before.
pub fn open_verified(schema: &SchemaRef, header: &Header, body: Bytes) -> Result<Arc<dyn SliceReader>, SliceError> {
    let encoding = encoding_by_id(header.encoding)?;
    check_marked(header.encoding, &body)?;
    let reader = encoding.open(schema, body)?;
    match reader.rows() == header.rows {
        true => Ok(reader),
        false => Err(SliceError::Corrupt(format!("the header names {} rows, the body has {}", header.rows, reader.rows()))),
    }
}

/// Opens what was sent of a slice, where pages outside the bitmap `pages` count as not there. No checksum covers a part
/// by itself: whoever cut it has checked the whole.
pub fn open_parts(schema: &SchemaRef, parts: SliceParts, pages: &[u8]) -> Result<Arc<dyn SliceReader>, SliceError> {
    let rows = parts.rows;
    let reader = encoding_by_id(parts.encoding)?.open_parts(schema, parts, pages)?;
    match reader.rows() == rows {
        true => Ok(reader),
        false => Err(SliceError::Corrupt(format!("it was said to have {rows} rows, and has {}", reader.rows()))),
    }
}

/// Reads a slice as a whole and compares it with the rows that went into it; it compares NaN and -0.0 by their bits.
fn compare(reader: &dyn SliceReader, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<(), SliceError> {
    let request = ScanRequest { zone_maps: true, ..ScanRequest::all_rows((0..schema.fields().len()).collect()) };
    let mut stream = reader.scan(request).map_err(unreadable)?.stream;
    let mut expected = Rows::new(batches);
    // Streams of slices never wait, so there is nothing to wake.
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match stream.poll_next_unpin(&mut context) {
            Poll::Ready(Some(batch)) => expected.take(&batch.map_err(unreadable)?)?,
            Poll::Ready(None) => break,
            Poll::Pending => {}
        }
    }
    match expected.is_empty() {
        true => Ok(()),
        false => Err(SliceError::ReadBack(format!("rows are missing after row {}", expected.row))),
    }
}

fn unreadable(error: SliceError) -> SliceError {
    SliceError::ReadBack(error.to_string())
}

/// Rows that are still to be compared.
struct Rows<'a> {
    batches: &'a [RecordBatch],
    /// Rows of the first batch that were compared.
    start: usize,
    /// Rows that were compared in all.
    row: usize,
}

impl<'a> Rows<'a> {
    fn new(batches: &'a [RecordBatch]) -> Self {
        let mut rows = Self { batches, start: 0, row: 0 };
        rows.skip_seen();
        rows
    }

    fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    fn skip_seen(&mut self) {
        while self.batches.first().is_some_and(|batch| batch.num_rows() == self.start) {
            (self.batches, self.start) = (&self.batches[1..], 0);
        }
    }

    /// Compares `found` with the next rows.
    fn take(&mut self, found: &RecordBatch) -> Result<(), SliceError> {
        let mut at = 0;
        while at < found.num_rows() {
            let Some(batch) = self.batches.first() else {
                return Err(SliceError::ReadBack(format!("there are more than {} rows", self.row)));
            };
            let rows = (batch.num_rows() - self.start).min(found.num_rows() - at);
            same(&batch.slice(self.start, rows), &found.slice(at, rows), self.row)?;
            (at, self.start, self.row) = (at + rows, self.start + rows, self.row + rows);
            self.skip_seen();
        }
        Ok(())
    }
}

fn same(expected: &RecordBatch, found: &RecordBatch, row: usize) -> Result<(), SliceError> {
    for ((column, found), field) in expected.columns().iter().zip(found.columns()).zip(expected.schema_ref().fields()) {
        if column.data_type() != found.data_type() || column.as_ref() != found.as_ref() {
            let end = row + column.len();
            return Err(SliceError::ReadBack(format!("column {:?} differs between rows {row} and {end}", field.name())));
        }
    }
    Ok(())
}
