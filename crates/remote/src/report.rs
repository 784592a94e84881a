//! What travels beside a remote scan's rows: what is expected of them, and a [`Report`] of the sessions that sent them.

use datafusion::physical_plan::metrics::{Count, Label, Metric, MetricValue};
use pithead_plan::Estimate;
use serde::{Deserialize, Serialize};

use crate::profile::{PartitionProfile, SessionLog};

/// The label of a metric that has a [`Report`] as its value.
pub const REPORT_LABEL: &str = "pithead_report";

/// The estimate of a sub-plan's rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// How many.
    pub rows: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Distinct values, for each column.
    pub distinct: Vec<f64>,
}

impl Expected {
    pub(crate) fn of(estimate: &Estimate) -> Self {
        let distinct = estimate.columns.iter().map(|column| column.distinct).collect();
        Self { rows: estimate.rows, bytes: estimate.bytes(), distinct }
    }
}

/// What the sessions over one partition reported.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The log that it belongs in.
    pub log: u64,
    /// The partition.
    pub partition: usize,
    /// The sessions' profile.
    pub session: PartitionProfile,
}

/// What a log says, as metrics: the rows as the value, all of it as a label.
pub(crate) fn reports(log: &SessionLog) -> Vec<Metric> {
    let metric = |(partition, session): (usize, PartitionProfile)| {
        let count = Count::new();
        count.add(usize::try_from(session.rows_out()).unwrap_or(usize::MAX));
        let report = serde_json::to_string(&Report { log: log.id(), partition, session }).ok()?;
        let value = MetricValue::Count { name: "rows_from_drives".into(), count };
        Some(Metric::new_with_labels(value, Some(partition), vec![Label::new(REPORT_LABEL, report)]))
    };
    log.partitions().into_iter().filter_map(metric).collect()
}
