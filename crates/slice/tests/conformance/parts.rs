//! Parts of a slice: who has those of some columns in some pages reads exactly these rows, and everything else is an error,
//! never other rows.

use pithead_model::PageSet;
use pithead_slice::{SliceParts, open_parts};

use super::*;

fn pages(of: u32, wanted: &[u32]) -> PageSet {
    let mut set = PageSet::none(of);
    wanted.iter().for_each(|page| set.insert(*page));
    set
}

/// The rows of these pages.
fn rows_of(whole: &RecordBatch, pages: &PageSet) -> RecordBatch {
    let page = |page: u32| {
        let start = page as usize * PAGE_ROWS;
        whole.slice(start, PAGE_ROWS.min(whole.num_rows() - start))
    };
    concat_batches(&whole.schema(), &pages.iter().map(page).collect::<Vec<_>>()).unwrap()
}

/// The parts as they arrive: in memory of their own.
fn sent(parts: &SliceParts) -> SliceParts {
    let parts_sent = parts.parts.iter().map(|(start, bytes)| (*start, Bytes::from(bytes.to_vec()))).collect();
    SliceParts { parts: parts_sent, ..parts.clone() }
}

#[test]
fn parts_give_the_rows_of_their_pages_and_columns() {
    each(|encoding| {
        let whole = every_type(3 * PAGE_ROWS + 100, holds_rare(encoding));
        let schema = whole.schema();
        let reader = open(encoding, std::slice::from_ref(&whole));
        let columns = schema.fields().len();
        let choices = (0..columns).map(|column| vec![column]).chain([all_columns(&schema), vec![0, columns - 1], vec![]]);
        for columns in choices {
            for wanted in [&[0, 1, 2, 3][..], &[1], &[0, 3], &[]] {
                let set = pages(4, wanted);
                let parts = reader.parts(&columns, &set).unwrap();
                let some = open_parts(&schema, sent(&parts), set.as_bytes()).unwrap();
                let (batches, _) = read(some.as_ref(), request(columns.clone())).unwrap();
                let found: usize = batches.iter().map(RecordBatch::num_rows).sum();
                let expected = rows_of(&whole, &set);
                assert_eq!((found, some.rows_of(&set)), (expected.num_rows(), expected.num_rows() as u64));
                assert_eq!(some.may_match(&[]).unwrap(), set);
                if !columns.is_empty() {
                    let expected = expected.project(&columns).unwrap();
                    assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected, "{columns:?} {wanted:?}");
                }
            }
        }
    });
}

#[test]
fn few_columns_and_pages_have_few_bytes() {
    each(|encoding| {
        let rows = 16 * PAGE_ROWS as i64;
        let text = |n: i64| format!("{:016x}{:016x}{:016x}", n * 7_919, n * n, n ^ 0x5a5a_5a5a);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..rows).map(text)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n * 7_919 % 1_000_003)));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let bytes = write(encoding, std::slice::from_ref(&batch)).len() as u64;
        let reader = open(encoding, std::slice::from_ref(&batch));
        let of = |columns: &[usize], wanted: &[u32]| reader.parts(columns, &pages(16, wanted)).unwrap().bytes();
        let all: Vec<u32> = (0..16).collect();
        assert!(of(&[0, 1], &all) <= bytes);
        match encoding.name() {
            // Their pages have values of all columns.
            "nsm" | "pax" => assert_eq!(of(&[0], &all), of(&[0, 1], &all)),
            _ => assert!(of(&[0], &all) < bytes / 2, "one of two columns: {} of {bytes}", of(&[0], &all)),
        }
        assert!(of(&[0, 1], &[3]) < bytes / 3, "one of sixteen pages: {} of {bytes}", of(&[0, 1], &[3]));
        assert!(of(&[], &[]) < bytes / 20);
    });
}

#[test]
fn what_was_not_sent_is_an_error() {
    each(|encoding| {
        let whole = every_type(3 * PAGE_ROWS, false);
        let schema = whole.schema();
        let reader = open(encoding, std::slice::from_ref(&whole));
        let set = pages(3, &[0, 2]);
        let parts = sent(&reader.parts(&[0], &set).unwrap());
        let some = open_parts(&schema, parts.clone(), set.as_bytes()).unwrap();
        for column in 1..schema.fields().len() {
            // A column may lie in the same part, where there is little between.
            let expected = rows_of(&whole, &set).project(&[column]).unwrap();
            match read(some.as_ref(), request(vec![column])) {
                Ok((batches, _)) => assert_eq!(concat_batches(&expected.schema(), &batches).unwrap(), expected),
                Err(error) => assert!(matches!(error, SliceError::Corrupt(_)), "{error}"),
            }
        }
        for bits in [&[][..], &[0b1101], &[7, 0]] {
            assert!(open_parts(&schema, parts.clone(), bits).is_err(), "{bits:?}");
        }
        let mut endless = parts.clone();
        endless.parts.pop();
        assert!(open_parts(&schema, endless, set.as_bytes()).is_err());
        assert!(open_parts(&schema, SliceParts { rows: parts.rows + 1, ..parts.clone() }, set.as_bytes()).is_err());
        assert!(open_parts(&schema, SliceParts { body_bytes: parts.body_bytes + 1, ..parts }, set.as_bytes()).is_err());
    });
}

#[test]
fn a_search_tells_which_range_gave_what() {
    each(|encoding| {
        let whole = numbered(0..20_001);
        let reader = open(encoding, std::slice::from_ref(&whole));
        for predicate in predicates() {
            let asked = || ScanRequest { predicates: vec![predicate.clone()], batch_rows: usize::MAX, ..request(vec![0]) };
            let mut search = reader.search(asked()).unwrap();
            assert_eq!(search.windows.len() as u32, reader.may_match(std::slice::from_ref(&predicate)).unwrap().len());
            let (batches, applied) = read(reader.as_ref(), asked()).unwrap();
            assert_eq!(search.applied, applied);
            let mut found = Vec::new();
            let mut context = std::task::Context::from_waker(noop_waker_ref());
            for window in &search.windows {
                let std::task::Poll::Ready(Some(batch)) = search.stream.as_mut().poll_next(&mut context) else {
                    panic!("nothing of {window:?}");
                };
                if let Some(batch) = batch.unwrap() {
                    let numbers = numbers(std::slice::from_ref(&batch));
                    // Rows and their numbers are the same in this dataset, but for an offset.
                    let first = whole.column(0).as_primitive::<Int64Type>().value(window.start as usize);
                    let last = whole.column(0).as_primitive::<Int64Type>().value(window.end as usize - 1);
                    assert!(numbers.iter().all(|number| (first..=last).contains(number)), "{window:?} {predicate:?}");
                    found.extend(numbers);
                }
            }
            assert!(matches!(search.stream.as_mut().poll_next(&mut context), std::task::Poll::Ready(None)));
            assert_eq!(found, numbers(&batches), "{predicate:?}");
        }
    });
}
