//! Match hints: the pages of a slice that may have rows that a sub-plan needs, which is what level 1 sends (Jo et al. 2016,
//! YourSQL; see `docs/bibliography.md`). Bounds rule pages out first. Then conditions that slices understand are searched for,
//! with the byte-pattern matcher where the encoding has texts for it; everything else of the sub-plan is left to the host.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_expr::PhysicalExpr;
use futures::StreamExt;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, PageSet, ScanShare, boxed};
use pithead_slice::{Predicate, ReadStats, ScanRequest, Search, SliceParts, SliceReader};
use tokio::task::yield_now;

use crate::keep::keep;
use crate::level::Filtered;
use crate::pruning::{Conjunct, columns_of};
use crate::read::expression;
use crate::round::Cost;
use crate::{Bound, SliceRef};

/// Pages of a slice after which searching ends, unless it has ruled one of eight out by then.
const TRIAL_PAGES: u32 = 8;

/// The pages of one slice that may have rows that the sub-plan needs.
#[derive(Debug)]
pub struct Hinted {
    /// What is stored of them, in the columns that the sub-plan reads.
    pub parts: SliceParts,
    /// The pages.
    pub pages: PageSet,
    /// Their rows.
    pub rows: u64,
    /// Bytes of the parts of all pages that bounds alone leave.
    pub bounded_bytes: u64,
    /// Pages that were searched.
    pub pages_searched: u32,
    /// Bytes of the slice that the search has read.
    pub bytes_read: u64,
    /// What the byte-pattern matcher did. Nothing else of the slice was scanned.
    pub scan: ScanShare,
}

impl Bound {
    /// Looks for the pages of a driving slice that may have rows that the sub-plan needs. Without `search`, by their bounds only.
    /// A bug where [`Bound::can_carry`] is false.
    #[boxed]
    pub async fn hint(&self, slice: &SliceRef, search: bool) -> Result<Hinted, Fault> {
        let (part, filtered) = self.driving().ok_or_else(|| Fault::new(Blame::Bug, "the sub-plan has no driving scan"))?;
        let reader = slice.fitted(part.source.open(slice).await?);
        let predicates = predicates(&filtered.conditions);
        let mut bounded = reader.may_match(if part.zone_maps { &predicates } else { &[] })?;
        if part.zone_maps && !part.source.may_match(slice, &predicates).await {
            bounded = PageSet::none(bounded.pages());
        }
        let columns = filtered.columns(&part.schema);
        let mut found =
            PageSearch { pages: bounded.clone(), searched: 0, stats: Arc::default(), zone_maps: part.zone_maps, predicates };
        if search && !bounded.is_empty() && !found.predicates.is_empty() {
            found.search(&*reader, filtered).await.map_err(|fault| fault.at(&slice.key))?;
        }
        let parts = part.source.parts(&reader, &columns, &found.pages).await?;
        let bounded_bytes = match found.pages == bounded {
            true => parts.bytes(),
            false => part.source.parts(&reader, &columns, &bounded).await?.bytes(),
        };
        let cost = Cost::default();
        let bytes_read = cost.drain(&found.stats);
        let (rows, pages_searched) = (reader.rows_of(&found.pages), found.searched);
        Ok(Hinted { parts, pages: found.pages, rows, bounded_bytes, pages_searched, bytes_read, scan: cost.matcher() })
    }
}

/// A search as it runs.
struct PageSearch {
    /// Those that are left.
    pages: PageSet,
    searched: u32,
    stats: Arc<ReadStats>,
    zone_maps: bool,
    predicates: Vec<Predicate>,
}

impl PageSearch {
    /// Rules out pages that have no row which satisfies all conditions that slices understand. Ends early where all pages
    /// seem to have one.
    async fn search(&mut self, reader: &dyn SliceReader, filtered: &Filtered) -> Result<(), Fault> {
        let (mut search, rest) = self.start(reader, filtered)?;
        let none = PageSet::none(self.pages.pages());
        let bounded = std::mem::replace(&mut self.pages, none);
        let places: Vec<u32> = bounded.iter().collect();
        if search.windows.len() != places.len() {
            return Err(Fault::new(Blame::Bug, format!("{} ranges in {} pages", search.windows.len(), places.len())));
        }
        for page in &places {
            if self.searched >= TRIAL_PAGES && self.pages.len() > self.searched - self.searched.div_ceil(8) {
                // All that is left may match, for all that is known.
                places.iter().skip(self.searched as usize).for_each(|page| self.pages.insert(*page));
                return Ok(());
            }
            let Some(batch) = search.stream.next().await else {
                return Err(Fault::new(Blame::Bug, "a search ended before its last page"));
            };
            if let Some(batch) = batch?
                && has_row(&batch, rest.as_ref())?
            {
                self.pages.insert(*page);
            }
            self.searched += 1;
            yield_now().await;
        }
        Ok(())
    }

    /// Starts to search. Which conditions the encoding applies shows in its answer; the others are left to evaluate.
    fn start(&self, reader: &dyn SliceReader, filtered: &Filtered) -> Result<(Search, Option<Arc<dyn PhysicalExpr>>), Fault> {
        let understood: Vec<&Conjunct> = filtered.conditions.iter().filter(|condition| condition.converted.is_some()).collect();
        let first = reader.search(self.request(vec![]))?;
        let left = understood.iter().enumerate().filter(|(place, _)| !first.applied.contains(place)).map(|(_, left)| *left);
        let left: Vec<&Conjunct> = left.filter(|condition| condition.is_exact()).collect();
        if left.is_empty() {
            return Ok((first, None));
        }
        let mut columns: Vec<usize> = left.iter().flat_map(|condition| columns_of(&condition.expr)).collect();
        columns.sort_unstable();
        columns.dedup();
        let rest = expression(left, &columns, false).map_err(fault_from_datafusion)?;
        Ok((reader.search(self.request(columns))?, rest))
    }

    /// One range of rows a page.
    fn request(&self, columns: Vec<usize>) -> ScanRequest {
        ScanRequest {
            columns,
            predicates: self.predicates.clone(),
            keys: Vec::new(),
            zone_maps: self.zone_maps,
            sample: None,
            batch_rows: usize::MAX,
            stats: Arc::clone(&self.stats),
        }
    }
}

/// What slices understand of the conditions.
fn predicates(conditions: &[Conjunct]) -> Vec<Predicate> {
    conditions.iter().filter_map(|condition| Some(condition.converted.as_ref()?.predicate.clone())).collect()
}

fn has_row(batch: &RecordBatch, rest: Option<&Arc<dyn PhysicalExpr>>) -> Result<bool, Fault> {
    let rows = match rest {
        Some(rest) => keep(batch, rest).map_err(fault_from_datafusion)?.num_rows(),
        None => batch.num_rows(),
    };
    Ok(rows > 0)
}
