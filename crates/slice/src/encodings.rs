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

#[cfg(test)]
mod tests {
    use arrow::array::*;
    use arrow::buffer::{NullBuffer, OffsetBuffer};
    use arrow::compute::concat_batches;
    use arrow::datatypes::*;
    use futures::TryStreamExt;

    use super::*;

    /// More than two pages.
    const ROWS: usize = 20_000;

    fn nulls(rows: usize) -> NullBuffer {
        NullBuffer::from_iter((0..rows).map(|row| row % 3 != 1))
    }

    /// Numbers with a value under each of their NULLs.
    fn over<T: ArrowPrimitiveType>(data_type: DataType, under: T::Native) -> ArrayRef {
        let value = |row: usize| if nulls(3).is_null(row % 3) { under } else { T::Native::usize_as(row % 100) };
        let array = PrimitiveArray::<T>::new((0..ROWS).map(value).collect::<Vec<_>>().into(), Some(nulls(ROWS)));
        Arc::new(array.with_data_type(data_type))
    }

    /// The same without the NULLs, within a struct and lists that are NULL where they were.
    fn within(values: &ArrayRef) -> Vec<ArrayRef> {
        let values = make_array(values.to_data().into_builder().nulls(None).build().unwrap());
        let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let of_one = OffsetBuffer::from_lengths(std::iter::repeat_n(1, ROWS));
        let record = StructArray::new(Fields::from(vec![Arc::clone(&item)]), vec![Arc::clone(&values)], Some(nulls(ROWS)));
        let list = ListArray::new(Arc::clone(&item), of_one, Arc::clone(&values), Some(nulls(ROWS)));
        let fixed = FixedSizeListArray::new(item, 1, values, Some(nulls(ROWS)));
        let of_lists = Arc::new(Field::new("list", list.data_type().clone(), true));
        let deep = StructArray::new(vec![of_lists].into(), vec![Arc::new(list.clone())], None);
        vec![Arc::new(record), Arc::new(list), Arc::new(fixed), Arc::new(deep)]
    }

    /// Reads the column back from a slice of each encoding.
    fn check(column: &ArrayRef) {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(column), true)]).unwrap();
        for name in encoding_names() {
            let batches = [batch.slice(0, 9_000), batch.slice(9_000, 11_000)];
            let slice = encode_slice(&*encoding(name).unwrap(), &batch.schema(), &batches);
            let slice = slice.unwrap_or_else(|error| panic!("{name}, {}: {error}", column.data_type()));
            let reader = open_slice(&batch.schema(), slice.bytes).unwrap();
            let stream = reader.scan(ScanRequest::all_rows(vec![0])).unwrap().stream;
            let found: Vec<RecordBatch> = futures::executor::block_on(stream.try_collect()).unwrap();
            assert_eq!(concat_batches(&batch.schema(), &found).unwrap(), batch, "{name}");
        }
    }

    #[test]
    fn nothing_is_made_of_decimals_under_nulls() {
        let high_word = i128::from(i64::MIN) << 64;
        for (precision, scale) in [(8, 2), (2, 0), (18, 4), (38, 10)] {
            let column = over::<Decimal128Type>(DataType::Decimal128(precision, scale), high_word);
            check(&column);
            within(&column).iter().for_each(check);
        }
        for precision in [8, 30, 70] {
            let column = over::<Decimal256Type>(DataType::Decimal256(precision, 2), i256::MIN);
            check(&column);
            within(&column).iter().for_each(check);
        }
    }

    #[test]
    fn nothing_is_made_of_other_values_under_nulls() {
        for column in [
            over::<Int8Type>(DataType::Int8, i8::MIN),
            over::<Int64Type>(DataType::Int64, i64::MIN),
            over::<UInt64Type>(DataType::UInt64, u64::MAX),
            over::<Float32Type>(DataType::Float32, f32::NAN),
            over::<Float64Type>(DataType::Float64, -f64::NAN),
            over::<Date32Type>(DataType::Date32, i32::MIN),
            over::<Time32SecondType>(DataType::Time32(TimeUnit::Second), i32::MAX),
            over::<Time64NanosecondType>(DataType::Time64(TimeUnit::Nanosecond), i64::MIN),
            over::<TimestampSecondType>(DataType::Timestamp(TimeUnit::Second, Some("UTC".into())), i64::MAX),
        ] {
            check(&column);
            within(&column).iter().for_each(check);
        }
    }

    #[test]
    fn nothing_is_made_of_texts_under_nulls() {
        let text = |row| if row % 3 == 1 { "a text that nobody can see".to_owned() } else { format!("row {}", row % 100) };
        let (views, buffers, _) = StringViewArray::from_iter_values((0..ROWS).map(text)).into_parts();
        let column: ArrayRef = Arc::new(StringViewArray::new(views, buffers, Some(nulls(ROWS))));
        check(&column);
        within(&column).iter().for_each(check);
    }
}
