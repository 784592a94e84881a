//! [`Summaries`]: partial results over slices, which never change, kept for the next query that can use them (Montana
//! et al. 2023, Skytether, section 7; see `docs/bibliography.md`).
//!
//! A summary stands for a set of slices under one sub-plan. It answers for them in any query whose slices contain the set, so an
//! append leaves it valid, and whatever replaces slices leaves it behind.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use arrow::array::{Array, ArrayData, RecordBatch};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;
use pithead_door::{OpenRequest, PlanBytes, SlicePart, batch_bytes};
use pithead_model::{Level, LoadId};
use pithead_plan::references;
use xxhash_rust::xxh3::Xxh3;

/// Summaries of one sub-plan at most: of several runs of slices that nothing has put together yet.
const OF_ONE_MAX: usize = 4;
/// Shipped tables above this are not compared with those of other queries: that would take too long.
const INPUT_BYTES_MAX: usize = 4 << 20;

/// What sub-plans are told apart by. Its hash is seeded by chance, so that nobody can make two plans fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SummaryKey(u128);

/// A slice by the load that wrote it. Loads have identities of their own, so this tells versions apart, too.
pub type SliceVersion = (LoadId, u32);

/// Summaries, least recently used out first.
#[derive(Debug)]
pub struct Summaries {
    budget: usize,
    kept: Mutex<SummaryTable>,
}

