//! Literals as text that tells them apart.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Expr, lit};
use xxhash_rust::xxh3::xxh3_128;

/// An expression's text, in which no literal is cut short.
pub(crate) fn text(expr: Expr) -> String {
    spelt_out(expr).map(|spelt| spelt.data.to_string()).unwrap_or_default()
}

/// The expression with each literal of bytes replaced by its type, length and hash: DataFusion prints its first ten bytes only, and
/// two expressions would look alike.
pub(crate) fn spelt_out(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| {
        Ok(match &expr {
            Expr::Literal(value, _) => match told_apart(value) {
                Some(text) => Transformed::yes(lit(text)),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    })
}

fn told_apart(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            Some(format!("{} {} {:032x}", value.data_type(), bytes.len(), xxh3_128(bytes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::logical_expr::col;

    #[test]
    fn long_bytes_are_told_apart() {
        let bytes = |last: u8| col("b").eq(lit(ScalarValue::Binary(Some([vec![0; 20], vec![last]].concat()))));
        assert_eq!(bytes(1).to_string(), bytes(2).to_string(), "DataFusion cuts them short");
        assert_ne!(text(bytes(1)), text(bytes(2)));
        assert_eq!(text(bytes(1)), text(bytes(1)));
    }
}
