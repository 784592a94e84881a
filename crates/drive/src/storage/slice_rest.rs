//! The rest of a slice that loses rows.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use pithead_model::{Blame, ColumnSummary, Fault, SliceEntry, SliceKey, Value};
use pithead_slice::{Encoding, MarkedSlice, ScanRequest, SliceError, SliceReader, bounds_of, mark, open_rows, open_slice};
use pithead_store::{Splice, Store};

use crate::storage::directories::gone;
use crate::storage::keys::slice_key;
use crate::storage::loads::{StagedSlice, stage_rows};
use crate::storage::staging::{SliceValue, StagedValue};

/// Smaller bodies are written again with the marks: a second record costs as much.
const SHARED_BYTES_MIN: usize = 4 << 10;

/// A slice that loses no row.
pub(super) fn whole(key: &SliceKey, entry: SliceEntry) -> StagedSlice {
    StagedSlice { value: SliceValue::Copied { from: slice_key(key), splice: None }, entry, sketches: None }
}

/// Stages a slice without the rows that go, of which there are some, and of which at least one stays: with marks, or encoded anew
/// where most of its rows are gone by then. Blocks.
pub(super) fn stage_left(
    store: &Arc<dyn Store>,
    encoding: &dyn Encoding,
    schema: &SchemaRef,
    (key, entry): (&SliceKey, SliceEntry),
    goes: &BooleanBuffer,
) -> Result<Vec<StagedSlice>, Fault> {
    let Some((value, _)) = store.get(&slice_key(key))? else { return Err(gone(key)) };
    match mark(value.clone(), goes) {
        Ok(Some(marked)) if marked.gone <= marked.rows => {
            let columns = summaries_left(schema, &entry, &value, &marked, goes)?;
            let entry = SliceEntry { rows: marked.rows, bytes: marked.bytes.len() as u64, columns };
            let splice = if marked.kept.len() < SHARED_BYTES_MIN { None } else { around(&value, &marked) };
            let value = match splice {
                None => SliceValue::New(StagedValue::stage(store, marked.bytes)?),
                splice => SliceValue::Copied { from: slice_key(key), splice },
            };
            Ok(vec![StagedSlice { value, entry, sketches: None }])
        }
        // Too few are left to keep the bytes of the others, or there is no room for the marks.
        Ok(_) | Err(SliceError::TooLarge { .. }) => {
            let all: Vec<usize> = (0..schema.fields().len()).collect();
            let mut made = Vec::new();
            stage_rows(store, encoding, schema, kept(&rows_of(schema, &*open_slice(schema, value)?, &all)?, goes)?, &mut made)?;
            Ok(made)
        }
        Err(error) => Err(error.into()),
    }
}

/// The new header, the body that stays on the medium where it is, and the marks. These are copies, since they wait for all slices of
/// the run, and the marked slice need not.
fn around(before: &[u8], marked: &MarkedSlice) -> Option<Splice> {
    let MarkedSlice { bytes, kept, .. } = marked;
    let (head, tail) = (bytes[..kept.start].to_vec(), bytes[kept.end..].to_vec());
    Splice::new(before, head, kept.start as u64..kept.end as u64, tail)
}

/// The summaries of a slice's columns once it is `marked`. Only rows that go are read, and then the columns that lose a row with their
/// least or largest value.
fn summaries_left(
    schema: &SchemaRef,
    before: &SliceEntry,
    slice: &Bytes,
    marked: &MarkedSlice,
    goes: &BooleanBuffer,
) -> Result<Vec<ColumnSummary>, Fault> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let going = rows_of(schema, &*open_rows(schema, slice.clone(), goes)?, &all)?;
    let going = bounds_of(schema, &going);
    let mut left = before.columns.clone();
    let mut lost = Vec::new();
    for (column, (left, going)) in left.iter_mut().zip(&going).enumerate() {
        if keeps_bounds(left, going) {
            left.nulls = left.nulls.saturating_sub(going.nulls);
        } else {
            lost.push(column);
        }
    }
    let reader = if lost.is_empty() { None } else { Some(marked.open(schema)?) };
    for column in lost {
        let (Some(reader), Some(left), Some(going)) = (&reader, left.get_mut(column), going.get(column)) else { continue };
        *left = bounds_left(schema, &**reader, column, left, going)?;
    }
    left.iter_mut().for_each(|column| column.distinct = column.distinct.min(marked.rows));
    Ok(left)
}

