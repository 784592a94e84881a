//! Slices as they lie on a medium, with checksums that hold: the header, the index of pages, all encodings.

use std::ops::Range;
use std::sync::Arc;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};

use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use bytes::Bytes;
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pithead_fuzz::{Bound, Outcome, Parts, Run, Seed, Target};
use pithead_model::{Fault, PAGE_ROWS, Value};
use pithead_slice::{
    ArrowFile, AttachedFile, AttachedSlice, Compare, HEADER_BYTES, Origin, ParquetFile, Predicate, ReadAt, ReadStats,
    ScanRequest, SliceError, SliceParts, SliceReader, describe, encode_slice, encoding, encoding_names, mark, open_parts,
    open_slice, seal, unseal,
};

use crate::link::{lying_lengths, unsound};
use crate::{data, refused};

pub const NAMES: [&str; 9] = [
    "slice_header",
    "slice_vortex",
    "slice_arrow",
    "slice_parquet",
    "slice_nsm",
    "slice_pax",
    "slice_marks",
    "attached_parquet",
    "attached_arrow",
];

/// Rows of a window, decoded, are some bytes for each column; texts are shared with the slice.
const BOUND: Bound = Bound { bytes: 48 << 20, factor: 64 };
/// The same, and 64 MiB each of a compressed dictionary and of a compressed batch: room is made for what they say of their sizes.
const COMPRESSED_BOUND: Bound = Bound { bytes: 176 << 20, factor: 64 };
const BATCH_ROWS: usize = 8_192;
/// Windows looked at of one slice: enough for all of its layouts.
const BATCHES_MAX: usize = 40;
/// Bytes at a body's end that say how long the index of pages is, and where in it the rows are.
const TRAILER_BYTES: usize = 32;

/// The dataset's number, what the encoding wrote, the index of pages.
const BODY: Parts = Parts {
    split: |bytes| {
        let (dataset, body) = bytes.split_first()?;
        let trailer = body.len().checked_sub(TRAILER_BYTES)?;
        let index = usize::try_from(u64::from_le_bytes(body.get(trailer + 16..trailer + 24)?.try_into().ok()?)).ok()?;
        let (encoded, index) = body.split_at_checked(trailer.checked_sub(index)?)?;
        Some(vec![vec![*dataset], encoded.to_vec(), index.to_vec()])
    },
    join: |parts| parts.concat(),
    piece: 3,
};

/// Bytes at a marked body's end that say how many rows are gone, and how long the marks are.
const MARKS_TRAILER_BYTES: usize = 24;

/// The encoding's and the dataset's number, the body, the marks.
const MARKED: Parts = Parts {
    split: |bytes| {
        let trailer = bytes.len().checked_sub(MARKS_TRAILER_BYTES)?;
        let marks = usize::try_from(number_at(bytes, trailer + 8)?).ok()?;
        let (body, marks) = bytes.split_at_checked(trailer.checked_sub(marks)?)?;
        Some(vec![body.get(..2)?.to_vec(), body.get(2..)?.to_vec(), marks.to_vec()])
    },
    join: |parts| parts.concat(),
    piece: 3,
};

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Datasets whose slices are read.
static DATASETS: LazyLock<Vec<RecordBatch>> = LazyLock::new(|| {
    let all = data::every_type(30, false);
    let more = data::every_type(30, true);
    let is_nested = |batch: &RecordBatch, column: usize| batch.column(column).data_type().is_nested();
    let columns = |batch: &RecordBatch, wanted: &dyn Fn(usize) -> bool| {
        let columns: Vec<usize> = (0..batch.num_columns()).filter(|column| wanted(*column)).collect();
        batch.project(&columns).unwrap()
    };
    let mut datasets = vec![
        data::numbered(0..9_000),
        data::numbered(0..200),
        columns(&all, &|column| is_nested(&all, column)),
        columns(&all, &|column| !is_nested(&all, column)),
        columns(&more, &|column| column >= all.num_columns()),
    ];
    // Alone, a column of a type is mutated more often.
    datasets
        .extend((0..all.num_columns()).filter(|column| is_nested(&all, *column)).map(|column| all.project(&[column]).unwrap()));
    datasets
});

