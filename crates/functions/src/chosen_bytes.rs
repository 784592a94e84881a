//! `coalesce` of bytes and texts, which stand for bytes there, of bytes of several types, and of NULL and bytes of one length. The engine
//! knows of no type that all of them have.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::delegated::as_standard;

pub(crate) fn coalesce_udf() -> ScalarUDF {
    ScalarUDF::new_from_impl(Coalesce { standard: coalesce() })
}

/// DataFusion's function, which takes bytes, too.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Coalesce {
    standard: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Coalesce {
    as_standard!(name aliases signature documentation return_type return_field_from_args);

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let mut known = types.iter().filter(|of| !of.is_null());
        if let Some(DataType::FixedSizeBinary(_)) = known.next().filter(|one| known.all(|other| other == *one)) {
            // To bytes of one length no NULL can be cast.
            return Ok(types.to_vec());
        }
        let is_bytes = |of: &DataType| matches!(of, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
        let all_may_be = types.iter().all(|of| is_bytes(of) || of.is_string() || of.is_null());
        match types.iter().any(is_bytes) && all_may_be {
            true => Ok(vec![DataType::BinaryView; types.len()]),
            false => self.standard.coerce_types(types),
        }
    }

    fn simplify(&self, mut args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_null = |arg: &Expr| matches!(arg, Expr::Literal(value, _) if value.is_null());
        if !args.iter().all(is_null) {
            args.retain(|arg| !is_null(arg));
        }
        self.standard.simplify(args, context)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.standard.invoke_with_args(args)
    }

    fn conditional_arguments<'a>(&self, args: &'a [Expr]) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.standard.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.standard.short_circuits()
    }
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn bytes_are_chosen_among_texts() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        for (sql, expected) in [
            ("SELECT coalesce(NULL::bytea, 'x')", "78"),
            (
                "SELECT coalesce(b, '\\x00ff') FROM (VALUES (NULL::bytea), ('a'::bytea)) AS v(b) ORDER BY b NULLS FIRST LIMIT 1",
                "00ff",
            ),
            ("SELECT coalesce(arrow_cast('a', 'Binary'), arrow_cast('b', 'BinaryView'))", "61"),
            ("SELECT coalesce(NULL, arrow_cast(arrow_cast('ab', 'Binary'), 'FixedSizeBinary(2)'))", "6162"),
            ("SELECT coalesce(NULL, 2)", "2"),
            ("SELECT coalesce('a', 'b')", "a"),
        ] {
            let found = context.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(array_value_to_string(found[0].column(0), 0).unwrap(), expected, "{sql}");
        }
    }
}
