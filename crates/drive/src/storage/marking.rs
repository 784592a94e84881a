//! Marking rows: what is left of a run is written as one more run, from what is stored of it.
//!
//! A slice whose bounds show that it loses no row is not looked at. One that loses none is stored once for both runs, and so are the
//! bytes of one that loses some, with deletion marks behind them; where most of its rows are gone by then, the others are encoded
//! anew.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder};
use arrow::buffer::BooleanBuffer;
use futures::StreamExt;
use futures::stream::{self, TryStreamExt};
use pithead_device::Device;
use pithead_door::{LoadRequest, MarkRun, Marked};
use pithead_exec::{Bound, SliceRef};
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Directory, Fault, Loaded, SliceEntry, SliceKey, total};
use pithead_slice::{Encoding, Fit};
use pithead_store::{Key, Store};
use xxhash_rust::xxh3::Xxh3;

use crate::resources::{Grant, Workers};
use crate::storage::loads::{StagedSlice, adopt, check, summaries};
use crate::storage::slice_rest::{stage_left, whole};
use crate::storage::staging::SliceValue;
use crate::storage::{Filters, Lease, Storage};

/// What marking a run needs, beside its request.
pub(crate) struct Marking {
    /// The run.
    pub(crate) run: SliceKey,
    /// Its metadata slice.
    pub(crate) directory: Directory,
    /// How the dataset's columns are found in it.
    pub(crate) fit: Option<Arc<Fit>>,
    /// The sub-plan that says which rows go, over the run's slices.
    pub(crate) bound: Arc<Bound>,
    /// Held meanwhile.
    pub(crate) held: (Lease, Grant),
}

impl Storage {
    /// Writes what is left of a run as one more run, unless all of it is. The run stays; it is leased meanwhile.
    pub(crate) async fn mark_stored(&self, request: MarkRun, marking: Marking) -> Result<Marked, Fault> {
        self.shutdown.check()?;
        let Marking { run, directory, fit, bound, held } = marking;
        let marker = Marker {
            store: Arc::clone(&self.store),
            device: Arc::clone(&self.resources.device),
            workers: self.resources.workers.clone(),
            encoding: check(&request.into)?,
            slices: Slices { run, directory: Arc::new(directory) },
            filters: Arc::clone(self.slices.filters()),
            bound,
        };
        let threads = self.resources.workers.threads();
        let mark =
            async move { (marker.mark(request.into, threads).await.map(|marked| wanted(marked, fit.as_deref())), held).0 };
        self.resources.workers.run(mark).await?
    }
}

/// Marks one run.
struct Marker {
    store: Arc<dyn Store>,
    device: Arc<dyn Device>,
    workers: Workers,
    encoding: Arc<dyn Encoding>,
    slices: Slices,
    filters: Arc<Filters>,
    bound: Arc<Bound>,
}

/// The slices of the run.
#[derive(Clone)]
struct Slices {
    run: SliceKey,
    directory: Arc<Directory>,
}

impl Marker {
    async fn mark(&self, into: LoadRequest, threads: usize) -> Result<Marked, Fault> {
        let directory = &self.slices.directory;
        let found: Vec<(u32, BooleanBuffer)> = stream::iter(self.bound.may_be_true().into_iter().map(Ok))
            .map_ok(|slice| self.goes(slice))
            .try_buffer_unordered(threads)
            .try_collect()
            .await?;
        let gone = total(found.iter().map(|(_, goes)| goes.count_set_bits() as u64));
        let going = Some(checksum(&found));
        if gone == 0 {
            return Ok(Marked { gone, nulls_gone: vec![0; directory.columns.len()], going, left: None });
        }
        let mut found: HashMap<u32, BooleanBuffer> = found.into_iter().collect();
        let goes = (0..directory.slices.len() as u32).map(|number| Ok::<_, Fault>((number, found.remove(&number))));
        let made = stream::iter(goes).map_ok(|(number, goes)| self.left(number, goes));
        let made: Vec<Vec<StagedSlice>> = made.try_buffered(threads).try_collect().await?;
        let slices: Vec<StagedSlice> = made.into_iter().flatten().collect();
        let run = SliceKey { load: into.load, ..self.slices.run.clone() };
        let rows = total(slices.iter().map(|slice| slice.entry.rows));
        let mut columns = summaries(&slices, &directory.schema);
        for (column, known) in columns.iter_mut().zip(&directory.columns) {
            // There can be no more, and as a rule nearly as many.
            column.distinct = known.distinct.min(rows);
        }
        let nulls = directory.columns.iter().zip(&columns);
        let nulls_gone = nulls.map(|(before, after)| before.nulls.saturating_sub(after.nulls)).collect();
        tracing::info!(%run, from = %self.slices.run, gone, rows, slices = slices.len(), "marking rows");
        let into = LoadRequest { schema: Arc::clone(&directory.schema), metadata: directory.metadata.clone(), ..into };
        let heirs = heirs(&run, &slices);
        let left = adopt(&self.store, &self.workers, into, run, slices, columns).await?;
        let filters = Arc::clone(&self.filters);
        if let Err(fault) = self.workers.blocking(move || filters.inherit(&heirs)).await.and_then(|done| done) {
            // They are made again where they are missed.
            tracing::warn!(%fault, "filters of columns were not taken along");
        }
        Ok(Marked { gone, nulls_gone, going, left: Some(left) })
    }