pub fn targets() -> Vec<Target> {
    let target = |name, parts, seeds, run: Run| Target { name, seeds, parts, bound: BOUND, run };
    vec![
        target("slice_header", Parts::WHOLE, header_seeds(), Box::new(header)),
        target("slice_vortex", BODY, body_seeds("vortex"), Box::new(|bytes| body("vortex", bytes))),
        target("slice_arrow", BODY, body_seeds("arrow"), Box::new(|bytes| body("arrow", bytes))),
        target("slice_parquet", BODY, body_seeds("parquet"), Box::new(|bytes| body("parquet", bytes))),
        target("slice_nsm", BODY, body_seeds("nsm"), Box::new(|bytes| body("nsm", bytes))),
        target("slice_pax", BODY, body_seeds("pax"), Box::new(|bytes| body("pax", bytes))),
        target("slice_marks", MARKED, marked_seeds(), Box::new(marked)),
        target("attached_parquet", Parts::WHOLE, attached_seeds(), Box::new(|bytes| attached(bytes, open_parquet))),
        Target {
            bound: COMPRESSED_BOUND,
            ..target("attached_arrow", Parts::WHOLE, attached_arrow_seeds(), Box::new(|bytes| attached(bytes, open_arrow)))
        },
    ]
}

fn header_seeds() -> Vec<Seed> {
    let slice = |name: &str| {
        let batch = &DATASETS[1];
        encode_slice(&*encoding(name).unwrap(), &batch.schema(), std::slice::from_ref(batch)).unwrap().bytes.to_vec()
    };
    encoding_names().into_iter().map(|name| Seed::valid(name, slice(name))).collect()
}

fn header(bytes: &[u8]) -> Outcome {
    let slice = Bytes::copy_from_slice(bytes);
    let schema = DATASETS[1].schema();
    match (describe(slice.clone()), open_slice(&schema, slice)) {
        (Ok(facts), Ok(reader)) if facts.header.rows == reader.rows() => Outcome::Accepted,
        (Ok(_), Ok(_)) => Outcome::Wrong("a slice has other rows than its header".to_owned()),
        (Err(error), _) | (_, Err(error)) => refused(&error.into()),
    }
}

fn body_seeds(name: &str) -> Vec<Seed> {
    let encoding = encoding(name).unwrap();
    let mut seeds = Vec::new();
    for (number, batch) in DATASETS.iter().enumerate() {
        let schema = batch.schema();
        if encoding.supports(&schema).is_ok() {
            let encoded = encode_slice(&*encoding, &schema, std::slice::from_ref(batch)).unwrap().bytes;
            let bytes = [&[number as u8], &encoded[HEADER_BYTES..]].concat();
            seeds.extend(bombs(&bytes));
            if name == "arrow" {
                seeds.extend(compressed(&bytes, batch));
            }
            seeds.push(Seed::valid(format!("{number}"), bytes));
        }
    }
    seeds
}

/// A body with counts that lie: rows of the slice, rows of a page.
fn bombs(bytes: &[u8]) -> Vec<Seed> {
    let trailer = bytes.len() - TRAILER_BYTES;
    let with = |rows: u64, page_rows: u32| {
        let mut lying = bytes.to_vec();
        lying[trailer..trailer + 8].copy_from_slice(&rows.to_le_bytes());
        lying[trailer + 8..trailer + 12].copy_from_slice(&page_rows.to_le_bytes());
        Seed::hostile(format!("{rows} rows, {page_rows} a page"), lying)
    };
    vec![with(1 << 40, u32::MAX), with(u64::MAX, u32::MAX), with(u64::MAX, 1), with(1 << 32, 1 << 31), with(30, u32::MAX)]
}

/// Slices are not compressed by this encoding, but its reader would decompress them.
fn compressed(bytes: &[u8], batch: &RecordBatch) -> Vec<Seed> {
    let [dataset, _, index] = &(BODY.split)(bytes).unwrap()[..] else { return Vec::new() };
    let compressions = [CompressionType::LZ4_FRAME, CompressionType::ZSTD].into_iter();
    let seeds = compressions.flat_map(|compression| {
        let options = IpcWriteOptions::default().try_with_compression(Some(compression)).unwrap();
        let mut file = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
        for page in (0..batch.num_rows()).step_by(PAGE_ROWS) {
            file.write(&batch.slice(page, PAGE_ROWS.min(batch.num_rows() - page))).unwrap();
        }
        let file = file.into_inner().unwrap();
        [("compressed", file.clone()), ("lying", lying_lengths(&file))]
    });
    seeds.map(|(name, file)| Seed::hostile(name, [dataset.as_slice(), &file, index].concat())).collect()
}

/// Seals a body, as whoever wrote it to do harm would, then reads it.
fn body(name: &str, bytes: &[u8]) -> Outcome {
    let Some((dataset, body)) = bytes.split_first() else { return Outcome::Refused };
    let schema = DATASETS[usize::from(*dataset) % DATASETS.len()].schema();
    let rows = body.len().checked_sub(TRAILER_BYTES).and_then(|trailer| body.get(trailer..trailer + 8)?.try_into().ok());
    let rows = rows.map_or(1, u64::from_le_bytes);
    let encoding = encoding(name).unwrap();
    let slice = Bytes::from(seal(encoding.id(), rows, schema.fields().len() as u32, body));
    // The drive opens a slice as it comes from the store: the header first, then the body.
    let parts = read_parts(&schema, encoding.id(), rows, body);
    match unseal(slice.clone()).and_then(|_| read(&schema, slice)) {
        Ok(None) if parts.is_some() => Outcome::Wrong(parts.unwrap_or_default()),
        Ok(None) => Outcome::Accepted,
        Ok(Some(wrong)) => Outcome::Wrong(wrong),
        Err(error) => refused(&Fault::from(error)),
    }
}