/// The summaries by key, and what they take of the budget.
#[derive(Debug, Default)]
struct SummaryTable {
    by_key: HashMap<SummaryKey, Vec<KeptSummary>>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct KeptSummary {
    slices: HashSet<SliceVersion>,
    batches: Vec<RecordBatch>,
    bytes: usize,
    used: u64,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct SummaryHit {
    /// The partial results.
    pub batches: Vec<RecordBatch>,
    /// The slices that they answer for, by number in the driving partition, ascending.
    pub slices: Vec<u32>,
}

impl Summaries {
    /// None kept yet; at most `budget` bytes of them, and an eighth of that for one.
    pub fn new(budget: u64) -> Summaries {
        Summaries { budget: usize::try_from(budget).unwrap_or(usize::MAX), kept: Mutex::default() }
    }

    /// Bytes that one summary may have.
    pub fn bytes_max(&self) -> usize {
        self.budget / 8
    }

    /// How many there are, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let kept = self.kept.lock();
        (kept.by_key.values().map(Vec::len).sum(), kept.bytes)
    }

    /// The summary that answers for most of these slices, and for none besides. `done`: numbers that it must not answer for. `whole`:
    /// it must answer for all of them.
    pub fn find(&self, key: SummaryKey, part: &SlicePart, done: impl Fn(u32) -> bool, whole: bool) -> Option<SummaryHit> {
        let numbers: HashMap<SliceVersion, u32> = versions(part).zip(0..).filter(|(_, number)| !done(*number)).collect();
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let now = kept.clock;
        let summaries = kept.by_key.get_mut(&key)?;
        let fits = |summary: &&mut KeptSummary| {
            summary.slices.iter().all(|slice| numbers.contains_key(slice)) && (!whole || summary.slices.len() == numbers.len())
        };
        let best = summaries.iter_mut().filter(fits).max_by_key(|summary| summary.slices.len())?;
        best.used = now;
        let mut slices: Vec<u32> = best.slices.iter().filter_map(|slice| numbers.get(slice).copied()).collect();
        slices.sort_unstable();
        Some(SummaryHit { batches: best.batches.clone(), slices })
    }

    /// Keeps what a sub-plan gave for these slices, by number in the driving partition. One that is too large is not kept.
    pub fn keep(&self, key: SummaryKey, part: &SlicePart, slices: &[u32], batches: Vec<RecordBatch>) {
        let bytes: usize = batches.iter().map(batch_bytes).sum();
        let all: Vec<SliceVersion> = versions(part).collect();
        let slices: HashSet<SliceVersion> = slices.iter().filter_map(|slice| all.get(*slice as usize).copied()).collect();
        if bytes > self.bytes_max() || slices.is_empty() {
            return;
        }
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let used = kept.clock;
        let summaries = kept.by_key.entry(key).or_default();
        let covered = |summary: &mut KeptSummary| summary.slices.is_subset(&slices);
        let mut freed: usize = summaries.extract_if(.., covered).map(|summary| summary.bytes).sum();
        summaries.push(KeptSummary { slices, batches, bytes, used });
        if summaries.len() > OF_ONE_MAX
            && let Some(oldest) = summaries.iter().enumerate().min_by_key(|(_, summary)| summary.used).map(|(place, _)| place)
        {
            freed += summaries.swap_remove(oldest).bytes;
        }
        kept.bytes = (kept.bytes + bytes).saturating_sub(freed);
        kept.shrink(self.budget);
    }
}

impl SummaryTable {
    fn shrink(&mut self, budget: usize) {
        while self.bytes > budget {
            let newest = |summaries: &Vec<KeptSummary>| summaries.iter().map(|summary| summary.used).max().unwrap_or(0);
            let oldest = self.by_key.iter().min_by_key(|(_, summaries)| newest(summaries)).map(|(key, _)| *key);
            let Some(gone) = oldest.and_then(|key| self.by_key.remove(&key)) else { return };
            self.bytes = self.bytes.saturating_sub(gone.iter().map(|summary| summary.bytes).sum());
        }
    }
}

/// The slices of a part, in order.
fn versions(part: &SlicePart) -> impl Iterator<Item = SliceVersion> + '_ {
    part.runs.iter().flat_map(|(load, count)| (0..*count).map(|number| (*load, number)))
}

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

    use arrow::array::{ArrayRef, Int64Array, RecordBatchOptions};
    use arrow::datatypes::Schema;
    use pithead_door::{SessionOptions, ShippedInput};
    use pithead_model::DatasetId;

    use super::*;

    fn part(runs: &[(u64, u32)]) -> SlicePart {
        SlicePart {
            name: "t".parse().unwrap(),
            dataset: DatasetId(1),
            schema: Arc::new(Schema::empty()),
            partition: 0,
            runs: runs.iter().map(|(load, count)| (LoadId(*load), *count)).collect(),
            sort: vec![],
            passing: None,
        }
    }

    fn rows(values: Vec<i64>) -> Vec<RecordBatch> {
        vec![RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()]
    }

    const KEY: SummaryKey = SummaryKey(7);

    #[test]
    fn a_summary_answers_while_its_slices_are_there() {
        let summaries = Summaries::new(1 << 20);
        summaries.keep(KEY, &part(&[(1, 3)]), &[0, 1, 2], rows(vec![6]));
        let find = |runs: &[(u64, u32)], whole| summaries.find(KEY, &part(runs), |_| false, whole).map(|found| found.slices);
        assert_eq!(find(&[(1, 3)], true), Some(vec![0, 1, 2]));
        // An append, before or behind: it still answers for its own.
        assert_eq!(find(&[(2, 2), (1, 3)], false), Some(vec![2, 3, 4]));
        assert_eq!(find(&[(2, 2), (1, 3)], true), None);
        // Something else in its place.
        assert_eq!(find(&[(3, 3)], false), None);
        assert!(summaries.find(KEY, &part(&[(1, 3)]), |slice| slice == 1, false).is_none());
        assert!(summaries.find(SummaryKey(8), &part(&[(1, 3)]), |_| false, false).is_none());
        // A larger one takes the place of those in it.
        summaries.keep(KEY, &part(&[(2, 2), (1, 3)]), &[0, 1, 2, 3, 4], rows(vec![9]));
        assert_eq!(find(&[(2, 2), (1, 3)], true), Some(vec![0, 1, 2, 3, 4]));
        assert_eq!((find(&[(1, 3)], false), summaries.size()), (None, (1, 8)));
    }

    #[test]
    fn the_budget_holds() {
        let summaries = Summaries::new(8 * 100);
        for key in 0..20 {
            summaries.keep(SummaryKey(key), &part(&[(1, 1)]), &[0], rows(vec![0; 10]));
        }
        assert_eq!(summaries.size(), (10, 800));
        assert!(summaries.find(SummaryKey(9), &part(&[(1, 1)]), |_| false, false).is_none());
        assert!(summaries.find(SummaryKey(10), &part(&[(1, 1)]), |_| false, false).is_some());
        summaries.keep(SummaryKey(30), &part(&[(1, 1)]), &[0], rows(vec![0; 20]));
        assert!(summaries.find(SummaryKey(30), &part(&[(1, 1)]), |_| false, false).is_none());
    }

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