/// The summary of a column whose least or largest value went with a row. Most columns that have few values have it in another row, too,
/// which is found soon.
fn bounds_left(
    schema: &SchemaRef,
    reader: &dyn SliceReader,
    column: usize,
    before: &ColumnSummary,
    going: &ColumnSummary,
) -> Result<ColumnSummary, Fault> {
    let part = Arc::new(schema.project(&[column]).map_err(Fault::bug)?);
    let mut stream = reader.scan(ScanRequest::all_rows(vec![column]))?.stream;
    let (mut rows, mut has_least, mut has_largest) = (Vec::new(), false, false);
    let may_keep = before.exact && !before.nulls_unknown && !going.nulls_unknown;
    while let Some(batch) = futures::executor::block_on(stream.try_next())? {
        rows.push(named(batch, &part)?);
        if let (true, Some(last)) = (may_keep, rows.last())
            && let [of] = &bounds_of(&part, std::slice::from_ref(last))[..]
            && of.exact
        {
            has_least |= is_same(of.min.as_ref(), before.min.as_ref());
            has_largest |= is_same(of.max.as_ref(), before.max.as_ref());
        }
        if has_least && has_largest {
            return Ok(ColumnSummary { nulls: before.nulls.saturating_sub(going.nulls), ..before.clone() });
        }
    }
    let found = bounds_of(&part, &rows).pop().ok_or_else(|| Fault::bug("a column without a summary"))?;
    Ok(ColumnSummary { distinct: before.distinct, ..found })
}

/// Whether two bounds are one value, bit for bit.
fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Float(one)), Some(Value::Float(other))) => one.to_bits() == other.to_bits(),
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Whether the rows that stay have the bounds that all rows have: none of those that go has one of these values.
fn keeps_bounds(all: &ColumnSummary, going: &ColumnSummary) -> bool {
    if all.nulls_unknown || going.nulls_unknown {
        return false;
    }
    // A type without bounds, or all NULL: of those that stay, nothing else can be known.
    if all.min.is_none() && all.max.is_none() {
        return true;
    }
    let is_all_null = going.min.is_none() && going.max.is_none() && going.exact;
    let (Some(least), Some(largest)) = (&all.min, &all.max) else { return is_all_null };
    is_all_null
        || going.min.as_ref().is_some_and(|going| going.compare(least).is_some_and(|order| order.is_gt()))
            && going.max.as_ref().is_some_and(|going| going.compare(largest).is_some_and(|order| order.is_lt()))
}

/// The rows that do not go.
fn kept(rows: &[RecordBatch], goes: &BooleanBuffer) -> Result<Vec<RecordBatch>, Fault> {
    let mut start = 0;
    let mut kept = Vec::with_capacity(rows.len());
    for batch in rows {
        if start + batch.num_rows() > goes.len() {
            return Err(Fault::new(Blame::Corrupt, format!("the slice has more than {} rows", goes.len())));
        }
        let stays = BooleanArray::new(!&goes.slice(start, batch.num_rows()), None);
        start += batch.num_rows();
        let batch = filter_record_batch(batch, &stays).map_err(Fault::bug)?;
        if batch.num_rows() > 0 {
            kept.push(batch);
        }
    }
    Ok(kept)
}

/// These columns of all rows of a slice. Streams of slices never wait, so this blocks only for as long as decoding takes.
fn rows_of(schema: &SchemaRef, reader: &dyn SliceReader, columns: &[usize]) -> Result<Vec<RecordBatch>, Fault> {
    let request = ScanRequest::all_rows(columns.to_vec());
    let rows = futures::executor::block_on(reader.scan(request)?.stream.try_collect::<Vec<_>>())?;
    let part = Arc::new(schema.project(columns).map_err(Fault::bug)?);
    rows.into_iter().map(|batch| named(batch, &part)).collect()
}

/// A batch under the names of its columns in the dataset.
fn named(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, Fault> {
    let named = RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec());
    named.map_err(|error| Fault::new(Blame::Corrupt, error.to_string()))
}
