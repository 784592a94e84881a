//! A dataset as DataFusion's planner sees it.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics, internal_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use pithead_fleet::VersionedDataset;
use pithead_model::lasting::plain_columns;
use pithead_model::{ColumnSummary, Dataset, Value, boxed};
use pithead_plan::{DatasetFacts, Rest};

/// Stands for a dataset in a logical plan, with its schema and statistics. It cannot be scanned: decomposing a plan puts
/// sub-plans in the place of such tables.
#[derive(Debug)]
pub(crate) struct DatasetTable {
    found: Arc<VersionedDataset>,
    statistics: OnceLock<Statistics>,
    facts: OnceLock<Arc<DatasetFacts>>,
    /// What is read of it; none: all.
    rest: Option<Rest>,
}

impl DatasetTable {
    pub(crate) fn new(found: Arc<VersionedDataset>) -> Self {
        Self { found, statistics: OnceLock::new(), facts: OnceLock::new(), rest: None }
    }

    /// The slices of the same dataset that are left.
    pub(crate) fn rest(&self, rest: Rest) -> Self {
        Self { rest: Some(rest), ..Self::new(Arc::clone(&self.found)) }
    }

    /// The dataset.
    pub(crate) fn found(&self) -> &Arc<VersionedDataset> {
        &self.found
    }

    /// What decomposing needs of it.
    pub(crate) fn facts(&self) -> Arc<DatasetFacts> {
        let facts = self.facts.get_or_init(|| {
            let (name, dataset) = (self.found.name().clone(), Arc::clone(self.found.dataset()));
            let columns = dataset.columns();
            let (manifest_version, rest) = (self.found.manifest_version(), self.rest.clone());
            Arc::new(DatasetFacts { name, dataset, columns, manifest_version, rest })
        });
        Arc::clone(facts)
    }
}

#[boxed]
impl TableProvider for DatasetTable {
    fn schema(&self) -> SchemaRef {
        plain_columns(&self.found.dataset().schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// None: filters stay above the scan, where decomposing finds them.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Unsupported; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.get_or_init(|| statistics(self.found.dataset())).clone())
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("dataset {} was not decomposed into sub-plans", self.found.name())
    }
}

fn statistics(dataset: &Dataset) -> Statistics {
    let rows = count(dataset.rows());
    let summaries = dataset.columns();
    let column = |(index, field): (usize, &Arc<arrow::datatypes::Field>)| match summaries.get(index) {
        Some(summary) => column_statistics(summary, field.data_type()),
        None => ColumnStatistics::new_unknown(),
    };
    Statistics {
        num_rows: Precision::Exact(rows),
        total_byte_size: Precision::Inexact(count(dataset.bytes())),
        column_statistics: dataset.schema.fields().iter().enumerate().map(column).collect(),
    }
}

fn column_statistics(summary: &ColumnSummary, data_type: &DataType) -> ColumnStatistics {
    let bound = |value: &Option<Value>| match value.as_ref().and_then(|value| scalar(value, data_type)) {
        Some(value) if summary.exact => Precision::Exact(value),
        Some(value) => Precision::Inexact(value),
        None => Precision::Absent,
    };
    ColumnStatistics {
        null_count: if summary.nulls_unknown { Precision::Absent } else { Precision::Exact(count(summary.nulls)) },
        min_value: bound(&summary.min),
        max_value: bound(&summary.max),
        distinct_count: if summary.distinct == 0 { Precision::Absent } else { Precision::Inexact(count(summary.distinct)) },
        ..ColumnStatistics::new_unknown()
    }
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The value as DataFusion writes it; none for types that have no bounds.
fn scalar(value: &Value, data_type: &DataType) -> Option<ScalarValue> {
    match value {
        Value::Int(value) => int_scalar(*value, data_type),
        Value::Float(value) => match data_type {
            DataType::Float64 => Some(ScalarValue::Float64(Some(*value))),
            DataType::Float32 => Some(ScalarValue::Float32(Some(*value as f32))),
            _ => None,
        },
        Value::Text(text) => match data_type {
            DataType::Utf8View => Some(ScalarValue::Utf8View(Some(text.clone()))),
            DataType::Utf8 => Some(ScalarValue::Utf8(Some(text.clone()))),
            _ => None,
        },
        Value::Bytes(bytes) => match data_type {
            DataType::BinaryView => Some(ScalarValue::BinaryView(Some(bytes.clone()))),
            DataType::Binary => Some(ScalarValue::Binary(Some(bytes.clone()))),
            _ => None,
        },
    }
}

fn int_scalar(value: i128, data_type: &DataType) -> Option<ScalarValue> {
    let narrow = || i64::try_from(value).ok();
    let small = || i32::try_from(value).ok();
    Some(match data_type {
        DataType::Boolean => ScalarValue::Boolean(Some(value != 0)),
        DataType::Int8 => ScalarValue::Int8(Some(value.try_into().ok()?)),
        DataType::Int16 => ScalarValue::Int16(Some(value.try_into().ok()?)),
        DataType::Int32 => ScalarValue::Int32(Some(small()?)),
        DataType::Int64 => ScalarValue::Int64(Some(narrow()?)),
        DataType::UInt8 => ScalarValue::UInt8(Some(value.try_into().ok()?)),
        DataType::UInt16 => ScalarValue::UInt16(Some(value.try_into().ok()?)),
        DataType::UInt32 => ScalarValue::UInt32(Some(value.try_into().ok()?)),
        DataType::UInt64 => ScalarValue::UInt64(Some(value.try_into().ok()?)),
        DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(value), *precision, *scale),
        DataType::Date32 => ScalarValue::Date32(Some(small()?)),
        DataType::Date64 => ScalarValue::Date64(Some(narrow()?)),
        DataType::Time32(TimeUnit::Second) => ScalarValue::Time32Second(Some(small()?)),
        DataType::Time32(TimeUnit::Millisecond) => ScalarValue::Time32Millisecond(Some(small()?)),
        DataType::Time64(TimeUnit::Microsecond) => ScalarValue::Time64Microsecond(Some(narrow()?)),
        DataType::Time64(TimeUnit::Nanosecond) => ScalarValue::Time64Nanosecond(Some(narrow()?)),
        DataType::Timestamp(unit, zone) => timestamp(*unit, narrow()?, zone.clone()),
        _ => return None,
    })
}

fn timestamp(unit: TimeUnit, value: i64, zone: Option<Arc<str>>) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::TimestampSecond(Some(value), zone),
        TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(Some(value), zone),
        TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(Some(value), zone),
        TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(Some(value), zone),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use pithead_model::{DatasetId, DriveId, LoadId, Loaded, Partition, Partitioning, Run};

