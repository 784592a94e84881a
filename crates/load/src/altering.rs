//! Other columns over the runs that a dataset has: one change of its manifest, and no slice is read or written.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef};
use pithead_fleet::{Change, Committed};
use pithead_model::lasting::{added, renamed};
use pithead_model::{Dataset, DatasetName, Fault, Partition, Value, boxed, total};
use pithead_slice::{Fit, normalise, one_row, value_at};

use crate::Loader;
use crate::target::reshaped;

/// A column that a dataset is to have.
#[derive(Clone, Debug)]
pub struct AlteredColumn {
    /// Its name, its type and whether it may have NULLs.
    pub field: Field,
    /// What it is in the rows that are there.
    pub from: AlteredFrom,
}

/// What a column is in rows from before it was altered.
#[derive(Clone, Debug)]
pub enum AlteredFrom {
    /// The column that had this name, cast to the type where that is another one.
    Own(String),
    /// One value, an array of one row.
    Value(ArrayRef),
}

impl Loader {
    /// Gives a dataset that is still as `over` these columns, under which `shape` has the layout. False, and nothing was done: rows
    /// have to be written anew for that, or looked at.
    #[boxed]
    pub async fn alter(
        &self,
        name: &DatasetName,
        over: &Dataset,
        shape: &Dataset,
        columns: &[AlteredColumn],
    ) -> Result<bool, Fault> {
        let fields: Option<Vec<Field>> = columns.iter().map(|column| column.lasting(&over.schema)).collect();
        let Some(Ok(schema)) = fields.map(|fields| normalise(&Schema::new(fields))) else { return Ok(false) };
        let Some(dataset) = altered(over, shape, &schema)? else { return Ok(false) };
        let change = Change::Alter { over: over.clone(), dataset };
        let committed = self.fleet().commit_dataset(name, &change).await.map_err(|not| not.fault)?;
        let Committed { manifest, .. } = committed;
        tracing::info!(dataset = %name, version = manifest.version, "columns were changed");
        Ok(true)
    }
}

impl AlteredColumn {
    /// The column as slices from before can be read with it; none: they cannot.
    fn lasting(&self, over: &SchemaRef) -> Option<Field> {
        match &self.from {
            AlteredFrom::Own(name) => {
                let own = over.field_with_name(name).ok()?.clone();
                let own = own.with_data_type(self.field.data_type().clone()).with_nullable(self.field.is_nullable());
                Some(renamed(own, self.field.name()))
            }
            AlteredFrom::Value(value) => {
                let lasting_name = format!("{}#{:016x}", self.field.name(), rand::random::<u64>());
                Some(added(self.field.clone(), lasting_name, fill(value, &self.field)?))
            }
        }
    }
}

/// The value in an array's only row, NULL as none; none: it is of a type, or a number, that a manifest cannot hold.
fn fill(array: &ArrayRef, field: &Field) -> Option<Option<Value>> {
    let stored = normalise(&Schema::new(vec![field.clone()])).ok()?;
    let array = cast(array, stored.fields().first()?.data_type()).ok().filter(|array| array.len() == 1)?;
    if array.is_null(0) {
        return Some(None);
    }
    let value = value_at(array.as_ref(), 0)?;
    let again = one_row(array.data_type(), &value)?;
    // Bit by bit: neither zero stands for the other.
    (again.to_data() == array.to_data()).then_some(Some(value))
}

/// The dataset with these columns; none: its slices cannot be read so, or nobody knows whether they have a NULL where none may be.
fn altered(over: &Dataset, shape: &Dataset, schema: &SchemaRef) -> Result<Option<Dataset>, Fault> {
    let Ok(fit) = Fit::of(&over.schema, schema) else { return Ok(None) };
    let laid_out = reshaped(shape, schema)?;
    let mut dataset = Dataset { id: over.id, merged: over.merged, partitions: over.partitions.clone(), ..laid_out };
    if let Some(fit) = fit {
        for partition in dataset.partitions.iter_mut().filter(|partition| !partition.columns.is_empty()) {
            let rows = total(partition.runs.iter().map(|run| run.rows));
            partition.columns = fit.summaries(&partition.columns, rows);
        }
    }
    let keeps_out_nulls = dataset.partitions.iter().all(|partition| has_no_nulls(partition, schema));
    Ok(Some(dataset).filter(|_| keeps_out_nulls))
}

/// Whether no column has a NULL that may have none, for all that is known without looking.
fn has_no_nulls(partition: &Partition, schema: &SchemaRef) -> bool {
    let knows = partition.runs.is_empty() || partition.columns.len() == schema.fields().len();
    let has_none = |(place, field): (usize, &Arc<Field>)| {
        field.is_nullable() || partition.columns.get(place).is_none_or(|column| column.nulls == 0 && !column.nulls_unknown)
    };
    knows && schema.fields().iter().enumerate().all(has_none)
}
