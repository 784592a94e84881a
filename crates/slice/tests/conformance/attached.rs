//! Parquet files that lie where they are: whoever wrote them, and however, a dataset over them has their rows.

use std::sync::Mutex;

use arrow::array::{Float64Array, Int32Array, StringArray, UInt32Array, new_null_array};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use pithead_model::{ColumnSummary, PageSet, SLICE_BYTES_MAX};
use pithead_slice::{AttachedSlice, Origin, ParquetFile, ReadAt, may_match, normalise, normalise_batch, open_parts};

use super::*;

/// A file in memory, which can vanish.
#[derive(Debug)]
pub(super) struct File {
    bytes: Bytes,
    pub(super) gone: Mutex<bool>,
}

impl File {
    pub(super) fn new(bytes: impl Into<Bytes>) -> Arc<File> {
        Arc::new(File { bytes: bytes.into(), gone: Mutex::new(false) })
    }
}

impl ReadAt for File {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, range: Range<u64>) -> Result<Bytes, SliceError> {
        match *self.gone.lock().unwrap() {
            true => Err(SliceError::Gone("the file was replaced".into())),
            false if range.end > self.bytes() || range.start > range.end => Err(SliceError::Medium("too short".into())),
            false => Ok(self.bytes.slice(range.start as usize..range.end as usize)),
        }
    }
}

/// How somebody writes a file.
#[derive(Clone, Debug)]
struct Way {
    group_rows: usize,
    page_rows: usize,
    statistics: u8,
    offsets: bool,
    dictionary: bool,
    second: bool,
    cut: usize,
}

fn ways() -> impl Strategy<Value = Way> {
    let rows = (500_usize..9_000, prop::sample::select(vec![100_usize, 777, 8_192, 20_000]));
    (rows, 0..3_u8, any::<bool>(), any::<bool>(), any::<bool>(), 1..70_usize).prop_map(
        |((group_rows, page_rows), statistics, offsets, dictionary, second, cut)| Way {
            group_rows,
            page_rows,
            statistics,
            offsets,
            dictionary,
            second,
            cut,
        },
    )
}

fn parquet(batch: &RecordBatch, way: &Way) -> Vec<u8> {
    let levels = [EnabledStatistics::None, EnabledStatistics::Chunk, EnabledStatistics::Page];
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(way.group_rows))
        .set_data_page_row_count_limit(way.page_rows)
        .set_write_batch_size(way.page_rows.min(1_000))
        .set_statistics_enabled(levels[usize::from(way.statistics)])
        .set_offset_index_disabled(!way.offsets && way.statistics < 2)
        .set_dictionary_enabled(way.dictionary)
        .set_statistics_truncate_length(Some(way.cut))
        .set_column_index_truncate_length(Some(way.cut))
        .set_compression(Compression::SNAPPY)
        .set_writer_version(if way.second { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 })
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

const PLAIN: Way =
    Way { group_rows: 10_000, page_rows: 1_000, statistics: 2, offsets: true, dictionary: true, second: false, cut: 64 };

fn own_columns(file: &ParquetFile) -> Vec<Origin> {
    (0..file.schema().fields().len()).map(Origin::Column).collect()
}

fn attach(bytes: Vec<u8>) -> (SchemaRef, Vec<AttachedSlice>) {
    let file = Arc::new(ParquetFile::open(File::new(bytes)).unwrap());
    let slices = file.slices(file.schema(), &own_columns(&file)).unwrap();
    assert_eq!(slices.iter().map(|slice| slice.entry().rows).sum::<u64>(), file.rows());
    (Arc::clone(file.schema()), slices)
}

/// The rows as a dataset has them.
pub(super) fn normal(batch: &RecordBatch, schema: &SchemaRef) -> RecordBatch {
    normalise_batch(batch, schema).unwrap()
}

/// Compares all that readers of slices give with the rows of a batch.
pub(super) fn check_rows(schema: &SchemaRef, readers: &[Arc<dyn SliceReader>], expected: &RecordBatch) {
    let mut found = Vec::new();
    for reader in readers {
        found.extend(read(reader.as_ref(), request(all_columns(schema))).unwrap().0);
    }
    assert_eq!(concat_batches(schema, &found).unwrap(), *expected);
}

