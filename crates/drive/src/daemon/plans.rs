//! [`Drive::run_plan`]: a sub-plan over what a drive has of a dataset, for clients of protocols without hosts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use futures::StreamExt;
use pithead_door::{Door, Event, OpenRequest, PlanBytes, SessionOptions, SlicePart, batch_bytes};
use pithead_exec::output_schema;
use pithead_model::lasting::plain_columns;
use pithead_model::{
    Adapt, Blame, DatasetName, Fault, FaultKind, Level, LoadId, PAGE_ROWS, Partition, Reply, SessionId, boxed,
};

use super::Drive;
use crate::programs::{plain, plain_schema};

/// Memory that a session over a partition asks for, in bytes.
const MEMORY: u64 = 256 << 20;

/// A sub-plan of a client without a host.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The dataset that it reads.
    pub dataset: DatasetName,
    /// The plan as Substrait, in which the dataset is the named table `[domain, dataset]`.
    pub plan: Bytes,
    /// Functions of users that it calls, `name/version`.
    pub extensions: Vec<String>,
    /// How long it may take.
    pub run: Duration,
    /// Bytes of its rows at most.
    pub bytes_max: usize,
}

/// What such a sub-plan puts out: batches of all partitions, one partition after the other.
#[derive(Clone, Debug)]
pub struct PlanRows {
    /// The columns; texts and binaries are no views, which few libraries read.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// The partitions that it ran over.
    pub partitions: usize,
}

impl Drive {
    /// Runs a sub-plan over each partition whose first copy is here: so who asks all drives gets the rows of all partitions once. A
    /// partition is taken as a whole, and a sub-plan that aggregates has an answer for each. Which runs there are, this drive's copy of
    /// the domain's manifest says.
    ///
    /// [`Blame::Limit`]: the drive is busy, it took too long, or its rows are too many.
    #[boxed]
    pub async fn run_plan(&self, request: PlanRequest) -> Result<PlanRows, Fault> {
        let name = &request.dataset;
        let missing = || {
            let what = format!("this drive has no part of a dataset {name}");
            Fault::invalid(what)
                .of_kind(FaultKind::NoTable)
                .hint("ask the drives that have its partitions: `pithead status` shows them")
        };
        let manifest = self.storage.read_manifest(name.domain.clone()).await?.ok_or_else(missing)?;
        let dataset = manifest.datasets.get(&name.dataset).ok_or_else(missing)?;
        let functions = self.programs.registry(&request.extensions, &self.serving.functions).await?;
        let schema = output_schema(&request.plan, name, &plain_columns(&dataset.schema), functions).await?;
        let columns = Arc::new(plain_schema(&schema));
        let mut rows = PlanRows { schema: Arc::clone(&columns), batches: Vec::new(), partitions: 0 };
        let (mut left, until) = (request.bytes_max, tokio::time::Instant::now() + request.run);
        let ours = (0..).zip(&dataset.partitions).filter(|(_, partition)| partition.copies.first() == Some(&self.storage.id));
        for (number, partition) in ours {
            let part = SlicePart {
                name: name.clone(),
                dataset: dataset.id,
                schema: Arc::clone(&dataset.schema),
                partition: number,
                runs: runs_of(partition),
                sort: dataset.sort.clone(),
                passing: None,
            };
            let open = OpenRequest {
                plan: PlanBytes::Substrait(request.plan.clone()),
                manifest_version: manifest.version,
                parts: vec![part],
                inputs: vec![],
                done: vec![],
                schema: Arc::clone(&schema),
                whole_partition: true,
                options: self.options(&request),
            };
            let session = match self.open(open).await?.reply {
                Reply::Granted(granted) => granted.session,
                Reply::Busy { why, .. } => return Err(Fault::new(Blame::Limit, format!("the drive is busy: {why}"))),
            };
            let taken = tokio::time::timeout_at(until, self.rows_of(session, &mut left)).await;
            self.close(session).await?;
            let late = |_| Fault::new(Blame::Limit, format!("the sub-plan took longer than {:?}", request.run));
            for batch in taken.map_err(late)?? {
                rows.batches.push(plain(&batch, &columns)?);
            }
            rows.partitions += 1;
        }
        Ok(rows)
    }

    fn options(&self, request: &PlanRequest) -> SessionOptions {
        SessionOptions {
            threads: self.resources.workers.threads() as u32,
            memory: MEMORY,
            batch_rows: PAGE_ROWS,
            level_max: Level::Whole,
            zone_maps: true,
            sample: None,
            time_zone: None,
            now_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as i64),
            extensions: request.extensions.clone(),
            host: 0,
            adapt: Adapt::default(),
        }
    }

    /// The rows of a session's closed rounds. `left`: bytes that there may still be.
    async fn rows_of(&self, session: SessionId, left: &mut usize) -> Result<Vec<RecordBatch>, Fault> {
        let mut events = self.get(session).await?;
        let (mut rounds, mut rows): (HashMap<u32, Vec<RecordBatch>>, _) = (HashMap::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event? {
                Event::Rows { round, batch, .. } => {
                    let too_many =
                        || Fault::new(Blame::Limit, "the sub-plan puts out too many rows: let it aggregate, or filter");
                    *left = left.checked_sub(batch_bytes(&batch)).ok_or_else(too_many)?;
                    rounds.entry(round).or_default().push(batch);
                }
                Event::Closed { annotation, .. } => rows.extend(rounds.remove(&annotation.round).unwrap_or_default()),
                Event::Finished { .. } => return Ok(rows),
                Event::Filtered { .. } | Event::Stored { .. } | Event::Hints { .. } => {
                    return Err(Fault::bug("a sub-plan without a host was pushed back"));
                }
            }
        }
        Err(Fault::new(Blame::Device, "the session ended before all slices were answered for"))
    }
}

fn runs_of(partition: &Partition) -> Vec<(LoadId, u32)> {
    partition.runs.iter().map(|run| (run.load, run.slices)).collect()
}
