//! [`Summaries`]: partial results over slices, which never change, kept for the next query that can use them (Montana
//! et al. 2023, Skytether, section 7; see `docs/bibliography.md`).
//!
//! A summary stands for a set of slices under one sub-plan. It answers for them in any query whose slices contain the set, so an
//! append leaves it valid, and whatever replaces slices leaves it behind.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use pithead_door::{SlicePart, batch_bytes};
use pithead_model::LoadId;

use crate::summary_key::SummaryKey;

/// Summaries of one sub-plan at most: of several runs of slices that nothing has put together yet.
const OF_ONE_MAX: usize = 4;
/// Summaries at most, however small.
const SUMMARIES_MAX: usize = 65_536;
/// Bytes beside the values of what is kept: of a summary with its places in the tables, of a batch, of a column.
const OWN_BYTES: (usize, usize, usize) = (512, 1_024, 128);

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
    /// The key of each summary by when it was used last, which no two share.
    by_use: BTreeMap<u64, SummaryKey>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct KeptSummary {
    slices: SliceVersions,
    batches: Vec<RecordBatch>,
    bytes: usize,
    used: u64,
}

/// Slices as spans of their loads: a load with the numbers of its first slice and of the one behind the last.
#[derive(Debug)]
struct SliceVersions {
    spans: Box<[(LoadId, u32, u32)]>,
    count: usize,
}

impl SliceVersions {
    fn new(slices: impl Iterator<Item = SliceVersion>) -> SliceVersions {
        let (mut spans, mut count) = (Vec::<(LoadId, u32, u32)>::new(), 0);
        for (load, number) in slices {
            count += 1;
            match spans.last_mut() {
                Some((last, _, end)) if *last == load && *end == number => *end += 1,
                _ => spans.push((load, number, number + 1)),
            }
        }
        SliceVersions { spans: spans.into(), count }
    }

    fn iter(&self) -> impl Iterator<Item = SliceVersion> + '_ {
        self.spans.iter().flat_map(|(load, first, end)| (*first..*end).map(|number| (*load, number)))
    }
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
    /// None kept yet; at most `budget` bytes of them with what holds them, and an eighth of that for one.
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
        (kept.by_use.len(), kept.bytes)
    }

    /// The summary that answers for most of these slices, and for none besides. `done`: numbers that it must not answer for. `whole`:
    /// it must answer for all of them.
    pub fn find(&self, key: SummaryKey, part: &SlicePart, done: impl Fn(u32) -> bool, whole: bool) -> Option<SummaryHit> {
        let numbers: HashMap<SliceVersion, u32> = versions(part).zip(0..).filter(|(_, number)| !done(*number)).collect();
        let mut kept = self.kept.lock();
        let SummaryTable { by_key, by_use, clock, .. } = &mut *kept;
        let summaries = by_key.get_mut(&key)?;
        let fits = |summary: &&mut KeptSummary| {
            summary.slices.iter().all(|slice| numbers.contains_key(&slice)) && (!whole || summary.slices.count == numbers.len())
        };
        let best = summaries.iter_mut().filter(fits).max_by_key(|summary| summary.slices.count)?;
        *clock += 1;
        by_use.remove(&best.used);
        by_use.insert(*clock, key);
        best.used = *clock;
        let mut slices: Vec<u32> = best.slices.iter().filter_map(|slice| numbers.get(&slice).copied()).collect();
        slices.sort_unstable();
        Some(SummaryHit { batches: best.batches.clone(), slices })
    }

    /// Keeps what a sub-plan gave for these slices, by number in the driving partition. One that is too large is not kept.
    pub fn keep(&self, key: SummaryKey, part: &SlicePart, slices: &[u32], batches: Vec<RecordBatch>) {
        let wanted: HashSet<u32> = slices.iter().copied().collect();
        let slices: Vec<SliceVersion> =
            versions(part).zip(0..).filter(|(_, number)| wanted.contains(number)).map(|(slice, _)| slice).collect();
        let kept = KeptSummary::new(SliceVersions::new(slices.iter().copied()), batches);
        if kept.bytes <= self.bytes_max() && !slices.is_empty() {
            self.kept.lock().add(key, kept, &slices.into_iter().collect(), self.budget);
        }
    }
}

impl KeptSummary {
    fn new(slices: SliceVersions, batches: Vec<RecordBatch>) -> KeptSummary {
        let (own, of_batch, of_column) = OWN_BYTES;
        let bytes = |batch: &RecordBatch| batch_bytes(batch) + of_batch + batch.num_columns() * of_column;
        let bytes = own + size_of_val(&*slices.spans) + batches.iter().map(bytes).sum::<usize>();
        KeptSummary { slices, batches, bytes, used: 0 }
    }
}

