//! Slices with deletion marks: they have the rows that are left, in their order, for whoever asks in whatever way.

use arrow::buffer::BooleanBuffer;
use pithead_model::{PageSample, PageSet};
use pithead_slice::{MarkedSlice, describe, mark, open_parts, seal};

use super::*;

fn kept(batch: &RecordBatch, gone: &BooleanBuffer) -> RecordBatch {
    filter_record_batch(batch, &BooleanArray::new(!gone, None)).unwrap()
}

/// Every `step`-th row from `first` on.
fn every(rows: usize, first: usize, step: usize) -> BooleanBuffer {
    (0..rows).map(|row| row >= first && (row - first).is_multiple_of(step)).collect()
}

fn marked(encoding: &dyn Encoding, batch: &RecordBatch, gone: &BooleanBuffer) -> MarkedSlice {
    mark(write(encoding, std::slice::from_ref(batch)), gone).unwrap().unwrap()
}

fn all_rows(reader: &dyn SliceReader, schema: &SchemaRef, request: ScanRequest) -> RecordBatch {
    let schema = Arc::new(schema.project(&request.columns).unwrap());
    concat_batches(&schema, &read(reader, request).unwrap().0).unwrap()
}

#[test]
fn every_type_has_the_rows_that_are_left() {
    each(|encoding| {
        for (rows, step) in [(2, 2), (700, 3), (PAGE_ROWS + 9, 97), (2 * PAGE_ROWS + 5, 1_000_000)] {
            let batch = every_type(rows, holds_rare(encoding));
            let gone = every(rows, 1, step);
            let slice = marked(encoding, &batch, &gone);
            let expected = kept(&batch, &gone);
            assert_eq!((slice.rows, slice.gone), (expected.num_rows() as u64, gone.count_set_bits() as u64));
            let reader = open_slice(&batch.schema(), slice.bytes.clone()).unwrap();
            assert_eq!(reader.rows(), slice.rows);
            assert_eq!(all_rows(&*reader, &batch.schema(), request(all_columns(&batch.schema()))), expected);
            let counted: usize = read(&*reader, request(vec![])).unwrap().0.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(counted, expected.num_rows());
            let facts = describe(slice.bytes).unwrap();
            assert_eq!((facts.encoding, facts.header.rows, facts.rows_gone), (encoding.name(), slice.rows, slice.gone));
        }
    });
}

#[test]
fn marks_add_up_and_the_last_row_takes_the_slice_with_it() {
    each(|encoding| {
        let batch = numbered(0..20_000);
        let first = every(20_000, 0, 2);
        let slice = marked(encoding, &batch, &first);
        let left = kept(&batch, &first);
        let second = every(10_000, 5, 3);
        let again = mark(slice.bytes.clone(), &second).unwrap().unwrap();
        let expected = kept(&left, &second);
        assert_eq!(again.gone, 20_000 - expected.num_rows() as u64);
        let reader = open_slice(&batch.schema(), again.bytes.clone()).unwrap();
        assert_eq!(all_rows(&*reader, &batch.schema(), request(vec![0, 1])), expected.project(&[0, 1]).unwrap());
        // The marks take the place of those before.
        assert_eq!(again.bytes.len(), slice.bytes.len());
        assert_eq!(mark(slice.bytes.clone(), &every(10_000, 10_000, 1)).unwrap().unwrap().bytes, slice.bytes);
        assert!(mark(slice.bytes.clone(), &every(10_000, 0, 1)).unwrap().is_none());
        assert!(mark(slice.bytes, &every(20_000, 0, 2)).is_err());
    });
}

