//! A snapshot's domains as the schemas that SQL names resolve in.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::CatalogProviderList;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result, TableReference};
use datafusion::datasource::{MemTable, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{TableScan, TableType};
use parking_lot::Mutex;
use pithead_entry::{Identity, Right};
use pithead_fleet::{Drives, Fleet, Snapshot, VersionedDataset};
use pithead_model::{Blame, DatasetName, Fault, boxed};
use pithead_pg_catalog::{Facts, PG_CATALOG};
use pithead_plan::{Catalogue, DatasetFacts};

use crate::Frames;
use crate::as_of::Moment;
use crate::file_tables::Files;
use crate::functions::Functions;
use crate::information::{self, Routines, routines_of};
use crate::table::DatasetTable;
use crate::views::{self, Expander};

/// The one catalog, whose schemas are the domains.
pub(crate) const CATALOG: &str = "pithead";

/// Datasets as tables. What planning finds out of one is kept for as long as its version is the newest, since that takes a
/// millisecond and more where there are thousands of columns.
#[derive(Debug, Default)]
pub(crate) struct Tables(Mutex<HashMap<DatasetName, Arc<DatasetTable>>>);

impl Tables {
    fn table(&self, found: &Arc<VersionedDataset>) -> Arc<DatasetTable> {
        let mut tables = self.0.lock();
        if let Some(table) = tables.get(found.name()).filter(|table| Arc::ptr_eq(table.found(), found)) {
            return Arc::clone(table);
        }
        // Of what no snapshot has any more, only the table is left that was made of it.
        tables.retain(|_, table| Arc::strong_count(table.found()) > 1);
        let table = Arc::new(DatasetTable::new(Arc::clone(found)));
        tables.insert(found.name().clone(), Arc::clone(&table));
        table
    }
}

/// What a session's client sees.
#[derive(Clone, Debug)]
pub(crate) struct ClientView {
    /// Who it is.
    pub(crate) caller: Arc<Identity>,
    /// What PostgreSQL's catalogue is made of.
    pub(crate) facts: Arc<Facts>,
}

/// What the names of one statement are looked up in.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) snapshot: Arc<Snapshot>,
    /// What versions of before are found by.
    pub(crate) past: Past,
    pub(crate) tables: Arc<Tables>,
    /// The dataset that the statement makes, which need not be there yet.
    pub(crate) made: Option<DatasetName>,
    /// Tables that come with the statement, in the session's domain.
    pub(crate) frames: Frames,
    /// The session's domain.
    pub(crate) domain: String,
    /// Whose statement it is; none: the process's own.
    pub(crate) client: Option<ClientView>,
    /// What views are planned with; none: there are no views.
    pub(crate) expander: Option<Arc<Expander>>,
    /// The views whose query this is, the outermost one first.
    pub(crate) expanding: Vec<DatasetName>,
    /// Whether files in a FROM may be read.
    pub(crate) may_read_files: bool,
}

/// What finds a dataset as it was.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) fleet: Fleet,
    /// The session's, for times without one; none: UTC.
    pub(crate) time_zone: Option<String>,
}

impl Scope {
    /// A dataset as of a moment.
    async fn as_of(&self, name: &DatasetName, moment: &Moment) -> Result<Arc<VersionedDataset>, Fault> {
        let is_frame = self.domain == name.domain && self.frames.find(&name.dataset).is_some();
        if is_frame {
            let what = format!("{} is a table of the program that asks, and has no versions", name.dataset);
            return Err(Fault::new(Blame::Unsupported, what));
        }
        let at = moment.resolve(self.past.time_zone.as_deref()).await?;
        self.past.fleet.as_of(&self.snapshot, name, at).await
    }
}

/// A list of catalogs with one.
pub(crate) fn catalogs(scope: Scope) -> Arc<dyn CatalogProviderList> {
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(CATALOG.to_owned(), Arc::new(Domains(Arc::new(scope))));
    Arc::new(list)
}

#[derive(Debug)]
struct Domains(Arc<Scope>);

impl Domains {
    fn may_read(&self, domain: &str) -> bool {
        self.0.client.as_ref().is_none_or(|client| client.caller.may(Right::Read, domain))
    }
}

impl CatalogProvider for Domains {
    fn schema_names(&self) -> Vec<String> {
        self.0.snapshot.domains().map(|(name, _)| name.to_owned()).filter(|name| self.may_read(name)).collect()
    }

    /// Any name is a domain, so that an unknown one is told apart when a dataset of it is asked for.
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        if let (Some(client), true) = (&self.0.client, name == PG_CATALOG) {
            return Some(Arc::new(PostgresCatalog(Arc::clone(&client.facts))));
        }
        if information::is_of_functions(name) {
            return Some(Arc::new(Routines::new(routines_of(&self.0.snapshot, |domain| self.may_read(domain)))));
        }
        let domain = Domain { scope: Arc::clone(&self.0), name: name.to_owned() };
        (name != "information_schema").then(|| Arc::new(domain) as Arc<dyn SchemaProvider>)
    }
}

