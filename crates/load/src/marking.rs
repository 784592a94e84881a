//! Rows that go from a dataset, as DELETE has them go: each drive writes what is left of the runs that lose some
//! (`drive/src/storage/marking.rs`), and one compare-and-set of the manifest names these in the place of the others. Those of an
//! UPDATE or a MERGE come back as a load of their own, under the same change.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use pithead_door::{Batches, LoadRequest, MarkRun, Marked};
use pithead_fleet::{Committed, ConnectedDrive, DatasetChange, Drives, Edit, NotCommitted, attended, discard_at};
use pithead_model::{Blame, Dataset, DatasetName, DriveId, Fault, LoadId, Manifest, SliceKey, total};

use crate::loader::{Loader, Written};
use crate::pipeline::{check_loaded, copies_of, load_request};
use crate::replacement::{Replacement, ReplacementRun, give_up, relay_to};
use crate::spec::{LoadMode, LoadSpec};

/// Which rows go.
#[derive(Clone, Debug)]
pub struct MarkSpec {
    /// Domain and dataset.
    pub name: DatasetName,
    /// The dataset as the statement read it.
    pub dataset: Arc<Dataset>,
    /// A sub-plan as Substrait over any of its slices, whose one column says of each row whether it goes.
    pub plan: Vec<u8>,
    /// The session's time zone.
    pub time_zone: Option<String>,
    /// Whether any other change of the dataset meanwhile is a conflict: rows that came might have been among those that go.
    pub alone: bool,
}

/// Rows that come, and how many go for them.
pub struct ExchangeSpec {
    /// Columns of what comes.
    pub schema: SchemaRef,
    /// What comes.
    pub rows: Batches,
    /// How many rows go; none: as many as come.
    pub gone: Option<u64>,
}

/// What one drive made.
#[derive(Default)]
struct Outcome {
    made: Vec<ReplacementRun>,
    gone: u64,
    fault: Option<Fault>,
}

