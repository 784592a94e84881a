//! [`ListsInTexts`]: texts that stand for arrays: `{a,NULL,"b c"}` as in PostgreSQL, and `[a, NULL, 'b c']` as in DuckDB. The
//! engine makes an array of one value of each, which is the whole text.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::kept_names::{map_named, node_has};
use crate::read_texts::As;

/// The rule.
#[derive(Debug)]
pub(crate) struct ListsInTexts;

impl AnalyzerRule for ListsInTexts {
    fn name(&self) -> &'static str {
        "pithead_lists_in_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) || !node_has(&node, |part| cast_to_list(part).is_some())? {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| expr.transform_up(|part| read(part, &schema)))
        })?;
        Ok(changed.data)
    }
}

/// What is cast to an array, and the type of its values.
fn cast_to_list(expr: &Expr) -> Option<(&Expr, &DataType)> {
    let (Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })) = expr else { return None };
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) => Some((expr.as_ref(), item.data_type())),
        _ => None,
    }
}

fn read(part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match cast_to_list(&part) {
        Some((text, item)) if text.get_type(schema).is_ok_and(|of| of.is_string()) => {
            if item.is_nested() || item.is_binary() {
                return plan_err!("a text cannot be cast to an array of {item}: write one as in ARRAY[a, b]");
            }
            Ok(Transformed::yes(match part {
                Expr::TryCast(part) => {
                    let list = As::ListOrNull.read(*part.expr, schema)?;
                    Expr::TryCast(TryCast { expr: Box::new(list), ..part })
                }
                Expr::Cast(part) => {
                    let list = As::List.read(*part.expr, schema)?;
                    Expr::Cast(Cast { expr: Box::new(list), ..part })
                }
                other => other,
            }))
        }
        _ => Ok(Transformed::no(part)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::text_forms::list_of_text;
    use crate::{EngineOptions, session_state};

    fn items(text: &str) -> Option<String> {
        let items = list_of_text(text)?;
        Some(items.into_iter().map(|item| item.map_or_else(|| "-".to_owned(), |item| format!("<{item}>"))).collect())
    }

    #[test]
    fn texts_stand_for_arrays() {
        for (text, expected) in [
            ("{}", Some("")),
            (" { } ", Some("")),
            ("{q,r}", Some("<q><r>")),
            ("{ a b , NULL,null, \"NULL\",\"\"}", Some("<a b>--<NULL><>")),
            ("{\"a,b\", \"c\\\"d\\\\\", e\\,f\\ }", Some("<a,b><c\"d\\><e,f >")),
            ("{it's,[x]}", Some("<it's><[x]>")),
            ("{\\null}", Some("<null>")),
            ("[1, 2]", Some("<1><2>")),
            ("['a, b', \"c\", NULL]", Some("<a, b><c>-")),
            ("[]", Some("")),
            ("", None),
            ("a", None),
            ("{a", None),
            ("{a,}", None),
            ("{,a}", None),
            ("{a\"b\"}", None),
            ("{\"a\"b}", None),
            ("{\"a}", None),
            ("{a\\", None),
            ("{{a},{b}}", None),
            ("[[a]]", None),
            ("{a]", None),
        ] {
            assert_eq!(items(text).as_deref(), expected, "{text}");
        }
    }

    async fn run(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let column = batches[0].column(0);
        arrow::util::display::array_value_to_string(column, 0).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn casts_read_arrays() {
        for (sql, expected) in [
            ("SELECT CAST('{q,r}' AS TEXT[])", "[q, r]"),
            ("SELECT CAST(x AS INT[]) FROM (VALUES ('{1,NULL}')) AS v(x)", "[1, ]"),
            ("SELECT CAST('[1.5, 2]' AS DOUBLE[])", "[1.5, 2.0]"),
            ("SELECT CAST('{2024-02-29}' AS DATE[])", "[2024-02-29]"),
            ("SELECT TRY_CAST('{1' AS INT[]) IS NULL", "true"),
            ("SELECT CAST(NULL::text AS INT[]) IS NULL", "true"),
            ("SELECT CAST(ARRAY['1'] AS INT[])", "[1]"),
            ("SELECT cardinality(x::text[]) FROM (VALUES ('{a,b}'), ('{}')) AS v(x) WHERE x::text[] = ARRAY['a', 'b']", "2"),
        ] {
            assert_eq!(run(sql).await.as_deref(), Ok(expected), "{sql}");
        }
        for (sql, expected) in [
            ("SELECT CAST('q' AS TEXT[])", "'q' does not stand for an array"),
            ("SELECT CAST(x AS TEXT[]) FROM (VALUES ('{a}'), ('b')) AS v(x)", "'b' does not stand for an array"),
            ("SELECT CAST('{{a}}' AS TEXT[][])", "a text cannot be cast to an array of List"),
            ("SELECT CAST('{a}' AS BYTEA[])", "a text cannot be cast to an array of Binary"),
            ("SELECT CAST('{a}' AS INT[])", "Cannot cast string 'a' to value of Int32 type"),
        ] {
            let error = run(sql).await.unwrap_err();
            assert!(error.contains(expected), "{sql}: {error}");
        }
    }

    #[tokio::test]
    async fn texts_are_stored_as_the_arrays_that_columns_take() {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let run = async |sql: &str| context.sql(sql).await?.collect().await;
        run("CREATE TABLE arrays (id INT, t TEXT[], n INT[])").await.unwrap();
        for sql in [
            "INSERT INTO arrays VALUES (1, '{a,b}', '{1,2}')",
            "INSERT INTO arrays SELECT 2, '{q,r}', '{3,4}'",
            "INSERT INTO arrays SELECT 3, x, y FROM (SELECT '{v,w}' AS x, '[5, 6]' AS y) AS s",
        ] {
            run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        let counted = "SELECT count(*) FROM arrays WHERE cardinality(t) = 2 AND n[2] = 2 * id AND t[1] IN ('a', 'q', 'v')";
        let rows = run(counted).await.unwrap();
        assert_eq!(arrow::util::display::array_value_to_string(rows[0].column(0), 0).unwrap(), "3");
        let error = run("INSERT INTO arrays SELECT 4, x, NULL FROM (SELECT 'v' AS x) AS s").await.unwrap_err();
        assert!(error.to_string().contains("'v' does not stand for an array"), "{error}");
    }
}