/// How many columns a dataset has; none: the name is another table's.
pub(crate) fn columns_of_dataset(state: &SessionState, table: TableReference) -> Option<usize> {
    let name = table.table().to_owned();
    let schema = state.schema_for_ref(table).ok()?;
    let domain = schema.downcast_ref::<Domain>()?;
    let may_be_another = domain.name == domain.scope.domain && domain.scope.frames.find(&name).is_some();
    let (_, dataset) = domain.scope.snapshot.dataset(&domain.dataset(&name)).filter(|_| !may_be_another)?;
    Some(dataset.schema.fields().len())
}

/// Functions that give rows. The planner looks for tables of their names first.
const TABLE_FUNCTIONS: [&str; 2] = ["generate_series", "range"];

#[derive(Debug)]
struct Domain {
    scope: Arc<Scope>,
    name: String,
}

impl Domain {
    fn dataset(&self, name: &str) -> DatasetName {
        DatasetName { domain: self.name.clone(), dataset: name.to_owned() }
    }
}

#[boxed]
impl SchemaProvider for Domain {
    fn table_names(&self) -> Vec<String> {
        let names = self.scope.snapshot.datasets().map(|found| found.name());
        let datasets = names.filter(|name| name.domain == self.name).map(|name| name.dataset.clone());
        let views = self.scope.snapshot.views().map(|(name, _)| name);
        datasets.chain(views.filter(|name| name.domain == self.name).map(|name| name.dataset)).collect()
    }

    async fn table_type(&self, name: &str) -> Result<Option<TableType>> {
        let name = self.dataset(name);
        if self.scope.snapshot.view(&name).is_some() {
            return Ok(Some(TableType::View));
        }
        Ok(self.scope.snapshot.dataset(&name).map(|_| TableType::Base))
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(files) = Files::of_name(name) {
            // The query of a view is everybody's.
            let may_read = self.scope.may_read_files && self.scope.expanding.is_empty();
            let table = files.table(may_read).await.map_err(|fault| DataFusionError::External(Box::new(fault)))?;
            return Ok(Some(table));
        }
        if let Some(frame) = self.scope.frames.find(name).filter(|_| self.name == self.scope.domain) {
            return Ok(Some(frame));
        }
        let name = self.dataset(name);
        let past = Moment::split(&name);
        let may_be_absent = self.scope.made.as_ref() == Some(&name) || TABLE_FUNCTIONS.contains(&name.dataset.as_str());
        if may_be_absent && self.scope.snapshot.dataset(&name).is_none() {
            return Ok(None);
        }
        if let Some(client) = &self.scope.client {
            let checked = client.caller.check(Right::Read, &name.domain);
            checked.map_err(|fault| DataFusionError::External(Box::new(fault)))?;
        }
        if let Some((name, moment)) = past {
            let found = self.scope.as_of(&name, &moment).await.map_err(|fault| DataFusionError::External(Box::new(fault)))?;
            return Ok(Some(Arc::new(DatasetTable::new(found))));
        }
        if let Some(view) = self.scope.snapshot.view(&name) {
            return Ok(Some(views::table(&self.scope, &name, view).await));
        }
        let found = self.scope.snapshot.readable(&name);
        let found = found.map_err(|fault: Fault| DataFusionError::External(Box::new(fault)))?;
        Ok(Some(self.scope.tables.table(&found)))
    }

    fn table_exist(&self, name: &str) -> bool {
        let name = self.dataset(name);
        self.scope.snapshot.dataset(&name).is_some() || self.scope.snapshot.view(&name).is_some()
    }
}

/// The tables of PostgreSQL's catalogue, each made when it is asked for.
#[derive(Debug)]
struct PostgresCatalog(Arc<Facts>);

#[boxed]
impl SchemaProvider for PostgresCatalog {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(rows) = pithead_pg_catalog::table(name, &self.0) else { return Ok(None) };
        Ok(Some(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?)))
    }

    fn table_exist(&self, name: &str) -> bool {
        pithead_pg_catalog::table(name, &self.0).is_some()
    }
}

/// Finds the datasets behind a plan's scans.
pub(crate) struct Datasets {
    drives: Arc<Drives>,
    functions: Arc<Functions>,
}

impl std::fmt::Debug for Datasets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Datasets").field("drives", &self.drives).finish_non_exhaustive()
    }
}

impl Datasets {
    /// Datasets on these drives.
    pub(crate) fn new(drives: Arc<Drives>, functions: Arc<Functions>) -> Self {
        Self { drives, functions }
    }
}

impl Catalogue for Datasets {
    fn facts(&self, scan: &TableScan) -> Option<Arc<DatasetFacts>> {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<DatasetTable>().map(DatasetTable::facts)
    }

    fn lacking(&self, facts: &DatasetFacts, function: &str) -> Option<String> {
        let mut ids = facts.dataset.partitions.iter().flat_map(|partition| &partition.copies);
        ids.find_map(|id| {
            let drive = self.drives.find(*id)?;
            (!self.functions.runs(drive, function)).then(|| drive.label().to_owned())
        })
    }
}