impl Loader {
    /// Takes rows from a dataset: all of them are gone at the end, or none. Returns how many went; none where a drive cannot do
    /// this, and nothing was changed. [`Blame::Conflict`] if others have changed the runs meanwhile.
    pub fn mark(&self, spec: MarkSpec) -> BoxFuture<'_, Result<Option<u64>, Fault>> {
        Box::pin(self.mark_rows(spec))
    }

    /// The same, and others are added with the same change.
    pub fn exchange(&self, spec: MarkSpec, new: ExchangeSpec) -> BoxFuture<'_, Result<Option<u64>, Fault>> {
        Box::pin(self.exchange_rows(spec, new))
    }

    async fn mark_rows(&self, spec: MarkSpec) -> Result<Option<u64>, Fault> {
        let _writing = self.fleet().writing().await;
        let drives = self.fleet().connected();
        let Some((change, gone)) = self.made(&drives, &spec, vec![]).await? else { return Ok(None) };
        if !change.made.is_empty() {
            self.commit_made(&drives, &change, &change).await.map_err(|not| not.fault)?;
        }
        Ok(Some(gone))
    }

    async fn exchange_rows(&self, spec: MarkSpec, new: ExchangeSpec) -> Result<Option<u64>, Fault> {
        if !can_mark(&self.fleet().connected(), &spec.dataset) {
            return Ok(None);
        }
        let ExchangeSpec { schema, rows, gone: expected } = new;
        let over = Some(Arc::clone(&spec.dataset));
        let adding = LoadSpec { mode: LoadMode::Append, over, ..LoadSpec::new(spec.name.clone(), vec![]) };
        let written = self.write_unseen(&adding, schema, rows).await?;
        let (drives, rows) = (self.fleet().connected(), written.report.rows);
        let expected = expected.unwrap_or(rows);
        let outcome = match expected {
            0 => Ok(Some((spec.change(vec![]), 0))),
            _ => self.made(&drives, &spec, written.target.runs_at(&written.leftovers.placed)).await,
        };
        let (removed, gone) = match outcome {
            Ok(Some((removed, gone))) if gone == expected && rows > 0 => (removed, gone),
            outcome => {
                written.leftovers.delete().await;
                let Some((removed, gone)) = outcome? else { return Ok(None) };
                if gone != expected {
                    removed.give_up(&drives).await;
                    return Err(unequal(expected, gone));
                }
                if !removed.made.is_empty() {
                    self.commit_made(&drives, &removed, &removed).await.map_err(|not| not.fault)?;
                }
                return Ok(Some(gone));
            }
        };
        self.commit_exchange(&drives, &removed, written).await?;
        Ok(Some(gone))
    }

    async fn commit_exchange(&self, drives: &Drives, removed: &Replacement<'_>, mut written: Written) -> Result<(), Fault> {
        written.leftovers.hold();
        let added = written.target.change(&written.runs, written.leftovers.placed.clone());
        let change = Exchange { removed, added: DatasetChange { name: removed.name, change: &added } };
        match self.commit_made(drives, &change, removed).await {
            Ok(manifest) => {
                let Written { target, leftovers, .. } = written;
                self.clean_up(target, leftovers, None, manifest).await;
                Ok(())
            }
            Err(NotCommitted { fault, certain }) => {
                if certain {
                    written.leftovers.delete().await;
                }
                Err(fault)
            }
        }
    }

    /// What the drives make of the runs that lose rows, and how many rows these are. `written`: runs that the same change is to name.
    async fn made<'a>(
        &self,
        drives: &Drives,
        spec: &'a MarkSpec,
        written: Vec<(DriveId, SliceKey)>,
    ) -> Result<Option<(Replacement<'a>, u64)>, Fault> {
        if !can_mark(drives, &spec.dataset) {
            return Ok(None);
        }
        let mut work: BTreeMap<DriveId, Vec<(u32, LoadId)>> = BTreeMap::new();
        for (number, partition) in (0..).zip(&spec.dataset.partitions) {
            if let Some(first) = partition.copies.first() {
                let runs = partition.runs.iter().filter(|run| run.rows > 0).map(|run| (number, run.load));
                work.entry(*first).or_default().extend(runs);
            }
        }
        let begun = Mutex::new(written);
        // Side by side, and at each drive one after the other: a run takes all of its threads.
        let mut asked = Vec::with_capacity(work.len());
        for runs in work.into_values() {
            asked.push(mark_runs(drives, spec, runs, &begun));
        }
        let outcomes = attended(self.fleet(), || begun.lock().clone(), join_all(asked)).await;
        let gone = total(outcomes.iter().map(|outcome| outcome.gone));
        let (mut made, mut fault) = (Vec::new(), None);
        for outcome in outcomes {
            made.extend(outcome.made);
            fault = fault.or(outcome.fault);
        }
        let change = spec.change(made);
        if let Some(fault) = fault {
            change.give_up(drives).await;
            return if fault.blame == Blame::Unsupported { Ok(None) } else { Err(fault) };
        }
        Ok(Some((change, gone)))
    }

    /// Commits a change that names the runs that were made, and has the others deleted. The former are deleted where it is certain that
    /// no manifest will name them.
    async fn commit_made<E: Edit>(
        &self,
        drives: &Drives,
        change: &E,
        made: &Replacement<'_>,
    ) -> Result<Manifest, NotCommitted> {
        match self.fleet().commit(change).await {
            Ok(Committed { manifest, .. }) => {
                let (runs, version) = (made.runs_replaced(), manifest.version);
                tracing::info!(dataset = %made.name, runs, version, "rows were marked");
                let (fleet, replaced) = (self.fleet().own().clone(), made.replaced(version));
                self.afterwards(async move {
                    for (drives, wanted) in replaced {
                        discard_at(&fleet.connected(), drives, &wanted).await;
                    }
                })
                .await;
                Ok(manifest)
            }
            Err(not) => {
                if not.certain {
                    made.give_up(drives).await;
                }
                Err(not)
            }
        }
    }
}

impl MarkSpec {
    /// The change that names these runs.
    fn change(&self, made: Vec<ReplacementRun>) -> Replacement<'_> {
        let over = self.alone.then_some(self.dataset.as_ref());
        let schema = Arc::clone(&self.dataset.schema);
        Replacement { name: &self.name, dataset: self.dataset.id, schema, made, over }
    }
}

/// Whether all drives of a dataset are there, and none is an array.
fn can_mark(drives: &Drives, dataset: &Dataset) -> bool {
    let marks = |id: &DriveId| drives.find(*id).is_some_and(|drive| drive.welcome.merges);
    dataset.partitions.iter().flat_map(|partition| &partition.copies).all(marks)
}

fn unequal(expected: u64, gone: u64) -> Fault {
    Fault::bug(format!("{expected} rows were to go, and {gone} went"))
}

/// Rows that go, and those that come in their place.
struct Exchange<'a> {
    removed: &'a Replacement<'a>,
    added: DatasetChange<'a>,
}

impl Edit for Exchange<'_> {
    type Output = ();

    fn domain(&self) -> &str {
        self.added.domain()
    }

    fn subject(&self) -> String {
        self.added.subject()
    }

    fn apply(&self, manifest: &mut Manifest) -> Result<(), Fault> {
        self.removed.apply(manifest)?;
        self.added.apply(manifest).map(drop)
    }

    fn runs(&self) -> Vec<(DriveId, SliceKey)> {
        self.removed.runs().into_iter().chain(self.added.runs()).collect()
    }

    fn is_in(&self, manifest: &Manifest) -> bool {
        self.removed.is_in(manifest) && self.added.is_in(manifest)
    }

    fn may_be_hidden(&self, manifest: &Manifest, version: u64) -> bool {
        self.removed.may_be_hidden(manifest, version)
    }

    fn may_be_undone(&self, manifest: &Manifest, version: u64) -> bool {
        self.removed.may_be_undone(manifest, version)
    }
}