fn marked_seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (place, name) in encoding_names().into_iter().enumerate() {
        for number in [0, 1] {
            let batch: &RecordBatch = &DATASETS[number];
            let slice = encode_slice(&*encoding(name).unwrap(), &batch.schema(), std::slice::from_ref(batch)).unwrap().bytes;
            let gone: BooleanBuffer = (0..batch.num_rows()).map(|row| row % 3 == 1).collect();
            let slice = mark(slice, &gone).unwrap().unwrap().bytes;
            let bytes = [&[place as u8, number as u8], &slice[HEADER_BYTES..]].concat();
            for gone in [0, u64::MAX, batch.num_rows() as u64] {
                let mut lying = bytes.clone();
                let trailer = lying.len() - MARKS_TRAILER_BYTES;
                lying[trailer..trailer + 8].copy_from_slice(&gone.to_le_bytes());
                seeds.push(Seed::hostile(format!("{name} {number} says {gone} are gone"), lying));
            }
            seeds.push(Seed::valid(format!("{name} {number}"), bytes));
        }
    }
    seeds
}

/// Seals a marked body, then reads it.
fn marked(bytes: &[u8]) -> Outcome {
    let [place, number, body @ ..] = bytes else { return Outcome::Refused };
    let names = encoding_names();
    let (encoding, version) = encoding(names[usize::from(*place) % names.len()]).unwrap().id();
    let schema = DATASETS[usize::from(*number) % DATASETS.len()].schema();
    let rows = || {
        let trailer = body.len().checked_sub(MARKS_TRAILER_BYTES)?;
        let marks = usize::try_from(number_at(body, trailer + 8)?).ok()?;
        let all = number_at(body, trailer.checked_sub(marks)?.checked_sub(TRAILER_BYTES)?)?;
        all.checked_sub(number_at(body, trailer)?)
    };
    let slice = seal((encoding, version | 1 << 15), rows().unwrap_or(1), schema.fields().len() as u32, body);
    match read(&schema, slice.into()) {
        Ok(None) => Outcome::Accepted,
        Ok(Some(wrong)) => Outcome::Wrong(wrong),
        Err(error) => refused(&Fault::from(error)),
    }
}

/// The same body as a host gets it at level 1, with a hole whose place the bytes say, and with half of its pages. What is wrong.
fn read_parts(schema: &SchemaRef, encoding: (u16, u16), rows: u64, body: &[u8]) -> Option<String> {
    let places = body.iter().take(64).fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let (from, end) = (places % body.len().max(1), body.len().saturating_sub(places / 7 % 900));
    let parts = [(0, &body[..from.min(end)]), (end, &body[end..])];
    let parts = parts.iter().filter(|(_, bytes)| !bytes.is_empty());
    let parts = parts.map(|(start, bytes)| (*start as u64, Bytes::copy_from_slice(bytes))).collect();
    let parts = SliceParts { encoding, rows, body_bytes: body.len() as u64, parts };
    let pages = vec![0x55; (rows.div_ceil(PAGE_ROWS as u64).div_ceil(8)).min(1 << 10) as usize];
    let pages = if rows.div_ceil(PAGE_ROWS as u64) == 1 { vec![1] } else { pages };
    open_parts(schema, parts, &pages).and_then(|reader| read_all(schema, &*reader)).unwrap_or_default()
}

/// A file in memory.
#[derive(Debug)]
struct File(Bytes);

impl ReadAt for File {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        match range.start <= range.end && range.end <= self.bytes() {
            true => Ok(self.0.slice(range.start as usize..range.end as usize)),
            // Whoever reads has to look where the file ends first.
            false => Err(SliceError::Codec { encoding: "parquet", what: format!("{range:?} of {} bytes", self.0.len()) }),
        }
    }
}

fn attached_seeds() -> Vec<Seed> {
    let levels = [EnabledStatistics::Page, EnabledStatistics::None];
    let each = DATASETS.iter().enumerate().flat_map(|(number, batch)| levels.map(|level| (number, batch, level)));
    let seed = |(number, batch, level): (usize, &RecordBatch, EnabledStatistics)| {
        let properties = WriterProperties::builder().set_statistics_enabled(level).set_data_page_row_count_limit(100);
        let properties = properties.set_max_row_group_row_count(Some(3_000)).set_compression(Compression::SNAPPY).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).ok()?;
        writer.write(batch).ok()?;
        Some(Seed::valid(format!("{number} {level:?}"), writer.into_inner().ok()?))
    };
    each.filter_map(seed).collect()
}

