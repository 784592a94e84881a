//! [`BytesInTexts`]: texts of a statement that stand for bytes, as in PostgreSQL and DuckDB.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::compared::{read_compared, text_of};
use crate::kept_names::map_named;
use crate::read_texts::As;
use crate::same_moments::CHOOSING;
use crate::text_forms::{bytes_of_text, no_bytes};

/// Reads texts that are cast to bytes, or compared with bytes: `'\x00ff'` has two. The engine takes the letters of the text.
#[derive(Debug)]
pub(crate) struct BytesInTexts;

impl AnalyzerRule for BytesInTexts {
    fn name(&self) -> &'static str {
        "pithead_bytes_in_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !may_have_bytes(&plan)? {
            return Ok(plan);
        }
        let changed = plan.transform_down_with_subqueries(|node| {
            if matches!(node, LogicalPlan::TableScan(_)) {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| expr.transform_up(|part| read(part, &schema)))
        })?;
        Ok(changed.data)
    }
}

/// Reads texts that the engine casts to bytes to make types equal. A function that takes bytes gets the letters of a text; what a
/// text is compared with, or chosen beside, says that it stands for bytes. No such cast is left: a drive could not tell one from
/// those that were written.
#[derive(Debug)]
pub(crate) struct LettersAsBytes;

impl AnalyzerRule for LettersAsBytes {
    fn name(&self) -> &'static str {
        "pithead_letters_as_bytes"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let changed = plan.transform_down_with_subqueries(|node| {
            let mut found = false;
            node.apply_expressions(|expr| {
                found = found || expr.exists(|part| Ok(is_cast_to_bytes(part)))?;
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })?;
            if !found {
                return Ok(Transformed::no(node));
            }
            let schema = merge_schema(&node.inputs());
            map_named(node, |expr| {
                expr.transform_down(|part| match takes_letters(&part) {
                    true => part.map_children(|argument| read_cast(argument, As::Letters, &schema)),
                    false => read_cast(part, As::Bytes, &schema),
                })
            })
        })?;
        Ok(changed.data)
    }
}

fn takes_letters(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => !CHOOSING.contains(&call.func.name()),
        expr => matches!(expr, Expr::AggregateFunction(_)),
    }
}

fn read_cast(expr: Expr, how: As, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Cast(part) if part.field.data_type().is_binary() && is_text(&part.expr, schema) => {
            Ok(Transformed::yes(of_type(how.read(*part.expr, schema)?, part.field.data_type())))
        }
        expr => Ok(Transformed::no(expr)),
    }
}

fn is_cast_to_bytes(expr: &Expr) -> bool {
    let (Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. })) = expr else { return false };
    field.data_type().is_binary()
}

/// Whether there are columns of bytes, a cast to bytes, or a literal with a backslash. All others have the bytes of their
/// letters.
fn may_have_bytes(plan: &LogicalPlan) -> Result<bool> {
    let is_one = |part: &Expr| is_cast_to_bytes(part) || text_of(part).is_some_and(|text| text.contains('\\'));
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = found || node.schema().fields().iter().any(|field| field.data_type().is_binary());
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(is_one(part)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn read(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Cast(part) if part.field.data_type().is_binary() && is_text(&part.expr, schema) => {
            let to = part.field.data_type();
            Transformed::yes(match text_of(&part.expr) {
                Some(text) => Expr::Literal(bytes(text)?.cast_to(to)?, None),
                None => of_type(As::Bytes.read(*part.expr, schema)?, to),
            })
        }
        Expr::TryCast(part) if part.field.data_type().is_binary() && is_text(&part.expr, schema) => {
            Transformed::yes(of_type(As::BytesOrNull.read(*part.expr, schema)?, part.field.data_type()))
        }
        expr => read_compared(expr, |part| is_binary(part, schema), |part| as_bytes(part, schema))?,
    })
}

/// Bytes of views as another type of bytes.
fn of_type(bytes: Expr, to: &DataType) -> Expr {
    if *to == DataType::BinaryView { bytes } else { cast(bytes, to.clone()) }
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|of| of.is_string())
}

