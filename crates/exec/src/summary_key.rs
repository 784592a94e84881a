//! [`SummaryKey`]: what sub-plans are told apart by whose partial results are kept.

use std::sync::OnceLock;

use arrow::array::{Array, ArrayData, RecordBatch};
use arrow::datatypes::SchemaRef;
use pithead_door::{OpenRequest, PlanBytes, SlicePart};
use pithead_model::Level;
use pithead_plan::references;
use xxhash_rust::xxh3::Xxh3;

/// Shipped tables above this are not compared with those of other queries: that would take too long.
const INPUT_BYTES_MAX: usize = 4 << 20;

/// What sub-plans are told apart by. Its hash is seeded by chance, so that nobody can make two plans fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SummaryKey(pub(crate) u128);

/// What tells a sub-plan from others, but for the slices that it drives over. None: its partial results are not worth keeping, or too
/// long to compare.
pub fn summary_key(request: &OpenRequest) -> Option<SummaryKey> {
    let PlanBytes::Substrait(plan) = &request.plan else { return None };
    key(request, plan, Some(&request.schema))
}

/// The same of what a sub-plan reads, by a hash of it, whatever it makes of it. Different sub-plans may share it.
pub fn base_key(request: &OpenRequest, base: u64) -> Option<SummaryKey> {
    key(request, &base.to_le_bytes(), None)
}

fn key(request: &OpenRequest, plan: &[u8], schema: Option<&SchemaRef>) -> Option<SummaryKey> {
    let inputs: usize = request.inputs.iter().flat_map(|input| &input.batches).map(RecordBatch::get_array_memory_size).sum();
    // A sample answers for no slice.
    if request.options.level_max < Level::Whole || request.options.sample.is_some() || inputs > INPUT_BYTES_MAX {
        return None;
    }
    let (driving, others) = request.parts.split_first()?;
    let mut hash = Xxh3::with_seed(seed());
    let mut text = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    text(&format!("{schema:?} {} {:?}", request.whole_partition, request.options.time_zone));
    text(&format!("{:?} {:?} {} {:?}", driving.name, driving.dataset, driving.partition, driving.schema));
    // What the caller says of the order of rows decides what comes, and so does the definition of a function, with its name in the plan.
    // Neither is verified.
    text(&format!("{:?} {:?}", driving.sort, schema.map(|_| &request.options.extensions)));
    // A second scan of the driving dataset reads all of the partition, so its results hold for just these slices.
    let reads_again = matches!(&request.plan, PlanBytes::Substrait(plan) if references(plan, &driving.name) != 1);
    text(&format!("{:?}", reads_again.then_some(&driving.runs)));
    text(&format!("{} others", others.len()));
    // What the host expects of it changes no row.
    others.iter().for_each(|part| text(&format!("{:?}", SlicePart { passing: None, ..part.clone() })));
    for input in &request.inputs {
        text(&format!("{:?} {:?}", input.name, input.schema));
    }
    hash.update(&(plan.len() as u64).to_le_bytes());
    hash.update(plan);
    for input in &request.inputs {
        hash.update(&(input.batches.len() as u64).to_le_bytes());
        for batch in &input.batches {
            // A table may have rows and no columns.
            hash.update(&(batch.num_rows() as u64).to_le_bytes());
            batch.columns().iter().for_each(|column| add_array(&mut hash, &column.to_data()));
        }
    }
    Some(SummaryKey(hash.digest128()))
}

fn add_array(hash: &mut Xxh3, array: &ArrayData) {
    for number in [array.len(), array.offset(), array.buffers().len(), array.child_data().len()] {
        hash.update(&(number as u64).to_le_bytes());
    }
    let nulls = array.nulls().map(|nulls| (nulls.offset() as u64, nulls.validity()));
    hash.update(&[u8::from(nulls.is_some())]);
    if let Some((offset, bits)) = nulls {
        hash.update(&offset.to_le_bytes());
        hash.update(bits);
    }
    for buffer in array.buffers() {
        hash.update(&(buffer.len() as u64).to_le_bytes());
        hash.update(buffer);
    }
    array.child_data().iter().for_each(|child| add_array(hash, child));
}

fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(rand::random)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::RecordBatchOptions;
    use arrow::datatypes::Schema;
    use pithead_door::{SessionOptions, ShippedInput};
    use pithead_model::SortKey;

    use super::*;
    use crate::summaries::tests::{part, rows};

    fn request(plan: &'static [u8], input: Vec<i64>, runs: &[(u64, u32)]) -> OpenRequest {
        let batches = rows(input);
        OpenRequest {
            plan: PlanBytes::Substrait(plan.into()),
            manifest_version: 1,
            parts: vec![part(&[(1, 1)]), part(runs)],
            inputs: vec![ShippedInput { name: "i".into(), schema: batches[0].schema(), batches }],
            done: vec![],
            schema: Arc::new(Schema::empty()),
            whole_partition: false,
            options: SessionOptions {
                threads: 1,
                memory: 1,
                batch_rows: 1,
                level_max: Level::Whole,
                zone_maps: true,
                sample: None,
                time_zone: None,
                now_ns: 0,
                extensions: vec![],
                host: 0,
                adapt: Default::default(),
            },
        }
    }

    /// Something that names the table `main.t` as Substrait does.
    const ONCE: &[u8] = b"p\x0a\x04main\x0a\x01t";
    const TWICE: &[u8] = b"p\x0a\x04main\x0a\x01t\x0a\x04main\x0a\x01t";

    #[test]
    fn plans_inputs_and_other_datasets_are_told_apart() {
        let key = |plan, input, runs: &[(u64, u32)]| summary_key(&request(plan, input, runs)).unwrap();
        let same = key(ONCE, vec![1, 2], &[(5, 2)]);
        assert_eq!(same, key(ONCE, vec![1, 2], &[(5, 2)]));
        assert!(same != key(b"q\x0a\x04main\x0a\x01t", vec![1, 2], &[(5, 2)]));
        assert!(same != key(ONCE, vec![1, 3], &[(5, 2)]));
        assert!(same != key(ONCE, vec![1, 2], &[(6, 2)]));
        // The slices that it drives over do not count.
        let appended = |plan| {
            let parts = vec![part(&[(1, 1), (2, 9)]), part(&[(5, 2)])];
            summary_key(&OpenRequest { parts, ..request(plan, vec![1, 2], &[]) }).unwrap()
        };
        assert_eq!(same, appended(ONCE));
        // They do where they are all read a second time.
        assert!(key(TWICE, vec![1, 2], &[(5, 2)]) != appended(TWICE));
        // What the caller says of the order of rows and of functions is part of it.
        let mut ordered = request(ONCE, vec![1, 2], &[(5, 2)]);
        ordered.parts[0].sort = vec![SortKey { column: "ts".into(), descending: true }];
        let mut extended = request(ONCE, vec![1, 2], &[(5, 2)]);
        extended.options.extensions = vec!["lab.hash@00ff/wasm1 {}".into()];
        assert!([ordered, extended].iter().all(|other| summary_key(other) != Some(same)));
        // A slice of an array is not the whole.
        let whole = request(ONCE, vec![1, 2, 3], &[]);
        let mut slice = whole.clone();
        slice.inputs[0].batches[0] = slice.inputs[0].batches[0].slice(0, 2);
        assert!(summary_key(&whole) != summary_key(&slice));
    }

    /// A regression: a CROSS JOIN ships rows without columns, and one with no rows was answered as one with a row.
    #[test]
    fn rows_without_columns_count_and_so_does_whose_rows_they_are() {
        let schema: SchemaRef = Arc::new(Schema::empty());
        let with = |counts: &[Vec<usize>]| {
            let batch = |rows: &usize| {
                let options = RecordBatchOptions::new().with_row_count(Some(*rows));
                RecordBatch::try_new_with_options(Arc::clone(&schema), vec![], &options).unwrap()
            };
            let input = |counts: &Vec<usize>| ShippedInput {
                name: "i".into(),
                schema: Arc::clone(&schema),
                batches: counts.iter().map(batch).collect(),
            };
            let inputs = counts.iter().map(input).collect();
            summary_key(&OpenRequest { inputs, ..request(ONCE, vec![1], &[(5, 2)]) }).unwrap()
        };
        let tables: [&[Vec<usize>]; 5] = [&[vec![]], &[vec![0]], &[vec![1]], &[vec![1], vec![]], &[vec![], vec![1]]];
        for (at, one) in tables.iter().enumerate() {
            assert!(with(one) == with(one));
            assert!(tables[at + 1..].iter().all(|other| with(one) != with(other)), "{one:?}");
        }
    }
}
