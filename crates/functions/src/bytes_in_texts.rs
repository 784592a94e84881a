//! [`BytesInTexts`]: texts of a statement that stand for bytes, as in PostgreSQL and DuckDB.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use datafusion::optimizer::AnalyzerRule;

use crate::compared::{read_compared, text_of};
use crate::kept_names::map_named;

/// Reads texts that are stored as bytes, or compared with bytes: `'\x00ff'` has two. The engine takes the letters of the text.
#[derive(Debug)]
pub(crate) struct BytesInTexts;

impl AnalyzerRule for BytesInTexts {
    fn name(&self) -> &'static str {
        "pithead_bytes_in_texts"
    }

    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_escapes(&plan)? {
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

/// Whether there is a text with a backslash: all others have the bytes of their letters.
fn has_escapes(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found || expr.exists(|part| Ok(text_of(part).is_some_and(|text| text.contains('\\'))))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn read(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Cast(Cast { expr, field }) => match text_of(&expr) {
            Some(text) if field.data_type().is_binary() => {
                Transformed::yes(Expr::Literal(bytes(text)?.cast_to(field.data_type())?, None))
            }
            _ => Transformed::no(Expr::Cast(Cast { expr, field })),
        },
        expr => read_compared(expr, |part| is_binary(part, schema), as_bytes)?,
    })
}

fn is_binary(expr: &Expr, schema: &DFSchema) -> bool {
    !matches!(expr, Expr::Literal(ScalarValue::Null, _)) && expr.get_type(schema).is_ok_and(|of| of.is_binary())
}

fn as_bytes(expr: Expr) -> Result<Expr> {
    match text_of(&expr) {
        Some(text) => Ok(lit(bytes(text)?)),
        None => Ok(expr),
    }
}

fn bytes(text: &str) -> Result<ScalarValue> {
    match bytes_of_text(text) {
        Some(bytes) => Ok(ScalarValue::Binary(Some(bytes))),
        None => plan_err!(
            "'{text}' does not stand for bytes: \\x is followed by pairs of hexadecimal digits, and a backslash elsewhere by \
             xHH, three octal digits, or another one"
        ),
    }
}

/// The bytes that a text stands for: `\x00ff` as in PostgreSQL, or letters, and others as `\x00`, `\000` or `\\`, as in DuckDB and in
/// PostgreSQL's older form. None: it stands for none.
pub fn bytes_of_text(text: &str) -> Option<Vec<u8>> {
    if let Some(all) = text.strip_prefix("\\x").and_then(of_digits) {
        return Some(all);
    }
    let mut rest = text.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    loop {
        let (byte, behind) = match rest {
            [] => return Some(bytes),
            [b'\\', b'\\', behind @ ..] => (b'\\', behind),
            [b'\\', b'x', high, low, behind @ ..] => (hex(*high)? * 16 + hex(*low)?, behind),
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                ((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'), behind)
            }
            [b'\\', ..] => return None,
            [byte, behind @ ..] => (*byte, behind),
        };
        bytes.push(byte);
        rest = behind;
    }
}

fn of_digits(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(hex(*high)? * 16 + hex(*low)?)).collect()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_for_bytes() {
        for (text, expected) in [
            ("", Some(&b""[..])),
            ("\\x", Some(b"")),
            ("\\x00fF", Some(b"\x00\xff")),
            ("\\x00\\xff", Some(b"\x00\xff")),
            ("\\x0", None),
            ("\\x0g", None),
            ("a\\x41b", Some(b"aAb")),
            ("a\\\\\\001", Some(b"a\\\x01")),
            ("\\400", None),
            ("\\", None),
            ("plain \u{e4}", Some(b"plain \xc3\xa4")),
        ] {
            assert_eq!(bytes_of_text(text).as_deref(), expected, "{text}");
        }
    }
}