/// Runs that are written or being so, and where.
type Begun = Mutex<Vec<(DriveId, SliceKey)>>;

/// Marks runs of one drive, until it fails.
async fn mark_runs(drives: &Drives, spec: &MarkSpec, runs: Vec<(u32, LoadId)>, begun: &Begun) -> Outcome {
    let mut outcome = Outcome::default();
    for (partition, run) in runs {
        match mark_run(drives, spec, partition, run, begun).await {
            Ok((gone, made)) => {
                outcome.gone = outcome.gone.saturating_add(gone);
                outcome.made.extend(made);
            }
            Err(fault) => return Outcome { fault: Some(fault), ..outcome },
        }
    }
    outcome
}

/// Marks one run. What a failure leaves is deleted.
async fn mark_run(
    drives: &Drives,
    spec: &MarkSpec,
    partition: u32,
    run: LoadId,
    begun: &Begun,
) -> Result<(u64, Option<ReplacementRun>), Fault> {
    let MarkSpec { name, dataset, plan, time_zone, .. } = spec;
    let part = dataset.partitions.get(partition as usize).ok_or_else(|| Fault::bug("a partition that is none"))?;
    let load = LoadId(rand::random());
    let into = load_request(name, dataset, partition, load);
    let request = MarkRun { into, load: run, plan: plan.clone(), time_zone: time_zone.clone() };
    let rows = part.runs.iter().find(|known| known.load == run).map_or(0, |known| known.rows);
    let placed = part.copies.clone();
    let key = SliceKey { name: name.clone(), dataset: dataset.id, load, partition, number: None };
    begun.lock().extend(placed.iter().map(|drive| (*drive, key.clone())));
    match mark_copies(drives, request, dataset, rows, &copies_of(part, drives)?).await {
        Ok(Marked { gone, left: None, .. }) => Ok((gone, None)),
        Ok(Marked { gone, nulls_gone, left: Some(left), .. }) => {
            Ok((gone, Some(ReplacementRun { partition, from: vec![run], run: left, placed, nulls_gone: Some(nulls_gone) })))
        }
        Err(fault) => {
            give_up(drives, (name, dataset.id), partition, load, &placed).await;
            Err(fault)
        }
    }
}

/// The copies of a run of so many rows are marked side by side. One that comes to another end than the first gets what is left there,
/// byte for byte.
async fn mark_copies(
    drives: &Drives,
    request: MarkRun,
    dataset: &Dataset,
    rows: u64,
    copies: &[ConnectedDrive],
) -> Result<Marked, Fault> {
    let Some((first, others)) = copies.split_first() else { return Err(Fault::bug("a partition on no drive")) };
    let LoadRequest { load, ref name, partition, .. } = request.into;
    let key = SliceKey { name: name.clone(), dataset: dataset.id, load, partition, number: None };
    let mut outcomes = join_all(copies.iter().map(|copy| copy.door.mark_run(request.clone()))).await.into_iter();
    let marked = outcomes.next().ok_or_else(|| Fault::bug("a copy without an outcome"))?;
    let marked = marked.map_err(|fault| fault.at_drive(first.label()))?;
    let is_other = |outcome: Result<Marked, Fault>| marked.going.is_none() || outcome.ok().as_ref() != Some(&marked);
    let behind = others.iter().zip(outcomes).filter_map(|(copy, outcome)| is_other(outcome).then(|| copy.clone()));
    let behind: Vec<ConnectedDrive> = behind.collect();
    let ids: Vec<DriveId> = behind.iter().map(|copy| copy.id()).collect();
    give_up(drives, (name, dataset.id), partition, load, &ids).await;
    let left = match &marked.left {
        None if marked.gone == 0 => return Ok(marked),
        None => return Err(Fault::bug(format!("{} rows of {} went, and none are told to be left", marked.gone, key.name))),
        Some(left) => left,
    };
    check_loaded(left, dataset, load)?;
    if left.run.rows.checked_add(marked.gone) != Some(rows) {
        let what = format!("{} of {rows} rows of a run of {} went, and {} are left", marked.gone, key.name, left.run.rows);
        return Err(Fault::bug(what));
    }
    relay_to(&key, first, &behind).await?;
    Ok(marked)
}

#[cfg(test)]
mod tests;
