//! `list_has_all` and `list_has_any` of lists that are NULL.
//!
//! DataFusion 55.2 gives NULL for them, but not in a batch whose lists on the right are all empty or NULL: there it looks at neither side,
//! so that an answer hangs on which rows lie beside each other.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::buffer::NullBuffer;
use datafusion::common::Result;
use datafusion::functions_nested::array_has::{array_has_all_udf, array_has_any_udf};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegated::as_standard;
use crate::wall_time::as_given;

pub(crate) fn has_lists_udfs() -> [ScalarUDF; 2] {
    [array_has_all_udf(), array_has_any_udf()].map(|standard| ScalarUDF::new_from_impl(HasLists { standard }))
}

/// DataFusion's function, which gives NULL where one of its lists is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct HasLists {
    standard: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for HasLists {
    as_standard!(name aliases signature return_type coerce_types documentation);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let lists = args.args.iter().map(|arg| arg.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let found = self.standard.invoke_with_args(args)?.to_array(rows)?;
        let found = found.as_boolean();
        let nulls = lists
            .iter()
            .fold(found.nulls().cloned(), |nulls, list| NullBuffer::union(nulls.as_ref(), list.logical_nulls().as_ref()));
        as_given(Arc::new(BooleanArray::new(found.values().clone(), nulls)), is_scalar)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    /// A regression: `true` and `false` for NULL, where all rows of a batch had NULL or an empty list.
    #[tokio::test]
    async fn a_list_that_is_null_is_found_nowhere_and_has_nothing() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let lists = "(VALUES (NULL::int[], [1]), ([1, 2], NULL), ([1, 2], []), ([1, 2], [2])) AS v(l, m)";
        for rows in [format!("(SELECT * FROM {lists})"), format!("(SELECT * FROM {lists} WHERE m IS NULL OR m = [])")] {
            let sql = format!("SELECT list_has_all(l, m), list_has_any(l, m) FROM {rows} WHERE l IS NULL OR m IS NULL");
            let found = context.sql(&sql).await.unwrap().collect().await.unwrap();
            for batch in found {
                for (row, column) in (0..batch.num_rows()).flat_map(|row| [(row, 0), (row, 1)]) {
                    assert_eq!(array_value_to_string(batch.column(column), row).unwrap(), "", "{sql}");
                }
            }
        }
        for (sql, expected) in [
            ("SELECT list_has_all([1, 2], []::int[])", "true"),
            ("SELECT list_has_any([1, 2], []::int[])", "false"),
            ("SELECT list_has_all(NULL::int[], []::int[])", ""),
            ("SELECT array_has_all([1, 2], [2])", "true"),
            ("SELECT array_has_any([1, 2], [3])", "false"),
        ] {
            let found = context.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), expected, "{sql}");
        }
    }
}
