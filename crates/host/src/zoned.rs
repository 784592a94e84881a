//! Results in the session's time zone.

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, cast};
use pithead_functions::fault_from_datafusion;
use pithead_model::Fault;

/// The zone of a session that sets none: it is what TIMESTAMPTZ and `now()` are shown in.
pub(crate) const TIME_ZONE: &str = "UTC";

/// The plan with results that are moments with a zone in the session's zone, where it has one.
pub(crate) fn in_session_zone(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan, Fault> {
    let Some(zone) = state.config_options().execution.time_zone.clone().filter(|zone| zone != TIME_ZONE) else {
        return Ok(plan);
    };
    let elsewhere = |data_type: &DataType| match data_type {
        DataType::Timestamp(unit, Some(own)) if **own != *zone => Some(DataType::Timestamp(*unit, Some(zone.as_str().into()))),
        _ => None,
    };
    if !plan.schema().fields().iter().any(|field| elsewhere(field.data_type()).is_some()) {
        return Ok(plan);
    }
    let shown = plan.schema().iter().map(|(qualifier, field)| {
        let column = Expr::Column(Column::from((qualifier, field)));
        match elsewhere(field.data_type()) {
            Some(here) => cast(column, here).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    });
    let shown: Vec<Expr> = shown.collect();
    let shown = LogicalPlanBuilder::from(plan).project(shown).and_then(LogicalPlanBuilder::build);
    shown.map_err(fault_from_datafusion)
}
