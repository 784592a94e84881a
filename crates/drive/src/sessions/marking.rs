//! Which rows of a run go is what a sub-plan says: it is bound over the run's slices as a session's is.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use pithead_door::{MarkRun, Marked, PlanBytes, SlicePart, check_plan_bytes};
use pithead_exec::{BindRequest, PartData, SliceSource};
use pithead_functions::check_clock;
use pithead_model::{Fault, Level, PAGE_ROWS};

use crate::resources::{Grant, Usage};
use crate::sessions::SessionServer;
use crate::storage::{Marking, fit};

impl SessionServer {
    /// Writes what is left of a run without the rows that a sub-plan names.
    pub(crate) async fn mark_run(&self, mut request: MarkRun) -> Result<Marked, Fault> {
        check_plan_bytes(&request.plan)?;
        check_clock()?;
        self.sessions.shutdown().check()?;
        let grant = self.storage.load_grant(false).await?;
        let into = &request.into;
        let mut part = SlicePart {
            name: into.name.clone(),
            dataset: into.dataset,
            schema: Arc::clone(&into.schema),
            partition: into.partition,
            runs: vec![(request.load, 0)],
            sort: into.sort.clone(),
            passing: None,
        };
        let run = part.run(request.load);
        let lease = self.lease(std::slice::from_ref(&part))?;
        let directory = self.storage.directories.read(&run).await?;
        let fit = fit(&run, &directory.schema, &part.schema)?;
        part.runs = vec![(request.load, directory.slices.len() as u32)];
        let data = self.parts(&[part]).await?;
        let plan = PlanBytes::Substrait(std::mem::take(&mut request.plan).into());
        let bound = self.bind(self.marking(plan, data, request.time_zone.take(), &grant)?).await?;
        self.storage.mark_stored(request, Marking { run, directory, fit, bound, held: (lease, grant) }).await
    }

    /// One column of truth values over all rows, slice by slice.
    fn marking(
        &self,
        plan: PlanBytes,
        parts: Vec<PartData>,
        time_zone: Option<String>,
        grant: &Grant,
    ) -> Result<BindRequest, Fault> {
        Ok(BindRequest {
            plan,
            parts,
            inputs: Vec::new(),
            done: Vec::new(),
            held: Vec::new(),
            schema: Arc::new(Schema::new(vec![Field::new("goes", DataType::Boolean, true)])),
            whole_partition: false,
            level_max: Level::Whole,
            zone_maps: false,
            sample: None,
            batch_rows: PAGE_ROWS,
            time_zone,
            runtime: self.resources.runtimes.session(grant.bytes(), &Arc::new(Usage::default()))?,
            functions: Arc::clone(&self.functions),
            source: Arc::clone(&self.storage.slices) as Arc<dyn SliceSource>,
        })
    }
}
