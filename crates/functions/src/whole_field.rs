//! [`WholeField`]: a field of a NULL struct is NULL.
//!
//! DataFusion 55.2's `get_field` gives what lies in the field's array, and there may be values where the struct is NULL: Arrow
//! allows that, and pyarrow writes it. The function takes the place of `get_field` where it is about to run.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::nullif;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegated::as_standard;

/// Whether an expression takes a field of a struct as the engine does it.
pub(crate) fn takes_field(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function) if function.func.inner().is::<GetFieldFunc>())
}

/// The function over the arguments of such an expression.
pub(crate) fn whole_field(expr: Expr) -> Expr {
    match expr {
        Expr::ScalarFunction(function) => whole_field_udf().call(function.args),
        expr => expr,
    }
}

/// The engine's function over the same arguments, where ours took its place.
pub(crate) fn plain_field(function: &ScalarFunction) -> Option<Expr> {
    let is_ours = function.func.inner().is::<WholeField>();
    is_ours.then(|| ScalarUDF::new_from_impl(GetFieldFunc::new()).call(function.args.clone()))
}

/// The function itself. It has no name that SQL can spell, and never travels to a drive.
pub(crate) fn whole_field_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(WholeField { standard: GetFieldFunc::new() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WholeField {
    standard: GetFieldFunc,
}

impl WholeField {
    /// One field of one value.
    fn step(&self, value: ColumnarValue, name: &ColumnarValue, args: &ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = match value {
            // A scalar's field is a scalar of one row.
            ColumnarValue::Scalar(scalar) if matches!(scalar.data_type(), DataType::Struct(_)) => {
                ColumnarValue::Array(scalar.to_array_of_size(args.number_rows)?)
            }
            value => value,
        };
        let nulls = match &value {
            ColumnarValue::Array(array) if matches!(array.data_type(), DataType::Struct(_)) && array.null_count() > 0 => {
                array.nulls().cloned()
            }
            _ => None,
        };
        let field = self.standard.invoke_with_args(ScalarFunctionArgs { args: vec![value, name.clone()], ..args.clone() })?;
        match (field, nulls) {
            (ColumnarValue::Array(field), Some(nulls)) => {
                let is_none = BooleanArray::new(!nulls.inner(), None);
                Ok(ColumnarValue::Array(without(&field, &is_none)?))
            }
            (field, _) => Ok(field),
        }
    }
}

/// The values, NULL where `is_none` holds.
fn without(values: &ArrayRef, is_none: &BooleanArray) -> Result<ArrayRef> {
    match values.data_type() {
        // There is nothing else in it.
        DataType::Null => Ok(Arc::clone(values)),
        _ => Ok(nullif(values, is_none)?),
    }
}

impl ScalarUDFImpl for WholeField {
    as_standard!(signature coerce_types return_type return_field_from_args);

    fn name(&self) -> &'static str {
        "whole field"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        self.standard.schema_name(arguments)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some((value, path)) = args.args.split_first() else { return self.standard.invoke_with_args(args) };
        path.iter().try_fold(value.clone(), |value, name| match value.data_type() {
            DataType::Null => Ok(value),
            _ => self.step(value, name, &args),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, Int64Array, StringViewArray, StructArray};
    use arrow::buffer::NullBuffer;
    use arrow::datatypes::{Field, Fields, Int64Type};
    use arrow::record_batch::RecordBatch;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    /// Rows whose structs are NULL where their fields have values, one within the other.
    fn rows() -> RecordBatch {
        let inner_fields: Fields = vec![Field::new("x", DataType::Int64, true)].into();
        let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let inner: ArrayRef =
            Arc::new(StructArray::new(inner_fields.clone(), vec![x], Some(NullBuffer::from(vec![true, true, false]))));
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "b", "c"]));
        let fields: Fields =
            vec![Field::new("i", DataType::Struct(inner_fields), true), Field::new("t", DataType::Utf8View, true)].into();
        let outer: ArrayRef =
            Arc::new(StructArray::new(fields, vec![inner, text], Some(NullBuffer::from(vec![true, false, true]))));
        RecordBatch::try_from_iter([("s", outer)]).unwrap()
    }

    async fn only(sql: &str) -> RecordBatch {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.register_batch("rows", rows()).unwrap();
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    #[tokio::test]
    async fn fields_of_null_structs_are_null() {
        let rows = only("SELECT s.i.x AS x, s.t AS t FROM rows").await;
        let x: Vec<Option<i64>> = rows.column(0).as_primitive::<Int64Type>().iter().collect();
        let t: Vec<Option<&str>> = rows.column(1).as_string_view().iter().collect();
        assert_eq!(x, [Some(1), None, None]);
        assert_eq!(t, [Some("a"), None, Some("c")]);
        let counted = only("SELECT count(s.i.x), count(*) FILTER (WHERE s.t IS NULL), sum(s.i.x) FROM rows").await;
        let counts: Vec<i64> = (0..3).map(|column| counted.column(column).as_primitive::<Int64Type>().value(0)).collect();
        assert_eq!(counts, [1, 1, 1]);
        let found = only("SELECT count(*) FROM rows WHERE s.t = 'b'").await;
        assert_eq!(found.column(0).as_primitive::<Int64Type>().value(0), 0);
    }

    #[tokio::test]
    async fn constants_are_no_exception() {
        let sql = "SELECT get_field(nullif(named_struct('a', 2), named_struct('a', 2)), 'a') AS a";
        assert_eq!(only(sql).await.column(0).null_count(), 1);
    }
}
