//! Pages as databases have them: how many rows they have, what of them is read, and what of them is believed.

use arrow::array::{Int32Array, NullArray};
use pithead_model::PageSet;
use pithead_slice::{HEADER_BYTES, open_parts, seal};

use super::*;

const PAGE_BYTES: usize = 8_192;

fn each_layout(check: impl Fn(&dyn Encoding)) {
    ["nsm", "pax"].into_iter().for_each(|name| check(encoding(name).unwrap().as_ref()));
}

/// Whole numbers in so many columns, as the experiments of Do et al. 2013 have them.
fn synthetic(columns: i32, rows: i32) -> RecordBatch {
    let column = |column: i32| -> ArrayRef { Arc::new(Int32Array::from_iter_values((0..rows).map(|row| row * 64 + column))) };
    RecordBatch::try_from_iter((0..columns).map(|number| (format!("column_{number}"), column(number)))).unwrap()
}

/// The rows of each page of a slice, as its headers say; each page of a run counts as none.
fn rows_of_pages(slice: &Bytes) -> Vec<u16> {
    let pages = slice[HEADER_BYTES..].chunks_exact(PAGE_BYTES).take_while(|page| page.starts_with(b"PHPG"));
    pages.map(|page| u16::from_le_bytes([page[8], page[9]])).collect()
}

#[test]
fn as_many_rows_fit_as_in_the_paper() {
    for (columns, nsm, pax) in [(4, 323, 489), (16, 109, 121), (64, 29, 30)] {
        let batch = synthetic(columns, 1_000);
        for (name, most) in [("nsm", nsm), ("pax", pax)] {
            let rows = rows_of_pages(&write(encoding(name).unwrap().as_ref(), std::slice::from_ref(&batch)));
            assert_eq!((rows[0], rows.iter().map(|rows| usize::from(*rows)).sum()), (most, 1_000), "{name} {columns}");
        }
    }
}

/// What a scan of these columns gives, and the bytes that it read.
fn counted(reader: &dyn SliceReader, asked: ScanRequest) -> (usize, u64) {
    let stats = asked.stats.clone();
    let rows = read(reader, asked).unwrap().0.iter().map(RecordBatch::num_rows).sum();
    (rows, stats.bytes.load(Ordering::Relaxed))
}

#[test]
fn whole_pages_are_read_and_counted_once() {
    each_layout(|encoding| {
        let batch = synthetic(16, 20_000);
        let slice = write(encoding, std::slice::from_ref(&batch));
        let all = (rows_of_pages(&slice).len() * PAGE_BYTES) as u64;
        let reader = open_slice(&batch.schema(), slice).unwrap();
        for (columns, batch_rows) in [(vec![0], PAGE_ROWS), ((0..16).collect(), PAGE_ROWS), (vec![3, 7], 50)] {
            assert_eq!(counted(&*reader, ScanRequest { batch_rows, ..request(columns) }), (20_000, all));
        }
        assert_eq!(counted(&*reader, request(Vec::new())), (20_000, 0));
        let last = Predicate::Compare { column: 0, op: Compare::Ge, value: Value::Int(19_999 * 64) };
        let (rows, bytes) = counted(&*reader, ScanRequest { predicates: vec![last], ..request(vec![5]) });
        assert!(rows == 1 && 0 < bytes && bytes < all / 4, "{bytes} of {all}");
    });
}

/// Texts that are longer than a page, and rows that are, among such that are not.
#[test]
fn what_is_longer_than_a_page_has_a_run_of_pages() {
    let texts = |rows: Range<usize>, long: usize| -> ArrayRef {
        let text = |row: usize| (row % 7 != 3).then(|| "é".repeat(if row.is_multiple_of(5) { long } else { row % 40 }));
        Arc::new(StringViewArray::from_iter(rows.map(text)))
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..60).map(|row| (row % 4 != 1).then_some(row))));
    let columns = [("n", numbers), ("a", texts(0..60, 4_000)), ("b", texts(2..62, 50_000)), ("c", texts(1..61, 4_090))];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
    each_layout(|encoding| {
        let reader = open(encoding, std::slice::from_ref(&batch));
        let predicate = Predicate::Compare { column: 0, op: Compare::Eq, value: Value::Int(40) };
        let (batches, _) = read(&*reader, ScanRequest { predicates: vec![predicate], ..request(vec![2, 0, 1, 3]) }).unwrap();
        assert_eq!(batches, [batch.slice(40, 1).project(&[2, 0, 1, 3]).unwrap()]);
        let (batches, _) = read(&*reader, ScanRequest { batch_rows: 7, ..request(vec![0, 1, 2, 3]) }).unwrap();
        assert_eq!(concat_batches(&batch.schema(), &batches).unwrap(), batch);
    });
}