fn is_binary(expr: &Expr, schema: &DFSchema) -> bool {
    !matches!(expr, Expr::Literal(ScalarValue::Null, _)) && expr.get_type(schema).is_ok_and(|of| of.is_binary())
}

fn as_bytes(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    match text_of(&expr) {
        Some(text) => Ok(lit(bytes(text)?)),
        None if is_text(&expr, schema) => As::Bytes.read(expr, schema),
        None => Ok(expr),
    }
}

fn bytes(text: &str) -> Result<ScalarValue> {
    match bytes_of_text(text) {
        Some(bytes) => Ok(ScalarValue::Binary(Some(bytes))),
        None => plan_err!("{}", no_bytes(text)),
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::{EngineOptions, session_state};

    #[test]
    fn texts_stand_for_bytes() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("\\x", Some(b"")),
            ("\\x00fF", Some(b"\x00\xff")),
            ("\\x00\\xff", Some(b"\x00\xff")),
            ("\\x0", None),
            ("\\x0g", None),
            ("\\xDE AD", Some(b"\xde\xad")),
            ("\\x DE\n\tAD ", Some(b"\xde\xad")),
            ("\\xDE A D", None),
            ("\\xDEADg", None),
            ("\\xDE-AD", None),
            ("\\x41 \\x42", Some(b"A B")),
            ("a\\x41b", Some(b"aAb")),
            ("a\\\\\\001", Some(b"a\\\x01")),
            ("\\400", None),
            ("\\", None),
            ("plain \u{e4}", Some(b"plain \xc3\xa4")),
        ] {
            assert_eq!(bytes_of_text(text).as_deref(), expected, "{text}");
        }
    }
    async fn run(sql: &str) -> std::result::Result<String, String> {
        let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
        let batches = async { context.sql(sql).await?.collect().await }.await.map_err(|error| error.to_string())?;
        let column = batches[0].column(0);
        arrow::util::display::array_value_to_string(column, 0).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn texts_of_columns_are_read_where_bytes_are_meant() {
        for (sql, expected) in [
            (r"SELECT x::bytea FROM (VALUES ('\x4142')) AS v(x)", "4142"),
            (r"SELECT b FROM (SELECT CAST(x AS BYTEA) AS b FROM (SELECT '\x01ff' AS x))", "01ff"),
            (r"SELECT encode(x::bytea, 'hex') FROM (VALUES ('\x4142')) AS v(x)", "4142"),
            (r"SELECT encode(x, 'hex') FROM (VALUES ('\x41')) AS v(x)", "5c783431"),
            (r"SELECT decode(x, 'hex') FROM (VALUES ('4142')) AS v(x)", "4142"),
            (r"SELECT TRY_CAST(x AS BYTEA) IS NULL FROM (VALUES ('\x0g')) AS v(x)", "true"),
            (r"SELECT TRY_CAST('\x0g' AS BYTEA) IS NULL", "true"),
            (r"SELECT CAST(NULL::text AS BYTEA) IS NULL", "true"),
            (r"SELECT x = CAST(y AS BYTEA) FROM (VALUES ('\x41', 'A')) AS v(x, y)", "true"),
            (r"SELECT nullif(CAST(y AS BYTEA), x) IS NULL FROM (VALUES ('\x41', 'A')) AS v(x, y)", "true"),
            (r"SELECT CASE WHEN x < y THEN x ELSE y::bytea END FROM (VALUES ('\x4142', 'a')) AS v(x, y)", "4142"),
            (r"SELECT max(CAST(x AS BYTEA)) FROM (VALUES ('\x41'), ('\x42')) AS v(x)", "42"),
        ] {
            assert_eq!(run(sql).await.as_deref(), Ok(expected), "{sql}");
        }
        for sql in [r"SELECT CAST(x AS BYTEA) FROM (VALUES ('\xDE-AD')) AS v(x)", r"SELECT '\xDE-AD'::bytea"] {
            let error = run(sql).await.unwrap_err();
            assert!(error.contains(r"'\xDE-AD' does not stand for bytes"), "{error}");
        }
    }
}