    use super::*;

    fn table(runs: Vec<Loaded>) -> DatasetTable {
        let mut partition = Partition::empty(vec![DriveId(1)]);
        runs.into_iter().for_each(|run| partition.append(run));
        let field = Field::new("day", DataType::Date32, true);
        let dataset = Dataset {
            id: DatasetId(1),
            schema: Arc::new(Schema::new(vec![field])),
            metadata: Default::default(),
            partitioning: Partitioning::RoundRobin,
            sort: vec![],
            encoding: "arrow".into(),
            slice_rows: 10,
            slice_bytes: None,
            copies: 1,
            merged: 0,
            partitions: vec![partition],
        };
        let found = VersionedDataset::new("t".parse().unwrap(), Arc::new(dataset), 1);
        DatasetTable::new(Arc::new(found))
    }

    #[test]
    fn statistics_come_from_the_summaries() {
        let summary = ColumnSummary {
            min: Some(Value::Int(-3)),
            max: Some(Value::Int(9)),
            exact: true,
            nulls: 2,
            nulls_unknown: false,
            distinct: 5,
        };
        let run = Run { load: LoadId(1), slices: 1, rows: 7, bytes: 70 };
        let statistics = table(vec![Loaded { run, columns: vec![summary] }]).statistics().unwrap();
        assert_eq!(statistics.num_rows, Precision::Exact(7));
        let column = &statistics.column_statistics[0];
        assert_eq!(column.min_value, Precision::Exact(ScalarValue::Date32(Some(-3))));
        assert_eq!(column.max_value, Precision::Exact(ScalarValue::Date32(Some(9))));
        assert_eq!((column.null_count, column.distinct_count), (Precision::Exact(2), Precision::Inexact(5)));
    }

    #[test]
    fn an_empty_dataset_has_no_rows_for_sure() {
        let statistics = table(vec![]).statistics().unwrap();
        assert_eq!((statistics.num_rows, statistics.column_statistics.len()), (Precision::Exact(0), 1));
    }
}