/// Rows that satisfy a predicate survive, and no summary rules them out.
pub(super) fn check_filters(slices: &[AttachedSlice], whole: &RecordBatch, predicates: &[Predicate]) {
    let mut first = 0;
    for slice in slices {
        let rows = slice.entry().rows as usize;
        let part = whole.slice(first, rows);
        let reader = slice.open().unwrap();
        for predicate in predicates {
            let matching = (0..rows).filter(|row| satisfies(&part, *row, predicate)).count();
            let may = may_match(std::slice::from_ref(predicate), &slice.entry().columns, rows as u64);
            assert!(may || matching == 0, "{predicate:?} {:?}", slice.entry());
            check_predicates(reader.as_ref(), &part, std::slice::from_ref(predicate), true);
        }
        first += rows;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_file_gives_its_rows_back(way in ways(), first in 0..40_000_i64, step in 1..9_usize) {
        let batch = numbered(first..first + 12_000);
        let (schema, slices) = attach(parquet(&batch, &way));
        let whole = normal(&batch, &schema);
        let readers: Vec<_> = slices.iter().map(|slice| slice.open().unwrap()).collect();
        check_rows(&schema, &readers, &whole);
        let stored: Vec<_> =
            slices.iter().map(|slice| open_slice(&schema, slice.stored().unwrap()).unwrap()).collect();
        check_rows(&schema, &stored, &whole);
        let some: Vec<Predicate> = predicates().into_iter().skip(step).step_by(9).collect();
        check_filters(&slices, &whole, &some);
    }

    #[test]
    fn files_that_lie_are_errors(at in any::<prop::sample::Index>(), flip in 1u8.., way in ways()) {
        let batch = every_type(300, false);
        let columns: Vec<usize> = (0..batch.num_columns()).collect();
        let mut bytes = parquet(&batch, &way);
        // Most of what can lie is in the footer.
        let at = bytes.len() - 1 - at.index(bytes.len().min(4_000));
        bytes[at] ^= flip;
        if let Ok(file) = ParquetFile::open(File::new(bytes)) {
            let file = Arc::new(file);
            let origins = own_columns(&file);
            for slice in file.slices(file.schema(), &origins).unwrap_or_default().into_iter().take(3) {
                if let Ok(reader) = slice.open() {
                    let asked = columns.iter().copied().filter(|column| *column < origins.len()).collect();
                    let _ = read(reader.as_ref(), request(asked));
                    let _ = slice.stored();
                }
            }
        }
    }
}

#[test]
fn every_type_is_read_where_it_lies() {
    let batch = every_type(2_500, false);
    for way in [PLAIN, Way { offsets: false, statistics: 0, group_rows: 1_000, ..PLAIN }] {
        let (schema, slices) = attach(parquet(&batch, &way));
        assert_eq!(schema.fields().len(), batch.num_columns());
        let whole = normal(&RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).unwrap(), &schema);
        let readers: Vec<_> = slices.iter().map(|slice| slice.open().unwrap()).collect();
        check_rows(&schema, &readers, &whole);
        for slice in &slices {
            let nested = |column: &usize| schema.field(*column).data_type().is_nested();
            let unknown = |column: usize| slice.entry().columns[column].nulls_unknown;
            assert!((0..schema.fields().len()).filter(nested).all(unknown));
        }
    }
}

#[test]
fn parts_of_a_row_group_give_the_rows_of_their_pages() {
    let batch = every_type(2 * PAGE_ROWS + 100, false);
    for way in [Way { group_rows: 1 << 20, ..PLAIN }, Way { group_rows: 1 << 20, offsets: false, statistics: 1, ..PLAIN }] {
        let (schema, slices) = attach(parquet(&batch, &way));
        let whole = normal(&RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).unwrap(), &schema);
        let reader = slices[0].open().unwrap();
        for columns in [vec![0], vec![9, 2, schema.fields().len() - 2], vec![]] {
            let mut set = PageSet::none(3);
            [0, 2].into_iter().for_each(|page| set.insert(page));
            let parts = reader.parts(&columns, &set).unwrap();
            let some = open_parts(&schema, parts, set.as_bytes()).unwrap();
            let (batches, _) = read(some.as_ref(), request(columns.clone())).unwrap();
            let pages = [whole.slice(0, PAGE_ROWS), whole.slice(2 * PAGE_ROWS, 100)];
            let expected = concat_batches(&schema, &pages).unwrap().project(&columns).unwrap();
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, PAGE_ROWS + 100);
            if !columns.is_empty() {
                assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected);
            }
        }
    }
}

