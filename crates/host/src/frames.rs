//! [`Frames`]: tables in memory that come with one statement.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use pithead_functions::fault_from_datafusion;
use pithead_model::{Blame, Fault, PAGE_ROWS, RESERVED};

/// Tables by the name that the statement calls each. Cheap to clone: the rows are shared.
#[derive(Clone, Debug, Default)]
pub struct Frames(BTreeMap<String, Arc<MemTable>>);

impl Frames {
    /// Adds a table. Its columns must have names of their own, which a dataset's could be.
    pub fn add(&mut self, name: &str, schema: SchemaRef, batches: &[RecordBatch]) -> Result<(), Fault> {
        let wrong = |what: String| Err(Fault::new(Blame::User, format!("table {name}: {what}")));
        for (place, field) in schema.fields().iter().enumerate() {
            if field.name().contains(RESERVED) {
                return wrong(format!("the name of column {} has a NUL character", place + 1));
            }
            if schema.fields()[..place].iter().any(|before| before.name() == field.name()) {
                return wrong(format!("two columns are named {}", field.name()));
            }
        }
        // A batch is one poll of whoever reads it.
        let pieces = batches.iter().flat_map(|batch| {
            let starts = (0..batch.num_rows()).step_by(PAGE_ROWS);
            starts.map(|start| batch.slice(start, PAGE_ROWS.min(batch.num_rows() - start)))
        });
        let table = MemTable::try_new(schema, vec![pieces.collect()]).map_err(fault_from_datafusion)?;
        self.0.insert(name.to_owned(), Arc::new(table));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        self.0.get(name).map(|table| Arc::clone(table) as Arc<dyn TableProvider>)
    }
}