#[test]
fn columns_without_values_have_rows() {
    let nothing: ArrayRef = Arc::new(NullArray::new(20_000));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", nothing.clone(), true), ("b", nothing, true)]).unwrap();
    each_layout(|encoding| {
        let reader = open(encoding, std::slice::from_ref(&batch));
        let (batches, _) = read(&*reader, request(vec![1, 0])).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    });
}

/// Rows that a scan of a body gives, whose header tells the truth.
fn rows_of(schema: &SchemaRef, encoding: &dyn Encoding, rows: u64, body: &[u8]) -> Result<usize, SliceError> {
    let slice = Bytes::from(seal(encoding.id(), rows, schema.fields().len() as u32, body));
    let reader = open_slice(schema, slice)?;
    let (batches, _) = read(&*reader, request(all_columns(schema)))?;
    Ok(batches.iter().map(RecordBatch::num_rows).sum())
}

/// Two slots for one record, a minipage over another, a run that has no end: each is an error.
#[test]
fn pages_that_lie_are_refused() {
    let batch = small(0..600);
    for (name, lies) in [
        ("nsm", vec![(PAGE_BYTES - 4, 96), (PAGE_BYTES - 2, 95), (PAGE_BYTES - 2, 8_190), (98, 0), (98 + 10, 3)]),
        ("pax", vec![(96, 101), (96, 8_193), (98, 103), (98, 8_000), (100, 200)]),
    ] {
        let encoding = encoding(name).unwrap();
        let slice = write(&*encoding, std::slice::from_ref(&batch));
        let body = &slice[HEADER_BYTES..];
        assert_eq!(rows_of(&batch.schema(), &*encoding, 600, body).unwrap(), 600);
        let heads =
            [(0, 0), (4, 3), (5, 12), (6, 3), (8, 0), (8, 0xffff), (12, 0), (12, 2), (14, 0xffff), (16, 1), (22, 0xffff)];
        for (at, number) in lies.into_iter().chain(heads) {
            let mut lying = body.to_vec();
            lying[at..at + 2].copy_from_slice(&(number as u16).to_le_bytes());
            let error = rows_of(&batch.schema(), &*encoding, 600, &lying).expect_err(&format!("{name} {at} {number}"));
            assert!(matches!(error, SliceError::Corrupt(_)) && !error.to_string().contains("gave up"), "{name} {at}: {error}");
        }
    }
}

/// Pages of another group do not take the place of those that were not sent.
#[test]
fn groups_are_sent_as_wholes() {
    each_layout(|encoding| {
        let batch = numbered(0..20_000);
        let reader = open(encoding, std::slice::from_ref(&batch));
        let mut second = PageSet::none(3);
        second.insert(1);
        let parts = reader.parts(&[0], &second).unwrap();
        assert!(parts.parts.len() == 2 && parts.bytes() < parts.body_bytes / 2, "{} parts", parts.parts.len());
        let some = open_parts(&batch.schema(), parts.clone(), second.as_bytes()).unwrap();
        let (batches, _) = read(&*some, request(vec![1, 8])).unwrap();
        let expected = batch.slice(PAGE_ROWS, PAGE_ROWS).project(&[1, 8]).unwrap();
        assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected);
        let lying = open_parts(&batch.schema(), parts, &[0b011]).unwrap();
        assert!(matches!(read(&*lying, request(vec![1])), Err(SliceError::Corrupt(_))));
    });
}
