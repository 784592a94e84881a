//! Arrow IPC files that lie where they are: whoever wrote them, and however, a dataset over them has their rows.

use arrow::array::{DictionaryArray, Int32Array, StringArray, new_null_array};
use arrow::datatypes::Int8Type;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow::ipc::{CompressionType, MetadataVersion};
use pithead_model::PageSet;
use pithead_slice::{ArrowFile, AttachedFile, AttachedSlice, Origin, ReadAt, open_parts};

use super::attached::{File, check_filters, check_rows, normal};
use super::*;

/// How somebody writes a file.
#[derive(Clone, Copy, Debug)]
struct Way {
    batch_rows: usize,
    compression: Option<CompressionType>,
    alignment: usize,
    /// As writers did before 2020, without marks before messages.
    old: bool,
}

const PLAIN: Way = Way { batch_rows: 5_000, compression: None, alignment: 64, old: false };

fn ways() -> impl Strategy<Value = Way> {
    let compressions = vec![None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
    let compression = prop::sample::select(compressions);
    (1_usize..9_000, compression, prop::sample::select(vec![8_usize, 64]), any::<bool>()).prop_map(
        |(batch_rows, compression, alignment, old)| {
            // Compression came later.
            Way { batch_rows, compression, alignment, old: old && compression.is_none() }
        },
    )
}

fn arrow_file(batch: &RecordBatch, way: &Way) -> Vec<u8> {
    let version = if way.old { MetadataVersion::V4 } else { MetadataVersion::V5 };
    let options = IpcWriteOptions::try_new(way.alignment, way.old, version).unwrap();
    let options = options.try_with_compression(way.compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    for start in (0..batch.num_rows()).step_by(way.batch_rows) {
        writer.write(&batch.slice(start, way.batch_rows.min(batch.num_rows() - start))).unwrap();
    }
    writer.into_inner().unwrap()
}

fn own_columns(file: &dyn AttachedFile) -> Vec<Origin> {
    (0..file.schema().fields().len()).map(Origin::Column).collect()
}

fn open_file(bytes: Vec<u8>) -> Arc<ArrowFile> {
    Arc::new(ArrowFile::open(File::new(bytes)).unwrap())
}

fn attach(bytes: Vec<u8>) -> (SchemaRef, Vec<AttachedSlice>) {
    let file = open_file(bytes);
    let slices = Arc::clone(&file).attach(file.schema(), &own_columns(&*file)).unwrap();
    assert_eq!(slices.iter().map(|slice| slice.entry().rows).sum::<u64>(), file.rows());
    (Arc::clone(file.schema()), slices)
}

fn check(schema: &SchemaRef, slices: &[AttachedSlice], whole: &RecordBatch) {
    let readers: Vec<_> = slices.iter().map(|slice| slice.open().unwrap()).collect();
    check_rows(schema, &readers, whole);
    let stored: Vec<_> = slices.iter().map(|slice| open_slice(schema, slice.stored().unwrap()).unwrap()).collect();
    check_rows(schema, &stored, whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_file_gives_its_rows_back(way in ways(), first in 0..40_000_i64, step in 1..9_usize) {
        let batch = numbered(first..first + 12_000);
        let (schema, slices) = attach(arrow_file(&batch, &way));
        let whole = normal(&batch, &schema);
        check(&schema, &slices, &whole);
        let some: Vec<Predicate> = predicates().into_iter().skip(step).step_by(9).collect();
        check_filters(&slices, &whole, &some);
    }

    #[test]
    fn files_that_lie_are_errors(at in any::<prop::sample::Index>(), flip in 1u8.., way in ways()) {
        let batch = every_type(300, false);
        let mut bytes = arrow_file(&batch, &way);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(file) = ArrowFile::open(File::new(bytes)) {
            let file = Arc::new(file);
            let origins = own_columns(&*file);
            for slice in Arc::clone(&file).attach(file.schema(), &origins).unwrap_or_default().into_iter().take(3) {
                if slice.entry().rows < 1 << 20 && let Ok(reader) = slice.open() {
                    let _ = read(reader.as_ref(), request((0..origins.len()).collect()));
                    let _ = slice.stored();
                }
            }
        }
    }
}

#[test]
fn every_type_is_read_where_it_lies() {
    let batch = every_type(2_500, false);
    for way in [PLAIN, Way { batch_rows: 700, compression: Some(CompressionType::ZSTD), ..PLAIN }] {
        let (schema, slices) = attach(arrow_file(&batch, &way));
        let whole = normal(&RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).unwrap(), &schema);
        check(&schema, &slices, &whole);
        for column in 0..schema.fields().len() {
            let reader = slices[0].open().unwrap();
            let (batches, _) = read(reader.as_ref(), request(vec![column])).unwrap();
            assert_eq!(concat_batches(&batches[0].schema(), &batches).unwrap(), whole.project(&[column]).unwrap());
        }
    }
}

#[test]
fn texts_and_dictionaries_have_the_types_of_datasets() {
    let codes = || (0..20_000).map(|row| (row % 7 != 0).then(|| ["north", "south", "a much longer name"][row % 3]));
    let texts: ArrayRef = Arc::new(StringArray::from_iter(codes()));
    let dictionary: ArrayRef = Arc::new(codes().collect::<DictionaryArray<Int8Type>>());
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20_000));
    let fields = [("n", Arc::clone(&numbers), true), ("code", dictionary, true), ("text", texts, true)];
    let batch = RecordBatch::try_from_iter_with_nullable(fields).unwrap();
    let views: ArrayRef = Arc::new(StringViewArray::from_iter(codes()));
    let expected = RecordBatch::try_from_iter_with_nullable([
        ("n", numbers, true),
        ("code", Arc::clone(&views), true),
        ("text", views, true),
    ]);
    for way in [PLAIN, Way { compression: Some(CompressionType::LZ4_FRAME), ..PLAIN }] {
        let (schema, slices) = attach(arrow_file(&batch, &way));
        assert_eq!(schema.field(1).data_type(), &DataType::Utf8View);
        check(&schema, &slices, expected.as_ref().unwrap());
    }
}

