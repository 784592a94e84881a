//! [`Operator`]: an operator of a plan by its structure, without what is below it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::{EmptyRelation, LogicalPlan};

/// An operator over inputs that may be any plans of the same columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operator(LogicalPlan);

impl Operator {
    /// The topmost operator of a plan.
    pub fn of(plan: &LogicalPlan) -> Operator {
        let inputs: Result<Vec<LogicalPlan>> = plan.inputs().into_iter().map(nothing).collect();
        let over = |inputs: Vec<LogicalPlan>| match inputs.is_empty() {
            true => Ok(plan.clone()),
            false => plan.with_new_exprs(plan.expressions(), inputs),
        };
        Operator(inputs.and_then(over).unwrap_or_else(|_| plan.clone()))
    }
}

/// An empty relation with a plan's columns. What is known of values besides names and types can differ between a plan
/// and its parts.
fn nothing(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let plain = |field: &Field| Arc::new(Field::new(field.name(), field.data_type().clone(), true));
    let fields = plan.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), plain(field))).collect();
    let schema: DFSchemaRef = Arc::new(DFSchema::new_with_metadata(fields, HashMap::new())?);
    Ok(LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema }))
}
