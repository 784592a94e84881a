//! Filters are wanted, made, kept and lost.

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field, Schema};
use pithead_device::Native;
use pithead_model::{DatasetId, LoadId, SliceEntry, Value};
use pithead_sched::{Pool, PoolOptions};
use pithead_slice::{Compare, Fit};
use pithead_store::MemoryStore;

use super::*;

fn schema(columns: &[(&str, DataType)]) -> SchemaRef {
    let field = |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

fn open(store: &Arc<MemoryStore>, bytes_max: u64) -> Filters {
    let options = PoolOptions { name: "test".into(), cores: None, reactors: 1, blocking_threads_max: 2 };
    let workers = Workers::new(Arc::new(Pool::new(options).unwrap()));
    Filters::open(Arc::clone(store) as Arc<dyn Store>, workers, Arc::new(Native::new()), bytes_max)
}

fn slice(load: u64, number: u32, fit: Option<Arc<Fit>>) -> SliceRef {
    let run = SliceKey { name: "t".parse().unwrap(), dataset: DatasetId(1), load: LoadId(load), partition: 0, number: None };
    let entry = Arc::new(SliceEntry { rows: 3, bytes: 100, columns: vec![] });
    SliceRef { ordinal: number, key: run.slice(number), entry, fit, filtered: None, came: None }
}

fn equal(column: usize, value: i128) -> [Predicate; 1] {
    [Predicate::Compare { column, op: Compare::Eq, value: Value::Int(value) }]
}

fn of(values: &[i64]) -> ValueFilter {
    let column: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let mut filter = ValueFilter::with_room(values.len() as u64).unwrap();
    filter.insert(&column);
    filter
}

fn wanted(slice: &SliceRef, column: usize) -> WantedFilter {
    WantedFilter { slice: slice.key.clone(), schema: schema(&[("a", DataType::Int64)]), column }
}

#[test]
fn a_column_is_wanted_once_it_was_read_in_vain_twice() {
    let filters = open(&Arc::default(), 1 << 20);
    let part = schema(&[("a", DataType::Int64), ("f", DataType::Float64)]);
    let one = slice(1, 0, None);
    let both: Vec<Predicate> = equal(0, 7).into_iter().chain(equal(1, 7)).collect();
    filters.read_in_vain(&one, &part, &both);
    filters.read_in_vain(&slice(1, 1, None), &part, &both);
    assert!(filters.next_wanted().is_none(), "each of them once");
    (0..5).for_each(|_| filters.read_in_vain(&one, &part, &both));
    let next = filters.next_wanted().unwrap();
    assert_eq!((&next.slice, next.column), (&one.key, 0));
    assert!(filters.next_wanted().is_none(), "floats have no filters, and one is enough");
    filters.refuse(&next);
    (0..5).for_each(|_| filters.read_in_vain(&one, &part, &both));
    assert!(filters.next_wanted().is_none(), "it is not worth it");
}

#[test]
fn where_a_filter_comes_to_nothing_another_one_is_wanted() {
    let filters = open(&Arc::default(), 1 << 20);
    let names: Vec<String> = (0..=FILTERS_MAX).map(|number| format!("c{number}")).collect();
    let part = schema(&names.iter().map(|name| (name.as_str(), DataType::Int64)).collect::<Vec<_>>());
    let one = slice(1, 0, None);
    let each = |column| (0..3).for_each(|_| filters.read_in_vain(&one, &part, &equal(column, 7)));
    (0..=FILTERS_MAX).for_each(each);
    let queued: Vec<WantedFilter> = std::iter::from_fn(|| filters.next_wanted()).collect();
    assert_eq!(queued.len(), FILTERS_MAX);
    queued.iter().for_each(|wanted| filters.refuse(wanted));
    (0..=FILTERS_MAX).for_each(each);
    let last = filters.next_wanted().map(|wanted| wanted.column);
    assert_eq!((last, filters.next_wanted().is_none()), (Some(FILTERS_MAX), true));
}

#[test]
fn a_slice_has_a_bounded_number_of_filters() {
    let filters = open(&Arc::default(), 1 << 20);
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let part = schema(&names.iter().map(|name| (name.as_str(), DataType::Int64)).collect::<Vec<_>>());
    let one = slice(1, 0, None);
    let any = [Predicate::Any((0..100).flat_map(|column| equal(column, 7)).collect())];
    (0..2).for_each(|_| filters.read_in_vain(&one, &part, &any));
    let wanted: Vec<WantedFilter> = std::iter::from_fn(|| filters.next_wanted()).collect();
    assert_eq!(wanted.len(), FILTERS_MAX);
    // While these are made, others are asked for.
    (0..2).for_each(|_| filters.read_in_vain(&one, &part, &any));
    let more = std::iter::from_fn(|| filters.next_wanted());
    wanted.iter().chain(&more.collect::<Vec<_>>()).for_each(|wanted| filters.put(wanted, &of(&[1])).unwrap());
    let columns: Vec<WantedFilter> = (10..20).map(|column| self::wanted(&one, column)).collect();
    columns.iter().for_each(|wanted| filters.put(wanted, &of(&[1])).unwrap());
    assert_eq!(filters.count(), FILTERS_MAX as u64);
}

#[test]
fn a_filter_that_was_not_made_is_asked_for_again() {
    let filters = open(&Arc::default(), 1 << 20);
    let (one, part) = (slice(1, 0, None), schema(&[("a", DataType::Int64)]));
    for _ in 0..2 {
        (0..2).for_each(|_| filters.read_in_vain(&one, &part, &equal(0, 7)));
        assert_eq!(filters.next_wanted().unwrap().column, 0);
        assert!(filters.next_wanted().is_none());
    }
}

#[test]
fn a_filter_is_made_once_however_often_it_is_asked_for_meanwhile() {
    let filters = open(&Arc::default(), 1 << 20);
    let (one, part) = (slice(1, 0, None), schema(&[("a", DataType::Int64)]));
    for is_refused in [true, false] {
        filters.wanted.lock().reads_in_vain.clear();
        (0..2).for_each(|_| filters.read_in_vain(&one, &part, &equal(0, 7)));
        let making = filters.next_wanted().unwrap();
        (0..5).for_each(|_| filters.read_in_vain(&one, &part, &equal(0, 7)));
        match is_refused {
            true => filters.refuse(&making),
            false => filters.put(&making, &of(&[1])).unwrap(),
        }
        assert!(filters.next_wanted().is_none());
    }
}

#[tokio::test]
async fn filters_outlast_the_drive_and_go_with_their_run() {
    let store = Arc::<MemoryStore>::default();
    let (one, other) = (slice(1, 0, None), slice(2, 0, None));
    let filters = open(&store, 1 << 20);
    filters.put(&wanted(&one, 0), &of(&[1, 2, 3])).unwrap();
    filters.put(&wanted(&other, 0), &of(&[4])).unwrap();
    drop(filters);
    let filters = open(&store, 1 << 20);
    assert_eq!(filters.count(), 2);
    for _ in 0..2 {
        assert!(filters.may_match(&one, &equal(0, 2)).await && !filters.may_match(&one, &equal(0, 4)).await);
        assert!(filters.may_match(&one, &equal(1, 4)).await, "there is none of this column");
        assert!(!filters.may_match(&other, &equal(0, 2)).await);
    }
    let part = schema(&[("a", DataType::Int64)]);
    (0..5).for_each(|_| filters.read_in_vain(&one, &part, &equal(0, 2)));
    assert!(filters.next_wanted().is_none(), "there is one");
    filters.forget(&SliceKey { number: None, ..one.key.clone() });
    assert_eq!(filters.count(), 1);
    assert!(filters.may_match(&one, &equal(0, 4)).await && !filters.may_match(&other, &equal(0, 2)).await);
}

#[tokio::test]
async fn slices_that_have_lost_rows_inherit_filters() {
    let store = Arc::<MemoryStore>::default();
    let (one, other, next) = (slice(1, 0, None), slice(1, 1, None), slice(2, 0, None));
    let filters = open(&store, 1 << 20);
    filters.put(&wanted(&one, 0), &of(&[1, 2, 3])).unwrap();
    let key = |slice: &SliceRef| Key::from(slice.key.to_string());
    filters.inherit(&[(next.key.clone(), key(&one)), (slice(2, 1, None).key, key(&other))]).unwrap();
    assert_eq!(filters.count(), 2, "the other has none");
    filters.forget(&SliceKey { number: None, ..one.key.clone() });
    store.write(vec![Write::delete(filter_key(&one.key, 0))], Durability::Back).unwrap();
    for filters in [&filters, &open(&store, 1 << 20)] {
        assert!(filters.may_match(&next, &equal(0, 2)).await && !filters.may_match(&next, &equal(0, 4)).await);
    }
    // One that is gone meanwhile.
    filters.there.lock().insert(one.key.clone(), BTreeSet::from([0]));
    assert!(filters.inherit(&[(slice(3, 0, None).key, key(&one))]).is_err());
    assert!(filters.may_match(&slice(3, 0, None), &equal(0, 4)).await);
}

#[tokio::test]
async fn a_column_that_was_renamed_or_widened_has_the_same_filter() {
    let store = Arc::<MemoryStore>::default();
    let stored = schema(&[("a", DataType::Int32), ("b", DataType::Int32)]);
    let part = schema(&[("b", DataType::Int64), ("a", DataType::Int64)]);
    let fit = Fit::of(&stored, &part).unwrap();
    let filters = open(&store, 1 << 20);
    let moved = slice(1, 0, fit);
    filters.put(&wanted(&moved, 1), &of(&[1, 2, 3])).unwrap();
    assert!(filters.may_match(&moved, &equal(0, 3)).await && !filters.may_match(&moved, &equal(0, 4)).await);
    assert!(filters.may_match(&moved, &equal(1, 4)).await);
    (0..2).for_each(|_| filters.read_in_vain(&moved, &part, &equal(1, 4)));
    let next = filters.next_wanted().unwrap();
    assert_eq!((next.column, next.schema), (0, stored), "by its place among the stored ones");
}

#[tokio::test]
async fn a_damaged_filter_rules_nothing_out_and_is_made_again() {
    let store = Arc::<MemoryStore>::default();
    let one = slice(1, 0, None);
    open(&store, 0).put(&wanted(&one, 0), &of(&[1, 2, 3])).unwrap();
    let key = filter_key(&one.key, 0);
    let mut bytes = store.get(&key).unwrap().unwrap().0.to_vec();
    bytes[20] ^= 1;
    store.write(vec![Write::put(key.clone(), bytes)], Durability::Back).unwrap();
    let filters = open(&store, 0);
    assert!(filters.may_match(&one, &equal(0, 4)).await && filters.may_match(&one, &equal(0, 2)).await);
    assert_eq!(filters.count(), 0);
    assert!(store.get(&key).unwrap().is_none());
    (0..2).for_each(|_| filters.read_in_vain(&one, &schema(&[("a", DataType::Int64)]), &equal(0, 4)));
    assert!(filters.next_wanted().is_some());
}

#[tokio::test]
async fn memory_is_bounded() {
    let store = Arc::<MemoryStore>::default();
    let filters = open(&store, 100);
    for load in 0..10 {
        let slice = slice(load, 0, None);
        filters.put(&wanted(&slice, 0), &of(&[1])).unwrap();
        assert!(!filters.may_match(&slice, &equal(0, 4)).await);
        assert!(filters.kept.lock().bytes <= 100);
    }
    assert!(!filters.may_match(&slice(0, 0, None), &equal(0, 4)).await, "read again");
    assert_eq!(filters.kept.lock().filters.len(), 3);
}