#[test]
fn small_batches_make_one_slice_and_a_large_one_several() {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..600_000));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let (schema, slices) = attach(arrow_file(&batch, &Way { batch_rows: 1_000, ..PLAIN }));
    assert_eq!(slices.iter().map(|slice| slice.entry().rows).collect::<Vec<_>>(), [262_000, 262_000, 76_000]);
    check(&schema, &slices, &batch);
    let (schema, slices) = attach(arrow_file(&batch, &Way { batch_rows: 600_000, ..PLAIN }));
    assert_eq!(slices.iter().map(|slice| slice.entry().rows).collect::<Vec<_>>(), [262_144, 262_144, 75_712]);
    check(&schema, &slices, &batch);
    assert!(attach(arrow_file(&batch.slice(0, 0), &PLAIN)).1.is_empty());
}

#[test]
fn parts_give_the_rows_of_their_pages() {
    let batch = every_type(2 * PAGE_ROWS + 100, false);
    let (schema, slices) = attach(arrow_file(&batch, &PLAIN));
    let whole = normal(&RecordBatch::try_new(schema.clone(), batch.columns().to_vec()).unwrap(), &schema);
    let reader = slices[0].open().unwrap();
    for columns in [vec![0], vec![9, 2, schema.fields().len() - 2], vec![]] {
        let mut set = PageSet::none(3);
        [0, 2].into_iter().for_each(|page| set.insert(page));
        let parts = reader.parts(&columns, &set).unwrap();
        let some = open_parts(&schema, parts, set.as_bytes()).unwrap();
        let (batches, _) = read(some.as_ref(), request(columns.clone())).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), PAGE_ROWS + 100);
        if !columns.is_empty() {
            let pages = [whole.slice(0, PAGE_ROWS), whole.slice(2 * PAGE_ROWS, 100)];
            let expected = concat_batches(&schema, &pages).unwrap().project(&columns).unwrap();
            assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected);
        }
    }
}

