//! A snapshot's domains as the schemas that SQL names resolve in.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::CatalogProviderList;
use datafusion::catalog::{CatalogProvider, MemoryCatalogProviderList, SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::TableScan;
use pithead_model::{DatasetName, Fault};
use pithead_plan::{Catalogue, DatasetFacts};

use crate::{DatasetTable, Snapshot};

/// The one catalog, whose schemas are the domains.
pub(crate) const CATALOG: &str = "pithead";

/// A list of catalogs with one, over `snapshot`.
pub(crate) fn catalogs(snapshot: Arc<Snapshot>) -> Arc<dyn CatalogProviderList> {
    let list = MemoryCatalogProviderList::new();
    list.register_catalog(CATALOG.to_owned(), Arc::new(Domains(snapshot)));
    Arc::new(list)
}

#[derive(Debug)]
struct Domains(Arc<Snapshot>);

impl CatalogProvider for Domains {
    fn schema_names(&self) -> Vec<String> {
        self.0.domains().map(|(name, _)| name.to_owned()).collect()
    }

    /// Any name is a domain, so that an unknown one is told apart when a dataset of it is asked for.
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let domain = Domain { snapshot: Arc::clone(&self.0), name: name.to_owned() };
        (name != "information_schema").then(|| Arc::new(domain) as Arc<dyn SchemaProvider>)
    }
}

#[derive(Debug)]
struct Domain {
    snapshot: Arc<Snapshot>,
    name: String,
}

impl Domain {
    fn dataset(&self, name: &str) -> DatasetName {
        DatasetName { domain: self.name.clone(), dataset: name.to_owned() }
    }
}

#[async_trait]
impl SchemaProvider for Domain {
    fn table_names(&self) -> Vec<String> {
        self.snapshot
            .tables()
            .filter(|table| table.name().domain == self.name)
            .map(|table| table.name().dataset.clone())
            .collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let table =
            self.snapshot.table(&self.dataset(name)).map_err(|fault: Fault| DataFusionError::External(Box::new(fault)))?;
        Ok(Some(table))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.snapshot.dataset(&self.dataset(name)).is_some()
    }
}

/// Finds the datasets behind a plan's scans.
#[derive(Debug)]
pub(crate) struct Datasets;

impl Catalogue for Datasets {
    fn facts(&self, scan: &TableScan) -> Option<Arc<DatasetFacts>> {
        let provider = source_as_provider(&scan.source).ok()?;
        provider.downcast_ref::<DatasetTable>().map(DatasetTable::facts)
    }
}
