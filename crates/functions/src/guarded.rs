//! [`Guarded`]: a CASE of truth values that evaluates a branch only where its condition holds.
//!
//! DataFusion 55.2 makes AND and OR of such a CASE, which evaluate both of their sides, so that `CASE WHEN k = 0 THEN false ELSE 10 / k
//! > 2 END` divides by zero. Where a branch may fail, the CASE is a function for as long as the optimiser works.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// Whether an expression is a CASE that guards a branch which may fail.
pub(crate) fn guards(expr: &Expr) -> bool {
    let Expr::Case(case) = expr else { return false };
    let later = case.when_then_expr.iter().skip(1).map(|(when, _)| when.as_ref());
    let branches = case.when_then_expr.iter().map(|(_, then)| then.as_ref()).chain(case.else_expr.as_deref());
    case.expr.is_none() && later.chain(branches).any(may_fail)
}

fn may_fail(expr: &Expr) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    let found = expr.exists(|part| {
        Ok(match part {
            Expr::BinaryExpr(BinaryExpr { op, .. }) => matches!(op, Plus | Minus | Multiply | Divide | Modulo),
            Expr::Cast(_) | Expr::ScalarFunction(_) | Expr::Negative(_) => true,
            _ => false,
        })
    });
    found.unwrap_or(true)
}

/// The CASE as a function of its parts.
pub(crate) fn guarded(case: Case) -> Expr {
    let has_else = case.else_expr.is_some();
    let parts = case.when_then_expr.into_iter().flat_map(|(when, then)| [*when, *then]);
    let parts = parts.chain(case.else_expr.map(|otherwise| *otherwise)).collect();
    ScalarUDF::new_from_impl(Guarded { has_else, signature: Signature::variadic_any(Volatility::Immutable) }).call(parts)
}

/// The CASE that the function stands for, if it is that function.
pub(crate) fn case_of(function: &ScalarFunction) -> Option<Expr> {
    let guarded = function.func.inner().downcast_ref::<Guarded>()?;
    Some(guarded.case(&function.args))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Guarded {
    has_else: bool,
    signature: Signature,
}

impl Guarded {
    fn case(&self, parts: &[Expr]) -> Expr {
        let boxed = |expr: &Expr| Box::new(expr.clone());
        let (otherwise, branches) = match parts.split_last() {
            Some((otherwise, branches)) if self.has_else => (Some(boxed(otherwise)), branches),
            _ => (None, parts),
        };
        let when_then_expr = branches.chunks_exact(2).map(|pair| (boxed(&pair[0]), boxed(&pair[1]))).collect();
        Expr::Case(Case { expr: None, when_then_expr, else_expr: otherwise })
    }
}

impl ScalarUDFImpl for Guarded {
    fn name(&self) -> &'static str {
        "guarded case"
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.case(arguments).schema_name().to_string())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, then, ..] => Ok(then.clone()),
            _ => internal_err!("expected a condition and a value"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let [_, then, ..] = args.arg_fields else { return internal_err!("expected a condition and a value") };
        Ok(Arc::new(Field::new(self.name(), then.data_type().clone(), true)))
    }

    /// Its parts must not be computed ahead of it.
    fn short_circuits(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("it runs as a CASE")
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn a_branch_is_evaluated_where_its_condition_holds() {
        let rows = "(VALUES (0, 'x'), (1, '2'), (5, '7')) AS t(k, s)";
        for (condition, expected) in [
            ("CASE WHEN k = 0 THEN false ELSE 10 / k > 2 END", 1),
            ("CASE WHEN k <> 0 THEN 10 / k > 2 END", 1),
            ("CASE WHEN k = 0 THEN false WHEN 10 / k > 2 THEN true ELSE false END", 1),
            ("NOT CASE WHEN k = 0 THEN true ELSE CAST(s AS int) = 2 END", 1),
            ("CASE WHEN k = 0 THEN true ELSE k = 1 END", 2),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let found = context.sql(&format!("SELECT 1 FROM {rows} WHERE {condition}")).await.unwrap().collect().await;
            let found = found.unwrap_or_else(|error| panic!("{condition}: {error}"));
            assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), expected, "{condition}");
        }
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let named = context.sql(&format!("SELECT CASE WHEN k = 0 THEN true ELSE 1 / k > 0 END FROM {rows}")).await.unwrap();
        let name = named.schema().field(0).name().clone();
        let batches = named.collect().await.unwrap();
        assert_eq!(*batches[0].schema().field(0).name(), name);
    }
}