impl SummaryTable {
    /// Takes in a summary of these slices, in place of those that answer for none besides.
    fn add(&mut self, key: SummaryKey, mut summary: KeptSummary, slices: &HashSet<SliceVersion>, budget: usize) {
        self.clock += 1;
        summary.used = self.clock;
        let summaries = self.by_key.entry(key).or_default();
        let covered = |summary: &mut KeptSummary| summary.slices.iter().all(|slice| slices.contains(&slice));
        let mut gone: Vec<(u64, usize)> = summaries.extract_if(.., covered).map(|gone| (gone.used, gone.bytes)).collect();
        self.bytes += summary.bytes;
        self.by_use.insert(summary.used, key);
        summaries.push(summary);
        if summaries.len() > OF_ONE_MAX
            && let Some(oldest) = summaries.iter().enumerate().min_by_key(|(_, summary)| summary.used).map(|(place, _)| place)
        {
            let oldest = summaries.swap_remove(oldest);
            gone.push((oldest.used, oldest.bytes));
        }
        for (used, bytes) in gone {
            self.by_use.remove(&used);
            self.bytes -= bytes;
        }
        self.shrink(budget);
    }

    fn shrink(&mut self, budget: usize) {
        while self.bytes > budget || self.by_use.len() > SUMMARIES_MAX {
            let Some((used, key)) = self.by_use.pop_first() else { return };
            let Entry::Occupied(mut of_key) = self.by_key.entry(key) else { continue };
            self.bytes -= of_key.get_mut().extract_if(.., |summary| summary.used == used).map(|gone| gone.bytes).sum::<usize>();
            if of_key.get().is_empty() {
                of_key.remove();
            }
        }
    }
}

/// The slices of a part, in order.
fn versions(part: &SlicePart) -> impl Iterator<Item = SliceVersion> + '_ {
    part.runs.iter().flat_map(|(load, count)| (0..*count).map(|number| (*load, number)))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::Schema;
    use pithead_model::DatasetId;

    use super::*;

    pub(crate) fn part(runs: &[(u64, u32)]) -> SlicePart {
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

    pub(crate) fn rows(values: Vec<i64>) -> Vec<RecordBatch> {
        vec![RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(values)) as ArrayRef)]).unwrap()]
    }

    const KEY: SummaryKey = SummaryKey(7);

    /// What a summary of so many spans, and of one batch with so many rows of one column, takes.
    fn weight(spans: usize, rows: usize) -> usize {
        512 + spans * 16 + 1_024 + 128 + rows * 8
    }

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
        assert_eq!((find(&[(1, 3)], false), summaries.size()), (None, (1, weight(2, 1))));
    }

    #[test]
    fn the_budget_holds() {
        let budget = 10 * weight(1, 10);
        let summaries = Summaries::new(budget as u64);
        for key in 0..20 {
            summaries.keep(SummaryKey(key), &part(&[(1, 1)]), &[0], rows(vec![0; 10]));
        }
        assert_eq!(summaries.size(), (10, budget));
        assert!(summaries.find(SummaryKey(9), &part(&[(1, 1)]), |_| false, false).is_none());
        assert!(summaries.find(SummaryKey(10), &part(&[(1, 1)]), |_| false, false).is_some());
        summaries.keep(SummaryKey(30), &part(&[(1, 1)]), &[0], rows(vec![0; 100]));
        assert!(summaries.find(SummaryKey(30), &part(&[(1, 1)]), |_| false, false).is_none());
        // One that was found stays longer than those that were not.
        summaries.keep(SummaryKey(31), &part(&[(1, 1)]), &[0], rows(vec![0; 10]));
        assert!(summaries.find(SummaryKey(10), &part(&[(1, 1)]), |_| false, false).is_some());
        assert!(summaries.find(SummaryKey(11), &part(&[(1, 1)]), |_| false, false).is_none());
    }

    /// A regression: only rows counted, so that summaries without any were kept for ever.
    #[test]
    fn summaries_without_rows_take_room_too() {
        let summaries = Summaries::new(1 << 20);
        let part = part(&[(1, 1_000)]);
        let (all, odd): (Vec<u32>, Vec<u32>) = ((0..1_000).collect(), (0..1_000).filter(|number| number % 2 == 1).collect());
        for key in 0..5_000 {
            summaries.keep(SummaryKey(key), &part, &all, vec![]);
        }
        assert_eq!(summaries.size().0, (1 << 20) / (512 + 16));
        for key in 0..5_000 {
            summaries.keep(SummaryKey(key), &part, &odd, vec![]);
        }
        let (count, bytes) = summaries.size();
        assert!((1..=(1 << 20) / (500 * 16)).contains(&count) && bytes <= 1 << 20, "{count} {bytes}");
        assert_eq!(summaries.find(SummaryKey(4_999), &part, |_| false, false).map(|hit| hit.slices), Some(odd));
    }
}
