//! [`RowConditions`]: what filters ask of a dataset's rows, before it is known where these are.

use arrow::datatypes::SchemaRef;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use pithead_model::{ColumnSummary, Value};
use pithead_slice::{Compare, Predicate, may_match};

use crate::pruning::conjuncts;
use crate::scalar::scalar_of;

/// Conditions that hold for each row that passes some filters.
#[derive(Debug)]
pub struct RowConditions {
    predicates: Vec<Predicate>,
    schema: SchemaRef,
}

impl RowConditions {
    /// Those of filters over a dataset's columns, under whatever name the dataset has there. Filters that bounds cannot judge are left
    /// out.
    pub fn new(filters: &[Expr], schema: &SchemaRef, properties: &ExecutionProps) -> RowConditions {
        let (mut predicates, context) = (Vec::new(), PhysicalPlanningContext::default());
        if let Ok(names) = DFSchema::try_from(schema.as_ref().clone()) {
            for filter in unnormalize_cols(filters.iter().cloned()) {
                let Ok(expr) = create_physical_expr(&filter, &names, properties, &context) else { continue };
                let converted = conjuncts(&expr, schema).into_iter().filter_map(|conjunct| conjunct.converted);
                predicates.extend(converted.map(|converted| converted.predicate));
            }
        }
        RowConditions { predicates, schema: schema.clone() }
    }

    /// Whether all rows may satisfy them.
    pub fn is_empty(&self) -> bool {
        self.predicates.is_empty()
    }

    /// Whether any of some rows may satisfy them all, which have these summaries, one for each column of the dataset. `false` is certain.
    pub fn may_match(&self, columns: &[ColumnSummary]) -> bool {
        // How many rows there are is left open: summaries of many runs may count NULLs of rows that were deleted.
        may_match(&self.predicates, columns, u64::MAX)
    }

    /// The values that a column may have in a row that satisfies them; none: any. Floats have any: there are two zeros that are equal.
    pub fn values(&self, column: usize) -> Option<Vec<ScalarValue>> {
        let lists = self.predicates.iter().filter_map(|predicate| listed(predicate, column));
        let shortest = lists.min_by_key(Vec::len)?;
        let data_type = self.schema.field(column).data_type();
        shortest.into_iter().map(|value| scalar_of(value, data_type).filter(|_| !data_type.is_floating())).collect()
    }
}

/// The values of which a column has one wherever a predicate holds; none: it may have others.
fn listed(predicate: &Predicate, wanted: usize) -> Option<Vec<&Value>> {
    match predicate {
        Predicate::Compare { column, op: Compare::Eq, value } if *column == wanted => Some(vec![value]),
        Predicate::In { column, values } if *column == wanted => Some(values.iter().collect()),
        Predicate::All(parts) => parts.iter().filter_map(|part| listed(part, wanted)).min_by_key(Vec::len),
        Predicate::Any(parts) => {
            let lists: Vec<Vec<&Value>> = parts.iter().map(|part| listed(part, wanted)).collect::<Option<_>>()?;
            Some(lists.into_iter().flatten().collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{col, lit};

    use super::*;

    fn conditions(filters: &[Expr]) -> RowConditions {
        let field = |name, data_type| Field::new(name, data_type, true);
        let fields = vec![field("i", DataType::Int64), field("t", DataType::Utf8View), field("f", DataType::Float64)];
        RowConditions::new(filters, &Arc::new(Schema::new(fields)), &ExecutionProps::new())
    }

    fn text(text: &str) -> Expr {
        lit(ScalarValue::Utf8View(Some(text.into())))
    }

    fn int(value: i64) -> ScalarValue {
        ScalarValue::Int64(Some(value))
    }

    #[test]
    fn values_of_a_column_are_those_that_every_row_has() {
        let one = conditions(&[col("x.i").eq(lit(5i64)).and(col("i").gt(lit(1i64)))]);
        assert_eq!(one.values(0), Some(vec![int(5)]));
        assert_eq!(one.values(1), None);
        let either = conditions(&[col("i").eq(lit(5i64)).or(col("i").in_list(vec![lit(7i64), lit(9i64)], false))]);
        assert_eq!(either.values(0), Some(vec![int(5), int(7), int(9)]));
        let shorter = conditions(&[col("i").in_list(vec![lit(7i64), lit(9i64)], false), lit(3i64).eq(col("i"))]);
        assert_eq!(shorter.values(0), Some(vec![int(3)]));
        assert_eq!(conditions(&[col("t").eq(text("a"))]).values(1), Some(vec![ScalarValue::Utf8View(Some("a".into()))]));
    }

    #[test]
    fn what_is_not_said_of_every_row_leaves_all_values() {
        for filter in [
            col("i").eq(lit(5i64)).or(col("t").eq(text("a"))),
            col("i").not_eq(lit(5i64)),
            col("i").in_list(vec![lit(5i64)], true),
            (col("i") + lit(1i64)).eq(lit(5i64)),
        ] {
            assert_eq!(conditions(std::slice::from_ref(&filter)).values(0), None, "{filter}");
        }
        assert_eq!(conditions(&[col("f").eq(lit(0.0))]).values(2), None, "one of two zeros");
    }

    #[test]
    fn bounds_rule_rows_out_whatever_their_number() {
        let summary = |min: i128, max: i128, nulls| ColumnSummary {
            min: Some(Value::Int(min)),
            max: Some(Value::Int(max)),
            nulls,
            ..ColumnSummary::default()
        };
        let five = conditions(&[col("i").eq(lit(5i64))]);
        assert!(five.may_match(&[summary(1, 9, 1_000_000)]), "NULLs of deleted rows");
        assert!(!five.may_match(&[summary(6, 9, 0)]));
        assert!(five.may_match(&[]), "a column without a summary");
        assert!(!conditions(&[col("i").is_null()]).may_match(&[summary(6, 9, 0)]));
        let unreadable = conditions(&[col("nowhere").eq(lit(5i64))]);
        assert!(unreadable.is_empty() && unreadable.may_match(&[summary(6, 9, 0)]));
    }
}
