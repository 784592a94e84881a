//! `<`, `<=`, `>` and `>=` of lists and structs, in the one order that `min`, `max` and ORDER BY use.
//!
//! The engine's comparison takes a NULL inside for the smallest value. In DuckDB, and in an ORDER BY that does not say
//! otherwise, it is the largest.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use arrow::buffer::NullBuffer;
use arrow::compute::SortOptions;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    binary_expr,
};

/// The comparison as a function. It has no name that SQL can spell, is never registered, and never travels.
pub(crate) fn nested_order(left: Expr, operator: Operator, right: Expr) -> Expr {
    ScalarUDF::new_from_impl(NestedOrder { operator, signature: Signature::any(2, Volatility::Immutable) })
        .call(vec![left, right])
}

/// The operator of which this function took the place.
pub(crate) fn operator_of(function: &ScalarFunction) -> Option<Expr> {
    let order = function.func.inner().downcast_ref::<NestedOrder>()?;
    match function.args.as_slice() {
        [left, right] => Some(binary_expr(left.clone(), order.operator, right.clone())),
        _ => None,
    }
}

/// Whether the operator compares by order.
pub(crate) fn is_order(operator: Operator) -> bool {
    matches!(operator, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NestedOrder {
    operator: Operator,
    signature: Signature,
}

impl NestedOrder {
    fn holds(&self, order: Ordering) -> bool {
        match self.operator {
            Operator::Lt => order.is_lt(),
            Operator::LtEq => order.is_le(),
            Operator::Gt => order.is_gt(),
            _ => order.is_ge(),
        }
    }

    fn compare(&self, left: &ArrayRef, right: &ArrayRef) -> Result<BooleanArray> {
        let options = SortOptions { descending: false, nulls_first: false };
        let order = make_comparator(left.as_ref(), right.as_ref(), options)?;
        let values = (0..left.len()).map(|row| self.holds(order(row, row))).collect();
        Ok(BooleanArray::new(values, NullBuffer::union(left.nulls(), right.nulls())))
    }
}

impl ScalarUDFImpl for NestedOrder {
    fn name(&self) -> &'static str {
        "nested order"
    }

    /// The operator's name, so that columns keep their names.
    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        match arguments {
            [left, right] => Ok(format!("{} {} {}", left.schema_name(), self.operator, right.schema_name())),
            _ => internal_err!("expected two arguments"),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), DataType::Boolean, nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else { return internal_err!("expected two arguments") };
        let result = self.compare(left, right)?;
        match is_one {
            true => ScalarValue::try_from_array(&result, 0).map(ColumnarValue::Scalar),
            false => Ok(ColumnarValue::Array(Arc::new(result))),
        }
    }
}