#[test]
fn columns_come_from_the_file_a_folder_or_nowhere() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-3)]));
    let batch = RecordBatch::try_from_iter_with_nullable([("n", numbers, true)]).unwrap();
    let file = open_file(arrow_file(&batch, &Way { batch_rows: 2, ..PLAIN }));
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let fields = vec![field("year", DataType::Int64), field("n", DataType::Int64), field("missing", DataType::Utf8View)];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let origins = [Origin::Text("2024".into()), Origin::Column(0), Origin::Null];
    let slices = Arc::clone(&file).attach(&schema, &origins).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![2024; 3])),
        Arc::new(Int64Array::from(vec![Some(7), None, Some(-3)])),
        new_null_array(&DataType::Utf8View, 3),
    ];
    check(&schema, &slices, &RecordBatch::try_new(schema.clone(), columns).unwrap());
    let summaries = &slices[0].entry().columns;
    assert_eq!((&summaries[0].min, &summaries[0].max), (&Some(Value::Int(2024)), &Some(Value::Int(2024))));
    assert!(summaries[1].nulls_unknown && summaries[1].min.is_none() && summaries[1].max.is_none());
    let narrow: SchemaRef = Arc::new(Schema::new(vec![field("n", DataType::Int16)]));
    let error = file.attach(&narrow, &[Origin::Column(0)]).unwrap_err().to_string();
    assert_eq!(error, "column \"n\": the file has it as Int32, the dataset as Int16");
}

#[test]
fn only_what_is_asked_for_is_read() {
    let bytes = arrow_file(&numbered(0..40_000), &PLAIN);
    let size = bytes.len() as u64;
    let (_, slices) = attach(bytes);
    let reader = slices[0].open().unwrap();
    let of = |columns: Vec<usize>| {
        let asked = request(columns);
        let stats = Arc::clone(&asked.stats);
        read(reader.as_ref(), asked).unwrap();
        stats.bytes.load(Ordering::Relaxed)
    };
    let (all, one) = (of((0..9).collect()), of(vec![0]));
    assert!(all <= size && one == 40_000 * 8, "{all} {one} of {size}");
    assert_eq!(of(vec![]), 0);
}

#[test]
fn a_file_that_is_replaced_is_gone() {
    let file = File::new(arrow_file(&numbered(0..5_000), &PLAIN));
    let opened = Arc::new(ArrowFile::open(Arc::clone(&file) as Arc<dyn ReadAt>).unwrap());
    let slices = Arc::clone(&opened).attach(opened.schema(), &own_columns(&*opened)).unwrap();
    let reader = slices[0].open().unwrap();
    *file.gone.lock().unwrap() = true;
    assert!(matches!(read(reader.as_ref(), request(vec![0])), Err(SliceError::Gone(_))));
    assert!(matches!(slices[0].stored(), Err(SliceError::Gone(_))));
    assert!(matches!(ArrowFile::open(file), Err(SliceError::Gone(_))));
}

#[test]
fn what_is_no_arrow_file_is_refused_with_a_sentence() {
    let batch = numbered(0..100);
    let mut stream = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    stream.write(&batch).unwrap();
    let stream = stream.into_inner().unwrap();
    let whole = arrow_file(&batch, &PLAIN);
    for (bytes, expected) in [
        (stream, "a stream has no footer"),
        (b"FEA1 and so on".to_vec(), "first version"),
        (b"ARROW1".to_vec(), "cut off"),
        (whole[..whole.len() / 2].to_vec(), "damaged slice"),
        (Vec::new(), "no Arrow IPC file"),
    ] {
        let error = ArrowFile::open(File::new(bytes)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
