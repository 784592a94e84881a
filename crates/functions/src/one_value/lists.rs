//! Several lists that one expression is looked for in.
//!
//! DataFusion makes one list of two: `k IN (1, 2) AND k IN (3, 4)` becomes FALSE, and `k NOT IN (1, 2) OR k NOT IN (3, 4)` TRUE. It
//! forgets that both are NULL where `k` is, that a list may have a NULL or a column, and that two floats may be equal by other bits.

use std::collections::HashMap;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::canonical::{has_synonyms, looked_for_in};

/// The expression with lists that nobody makes one of, where that could be another list. Equal lists stay equal.
pub(crate) fn with_lists_apart(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let mut lists: HashMap<&Expr, Vec<&InList>> = HashMap::new();
    expr.apply(|part| {
        if let Expr::InList(list) = part {
            lists.entry(list.expr.as_ref()).or_default().push(list);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    lists.retain(|looked_for, lists| lists.len() > 1 && may_differ(looked_for, lists, schema));
    if lists.is_empty() {
        return Ok(Transformed::no(expr));
    }
    let apart: Vec<Expr> = lists.into_keys().cloned().collect();
    expr.transform_up(|part| match part {
        Expr::InList(InList { expr, list, negated }) if apart.contains(&expr) => {
            let expr = Box::new(looked_for_in(*expr, &list, negated));
            Ok(Transformed::yes(Expr::InList(InList { expr, list, negated })))
        }
        part => Ok(Transformed::no(part)),
    })
}

/// Whether what two lists have in common could be told wrong.
fn may_differ(looked_for: &Expr, lists: &[&InList], schema: &DFSchema) -> bool {
    let first = lists[0];
    if lists.iter().all(|list| list.list == first.list && list.negated == first.negated) {
        return false;
    }
    let is_plain = |value: &Expr| matches!(value, Expr::Literal(value, _) if !value.is_null());
    looked_for.nullable(schema).unwrap_or(true)
        || looked_for.get_type(schema).is_ok_and(|of| has_synonyms(&of))
        || !lists.iter().all(|list| list.list.iter().all(is_plain))
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use datafusion::execution::context::SessionContext;

    use crate::{EngineOptions, session_state};

    async fn counts(table: &str, cases: &[(&str, i64)]) {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        context.sql(&format!("CREATE TABLE t AS {table}")).await.unwrap().collect().await.unwrap();
        for (condition, expected) in cases {
            let frame = context.sql(&format!("SELECT count(*) FROM t WHERE {condition}")).await.unwrap();
            let batches = frame.collect().await.unwrap();
            assert_eq!(batches[0].column(0).as_primitive::<Int64Type>().value(0), *expected, "{condition}");
        }
    }

    #[tokio::test]
    async fn lists_know_null_and_columns() {
        let table =
            "SELECT column1 AS k, column2 AS a, column3 AS b FROM (VALUES (1, 1, 1), (2, 2, 3), (5, 5, 5), (NULL, 1, 2))";
        let cases = [
            ("k NOT IN (1, 2) OR k NOT IN (3, 4)", 3),
            ("NOT (k IN (1, 2) AND k IN (3, 4))", 3),
            ("(k IN (1, 2) AND k IN (3, 4)) IS NULL", 1),
            ("k IN (1, 2, 5) AND k NOT IN (2, NULL)", 0),
            ("k NOT IN (1, NULL) OR k NOT IN (2, 3)", 2),
            ("k IN (a, 7) AND k IN (b, 8)", 2),
            ("k IN (1, 2) OR k IN (2, 5)", 3),
            ("k NOT IN (1, 2) AND k NOT IN (3, 4)", 1),
            ("(k IN (1, 2) AND a = 1) OR (k IN (1, 2) AND a = 2)", 2),
        ];
        counts(table, &cases).await;
    }

    #[tokio::test]
    async fn both_zeros_are_in_a_list_with_one() {
        let table = "SELECT column1 AS f FROM (VALUES (0.0), (-0.0), (5.0)) WHERE column1 IS NOT NULL";
        let table = table.replace("column1 AS f", "CAST(column1 AS DOUBLE) AS f");
        counts(&table, &[("f IN (0.0::double, 5.0::double) AND f IN (-0.0::double, 7.0::double)", 2)]).await;
    }
}