fn attached_arrow_seeds() -> Vec<Seed> {
    let compressions = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    let each = DATASETS.iter().enumerate().flat_map(|(number, batch)| compressions.map(|how| (number, batch, how)));
    let seed = |(number, batch, compression): (usize, &RecordBatch, Option<CompressionType>)| {
        let options = IpcWriteOptions::default().try_with_compression(compression).ok()?;
        let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).ok()?;
        writer.write(batch).ok()?;
        writer.write(&batch.slice(0, batch.num_rows() / 2)).ok()?;
        Some(Seed::valid(format!("{number} {compression:?}"), writer.into_inner().ok()?))
    };
    each.filter_map(seed).collect()
}

fn open_parquet(bytes: Bytes) -> Result<Arc<dyn AttachedFile>, SliceError> {
    Ok(Arc::new(ParquetFile::open(Arc::new(File(bytes)))?))
}

fn open_arrow(bytes: Bytes) -> Result<Arc<dyn AttachedFile>, SliceError> {
    Ok(Arc::new(ArrowFile::open(Arc::new(File(bytes)))?))
}

/// Attaches a file, reads its slices, and reads them again as they travel.
fn attached(bytes: &[u8], open: fn(Bytes) -> Result<Arc<dyn AttachedFile>, SliceError>) -> Outcome {
    let file = match open(Bytes::copy_from_slice(bytes)) {
        Ok(file) => file,
        Err(error) => return refused(&error.into()),
    };
    let schema = file.schema();
    let origins: Vec<Origin> = (0..schema.fields().len()).map(Origin::Column).collect();
    match Arc::clone(&file)
        .attach(schema, &origins)
        .and_then(|slices| slices.iter().take(3).try_fold(None, read_attached(schema)))
    {
        Ok(None) => Outcome::Accepted,
        Ok(Some(wrong)) => Outcome::Wrong(wrong),
        Err(error) => refused(&error.into()),
    }
}

fn read_attached(schema: &SchemaRef) -> impl Fn(Option<String>, &AttachedSlice) -> Result<Option<String>, SliceError> + '_ {
    |wrong, slice| {
        let reader = slice.open()?;
        let here = read_all(schema, &*reader)?;
        // Rows without bytes can be many: they are not encoded again.
        let sent = if reader.rows() < 1 << 20 { read(schema, slice.stored()?)? } else { None };
        Ok(wrong.or(here).or(sent))
    }
}

fn read(schema: &SchemaRef, slice: Bytes) -> Result<Option<String>, SliceError> {
    read_all(schema, &*open_slice(schema, slice)?)
}

fn read_all(schema: &SchemaRef, reader: &dyn SliceReader) -> Result<Option<String>, SliceError> {
    let all: Vec<usize> = (0..schema.fields().len()).collect();
    let mut wrong = None;
    // Each predicate by itself, so that none hides another.
    let alone = predicates(schema).into_iter().map(|predicate| vec![predicate]);
    for predicates in [Vec::new()].into_iter().chain(alone) {
        let request = ScanRequest {
            columns: all.clone(),
            predicates,
            keys: Vec::new(),
            zone_maps: true,
            sample: None,
            batch_rows: BATCH_ROWS,
            stats: Arc::new(ReadStats::default()),
        };
        let mut stream = reader.scan(request)?.stream;
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..BATCHES_MAX {
            match stream.poll_next_unpin(&mut context) {
                Poll::Ready(Some(batch)) => wrong = wrong.or(unsound(&batch?)),
                Poll::Ready(None) => break,
                Poll::Pending => {}
            }
        }
    }
    Ok(wrong)
}

/// One of each kind, on the first column that has values for it.
fn predicates(schema: &SchemaRef) -> Vec<Predicate> {
    let first = |wanted: fn(&DataType) -> bool| schema.fields().iter().position(|field| wanted(field.data_type()));
    let mut predicates = vec![Predicate::IsNull(0), Predicate::IsNotNull(0)];
    if let Some(column) = first(|data_type| *data_type == DataType::Int64) {
        predicates.push(Predicate::Compare { column, op: Compare::Gt, value: Value::Int(100) });
        predicates.push(Predicate::In { column, values: vec![Value::Int(0), Value::Int(7)] });
    }
    if let Some(column) = first(|data_type| *data_type == DataType::Utf8View) {
        predicates.push(Predicate::Like { column, pattern: "%row%".into(), negated: false });
        predicates.push(Predicate::Compare { column, op: Compare::Eq, value: Value::Text("row 17".into()) });
    }
    predicates
}