#[test]
fn pages_without_a_row_are_not_read_and_parts_keep_their_marks() {
    each(|encoding| {
        let rows = 3 * PAGE_ROWS + 100;
        let batch = every_type(rows, false);
        let schema = batch.schema();
        let gone = (0..rows).map(|row| row / PAGE_ROWS == 1 || row % 7 == 0).collect::<BooleanBuffer>();
        let reader = open_slice(&schema, marked(encoding, &batch, &gone).bytes).unwrap();
        let there = reader.may_match(&[]).unwrap();
        assert_eq!(there.iter().collect::<Vec<_>>(), [0, 2, 3]);
        let (columns, two) = (all_columns(&schema), {
            let mut set = PageSet::none(4);
            [1, 2].into_iter().for_each(|page| set.insert(page));
            set
        });
        let parts = reader.parts(&columns, &two).unwrap();
        let some = open_parts(&schema, parts, two.as_bytes()).unwrap();
        let page = |of: usize| (of * PAGE_ROWS, PAGE_ROWS.min(rows - of * PAGE_ROWS));
        let (start, length) = page(2);
        let expected = kept(&batch.slice(start, length), &gone.slice(start, length));
        assert_eq!(some.rows_of(&two), expected.num_rows() as u64);
        assert_eq!(all_rows(&*some, &schema, request(columns)), expected);
        let sample = ScanRequest { sample: Some(PageSample { pages: 1, seed: 3 }), ..request(vec![0]) };
        let sampled = read(&*reader, sample).unwrap().0.iter().map(RecordBatch::num_rows).sum::<usize>();
        let left_of = |of: usize| {
            let (start, length) = page(of);
            length - gone.slice(start, length).count_set_bits()
        };
        assert!([0, 2, 3].into_iter().any(|of| left_of(of) == sampled), "{sampled}");
    });
}

#[test]
fn marks_that_lie_are_refused() {
    let batch = numbered(0..100);
    let encoding = encoding("arrow").unwrap();
    let slice = marked(&*encoding, &batch, &every(100, 0, 10)).bytes;
    let (header, body) = unseal(slice).unwrap();
    let columns = batch.num_columns() as u32;
    let open = |version: u16, rows: u64, body: &[u8]| {
        let sealed = Bytes::from(seal((header.encoding.0, version), rows, columns, body));
        describe(sealed.clone()).and_then(|_| open_slice(&batch.schema(), sealed).map(drop))
    };
    let version = header.encoding.1;
    open(version, 90, &body).unwrap();
    assert!(open(version & 0xff, 90, &body).is_err(), "the header says that there are none");
    assert!(open(version, 90, &body[..body.len() - 37]).is_err(), "the body has none");
    assert!(open(version, 100, &body).is_err(), "other rows than the header says");
    let bits = body.len() - 24 - 13;
    for (at, to) in [(bits, 0x03), (bits + 12, 0xff), (body.len() - 24, 11), (body.len() - 16, 12), (body.len() - 9, 0xff)] {
        let mut lying = body.to_vec();
        lying[at] = to;
        assert!(open(version, 90, &lying).is_err(), "{at}");
    }
    // Marks of a marked body are no marks of a slice.
    let nested = [&body[..], &body[bits..]].concat();
    assert!(open(version, 90, &nested).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn predicates_and_windows_find_what_is_left(
        seed in any::<u64>(),
        share in 1u64..100,
        low in 0i64..20_000,
        batch_rows in 500usize..9_000,
    ) {
        let batch = numbered(0..20_000);
        let mut state = seed | 1;
        let gone: BooleanBuffer = (0..20_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 100 < share
        }).collect();
        prop_assume!((1..20_000).contains(&gone.count_set_bits()));
        let left = kept(&batch, &gone);
        let predicate = Predicate::Compare { column: 0, op: Compare::Ge, value: Value::Int(low.into()) };
        let holds: BooleanArray = (0..left.num_rows()).map(|row| Some(satisfies(&left, row, &predicate))).collect();
        let expected = filter_record_batch(&left, &holds).unwrap();
        for name in encoding_names() {
            let encoding = encoding(name).unwrap();
            let reader = open_slice(&batch.schema(), marked(&*encoding, &batch, &gone).bytes).unwrap();
            let asked = ScanRequest { predicates: vec![predicate.clone()], batch_rows, ..request(all_columns(&batch.schema())) };
            let (batches, applied) = read(&*reader, asked.clone()).unwrap();
            let found = concat_batches(&batch.schema(), &batches).unwrap();
            let found = match applied.is_empty() {
                false => found,
                true => {
                    let holds: BooleanArray =
                        (0..found.num_rows()).map(|row| Some(satisfies(&found, row, &predicate))).collect();
                    filter_record_batch(&found, &holds).unwrap()
                }
            };
            prop_assert_eq!(&found, &expected, "{}", name);
            let search = reader.search(ScanRequest { batch_rows: usize::MAX, ..asked }).unwrap();
            let may = reader.may_match(std::slice::from_ref(&predicate)).unwrap();
            prop_assert_eq!(search.windows.len(), may.iter().count());
            let found: usize = futures::executor::block_on_stream(search.stream)
                .map(|batch| batch.unwrap().map_or(0, |batch| batch.num_rows()))
                .sum();
            prop_assert!(found >= expected.num_rows());
        }
    }
}