    /// The number of a slice, and which of its rows go.
    async fn goes(&self, slice: SliceRef) -> Result<(u32, BooleanBuffer), Fault> {
        let mut round = self.bound.round_over(vec![slice]).await?;
        let mut goes = BooleanBufferBuilder::new(0);
        let rows_max = self.slices.directory.slices.iter().map(|slice| slice.rows).max().unwrap_or(0);
        while let Some(batch) = round.stream.next().await {
            let batch = batch.map_err(fault_from_datafusion)?;
            let column = batch.columns().first().and_then(|column| column.as_any().downcast_ref::<BooleanArray>());
            let column = column.ok_or_else(|| Fault::bug("a sub-plan that marks rows has no column of truth values"))?;
            column.iter().for_each(|goes_so| goes.append(goes_so == Some(true)));
            if goes.len() as u64 > rows_max {
                break;
            }
        }
        let [number] = round.finish().slices[..] else { return Err(Fault::bug("a round that is not of one slice")) };
        let rows = self.slices.entry(number)?.rows;
        if goes.len() as u64 != rows {
            let what = format!("the sub-plan that marks rows gave {} for a slice of {rows}", goes.len());
            return Err(Fault::new(Blame::User, what).at(self.slices.run.slice(number)));
        }
        Ok((number, goes.finish()))
    }

    /// What is left of a slice, staged; nothing where all of its rows go. Without `goes`, none does.
    async fn left(&self, number: u32, goes: Option<BooleanBuffer>) -> Result<Vec<StagedSlice>, Fault> {
        let (key, entry) = (self.slices.run.slice(number), self.slices.entry(number)?.clone());
        let Some(goes) = goes.filter(|goes| goes.count_set_bits() > 0) else { return Ok(vec![whole(&key, entry)]) };
        if goes.count_set_bits() == goes.len() {
            return Ok(Vec::new());
        }
        let bytes = entry.bytes;
        let (store, encoding, directory) =
            (Arc::clone(&self.store), Arc::clone(&self.encoding), Arc::clone(&self.slices.directory));
        let stage =
            move || stage_left(&store, &*encoding, &directory.schema, (&key, entry), &goes).map_err(|fault| fault.at(&key));
        let staged = self.workers.blocking(stage).await??;
        if let Some(wait) = self.device.read(bytes) {
            wait.await;
        }
        Ok(staged)
    }
}

/// The slices that keep bytes of a stored one, each with that one's key.
fn heirs(run: &SliceKey, slices: &[StagedSlice]) -> Vec<(SliceKey, Key)> {
    let heir = |(number, slice): (u32, &StagedSlice)| match &slice.value {
        SliceValue::Copied { from, .. } => Some((run.slice(number), from.clone())),
        SliceValue::New(_) => None,
    };
    (0..).zip(slices).filter_map(heir).collect()
}

/// Of which rows go of which slices, in any order.
fn checksum(found: &[(u32, BooleanBuffer)]) -> u64 {
    let mut losing: Vec<&(u32, BooleanBuffer)> = found.iter().filter(|(_, goes)| goes.count_set_bits() > 0).collect();
    losing.sort_by_key(|(number, _)| *number);
    let mut sum = Xxh3::new();
    for (number, goes) in losing {
        sum.update(&number.to_le_bytes());
        sum.update(&(goes.count_set_bits() as u64).to_le_bytes());
        goes.set_indices_u32().for_each(|row| sum.update(&row.to_le_bytes()));
    }
    sum.digest()
}

/// What became of a run, of the columns that the dataset has.
fn wanted(marked: Marked, fit: Option<&Fit>) -> Marked {
    let Some(fit) = fit else { return marked };
    let Marked { gone, nulls_gone, going, left } = marked;
    let left = left.map(|left| Loaded { columns: fit.summaries(&left.columns, left.run.rows), ..left });
    Marked { gone, nulls_gone: fit.nulls(&nulls_gone, gone), going, left }
}

impl Slices {
    fn entry(&self, number: u32) -> Result<&SliceEntry, Fault> {
        self.directory.slices.get(number as usize).ok_or_else(|| Fault::bug("a slice that the run does not have"))
    }
}