/// A footer tells of 1,200,000 rows in one row group: they make two slices.
#[test]
fn large_row_groups_are_cut() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values((0..1_200_000).map(|row| row / 3)));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let (schema, slices) = attach(parquet(&batch, &Way { group_rows: 2_000_000, page_rows: 20_000, ..PLAIN }));
    assert_eq!(slices.iter().map(|slice| slice.entry().rows).collect::<Vec<_>>(), [1 << 20, 1_200_000 - (1 << 20)]);
    let readers: Vec<_> = slices.iter().map(|slice| slice.open().unwrap()).collect();
    check_rows(&schema, &readers, &batch);
    let bounds = &slices[1].entry().columns[0];
    assert_eq!((bounds.exact, bounds.nulls, bounds.nulls_unknown), (false, 0, false));
    let predicate = Predicate::Compare { column: 0, op: Compare::Eq, value: Value::Int(390_000) };
    let asked = ScanRequest { predicates: vec![predicate.clone()], ..request(vec![0]) };
    let stats = Arc::clone(&asked.stats);
    assert_eq!(read(readers[1].as_ref(), asked).unwrap().0.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let pages = stats.pages_read.load(Ordering::Relaxed);
    assert!((1..=4).contains(&pages), "{pages}");
    let stored = slices[1].stored().unwrap();
    assert_eq!(unseal(stored.clone()).unwrap().0.encoding, encoding("arrow").unwrap().id());
    check_rows(&schema, &[open_slice(&schema, stored).unwrap()], &batch.slice(1 << 20, 1_200_000 - (1 << 20)));
    let set = readers[1].may_match(&[predicate]).unwrap();
    let parts = readers[1].parts(&[0], &set).unwrap();
    assert!(open_parts(&schema, parts, set.as_bytes()).is_ok());
    assert!(slices.iter().all(|slice| slice.entry().bytes < SLICE_BYTES_MAX as u64));
}

#[test]
fn columns_come_from_the_file_a_folder_or_nowhere() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let batch = RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]).unwrap();
    let file = Arc::new(ParquetFile::open(File::new(parquet(&batch, &PLAIN))).unwrap());
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let wide = vec![
        field("year", DataType::Int16),
        field("n", DataType::Decimal128(20, 2)),
        field("t", DataType::Utf8View),
        field("missing", DataType::Date32),
        field("n again", DataType::Int64),
    ];
    let schema: SchemaRef = Arc::new(Schema::new(wide));
    let origins = [Origin::Text("2024".into()), Origin::Column(0), Origin::Column(1), Origin::Null, Origin::Column(0)];
    let slices = file.slices(&schema, &origins).unwrap();
    let expected: Vec<ArrayRef> = vec![
        Arc::new(arrow::array::Int16Array::from(vec![2024; 3])),
        Arc::new(
            arrow::array::Decimal128Array::from(vec![Some(700), None, Some(-300)]).with_precision_and_scale(20, 2).unwrap(),
        ),
        Arc::new(StringViewArray::from(vec!["a", "b", "c"])),
        new_null_array(&DataType::Date32, 3),
        Arc::new(Int64Array::from(vec![Some(7), None, Some(-3)])),
    ];
    let expected = RecordBatch::try_new(schema.clone(), expected).unwrap();
    let reader = slices[0].open().unwrap();
    let sent = open_slice(&schema, slices[0].stored().unwrap()).unwrap();
    check_rows(&schema, &[Arc::clone(&reader)], &expected);
    check_rows(&schema, &[Arc::clone(&sent)], &expected);
    let summaries = &slices[0].entry().columns;
    let bounds = |column: usize| (summaries[column].min.clone(), summaries[column].max.clone(), summaries[column].nulls);
    assert_eq!(bounds(0), (Some(Value::Int(2024)), Some(Value::Int(2024)), 0));
    assert_eq!(bounds(1), (Some(Value::Int(-300)), Some(Value::Int(700)), 1));
    assert_eq!(bounds(3), (None, None, 3));
    for reader in [reader, sent] {
        let predicate = Predicate::Compare { column: 1, op: Compare::Gt, value: Value::Int(0) };
        let asked = ScanRequest { predicates: vec![predicate], ..request(vec![0, 2, 3]) };
        let (batches, applied) = read(reader.as_ref(), asked).unwrap();
        assert_eq!(
            (concat_batches(&batches[0].schema(), &batches).unwrap(), applied),
            (expected.slice(0, 1).project(&[0, 2, 3]).unwrap(), vec![0])
        );
    }
    let narrow: SchemaRef = Arc::new(Schema::new(vec![field("n", DataType::Int16)]));
    let error = file.slices(&narrow, &[Origin::Column(0)]).unwrap_err().to_string();
    assert_eq!(error, "column \"n\": the file has it as Int32, the dataset as Int16");
    assert!(open_slice(&narrow, slices[0].stored().unwrap()).is_err());
}

#[test]
fn a_file_that_is_replaced_is_gone() {
    let file = File::new(parquet(&numbered(0..5_000), &PLAIN));
    let opened = Arc::new(ParquetFile::open(Arc::clone(&file) as Arc<dyn ReadAt>).unwrap());
    let slices = opened.slices(opened.schema(), &own_columns(&opened)).unwrap();
    let reader = slices[0].open().unwrap();
    *file.gone.lock().unwrap() = true;
    assert!(matches!(read(reader.as_ref(), request(vec![0])), Err(SliceError::Gone(_))));
    assert!(matches!(slices[0].stored(), Err(SliceError::Gone(_))));
    assert!(matches!(ParquetFile::open(file), Err(SliceError::Gone(_))));
}

/// Statistics leave NaN out, and may say 0.0 where there is -0.0; here NaN is above all numbers.
#[test]
fn bounds_of_floats_and_unsigned_numbers_hold() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, 5.5, f64::NAN]));
    let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![1, u32::MAX, 7, 1 << 31]));
    let batch = RecordBatch::try_from_iter([("f", floats), ("n", numbers)]).unwrap();
    let (_, slices) = attach(parquet(&batch, &PLAIN));
    let [float, number] = &slices[0].entry().columns[..] else { panic!("columns") };
    assert!(matches!(float, ColumnSummary { min: Some(Value::Float(min)), max: None, exact: false, nulls: 0, .. }
        if min.to_bits() == (-0.0_f64).to_bits()));
    assert_eq!((&number.min, &number.max), (&Some(Value::Int(1)), &Some(Value::Int(u32::MAX.into()))));
    assert!(number.exact && number.distinct == 4 && !number.nulls_unknown);
}

#[test]
fn only_what_is_asked_for_is_read() {
    let batch = numbered(0..40_000);
    let bytes = parquet(&batch, &Way { group_rows: 1 << 20, dictionary: false, ..PLAIN });
    let size = bytes.len() as u64;
    let (_, slices) = attach(bytes);
    let reader = slices[0].open().unwrap();
    let of = |columns: Vec<usize>, predicates: Vec<Predicate>| {
        let asked = ScanRequest { predicates, ..request(columns) };
        let stats = Arc::clone(&asked.stats);
        read(reader.as_ref(), asked).unwrap();
        stats.bytes.load(Ordering::Relaxed)
    };
    let near = Predicate::Compare { column: 0, op: Compare::Eq, value: Value::Int(9_000) };
    let (all, one, few) = (of((0..9).collect(), vec![]), of(vec![4], vec![]), of(vec![1], vec![near]));
    assert!(all <= size && one * 20 < size && few * 10 < size, "{all} {one} {few} of {size}");
    assert_eq!(of(vec![], vec![]), 0);
}

#[test]
fn a_schema_without_notes() {
    let field = Field::new("n", DataType::Int64, true).with_metadata([("unit".to_owned(), "mm".to_owned())].into());
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
    let (schema, _) = attach(parquet(&batch, &PLAIN));
    assert_eq!(schema.fields(), normalise(&Schema::new(vec![Field::new("n", DataType::Int64, true)])).unwrap().fields());
}
