//! Regular expressions as the optimiser may read them, and `SIMILAR TO`, where the whole text matches one, as in DuckDB.
//!
//! DataFusion 55.2 looks for a match of SIMILAR TO anywhere in the text. It makes LIKE of expressions that are texts only, and forgets
//! that a backslash is an escape there.

use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Like, Operator, binary_expr, cast};

/// The comparison that a SIMILAR TO stands for.
pub(crate) fn whole_match(like: Like, schema: &DFSchema) -> Result<Expr> {
    let Like { negated, expr, pattern, escape_char, .. } = like;
    if let Some(escape) = escape_char {
        return plan_err!("SIMILAR TO takes no ESCAPE {escape:?}: the pattern is a regular expression, in which \\ escapes");
    }
    let anchored = match *pattern {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Expr::Literal(ScalarValue::Utf8(Some(whole(&text))), None),
        Expr::Literal(ScalarValue::LargeUtf8(Some(text)), _) => Expr::Literal(ScalarValue::LargeUtf8(Some(whole(&text))), None),
        Expr::Literal(ScalarValue::Utf8View(Some(text)), _) => Expr::Literal(ScalarValue::Utf8View(Some(whole(&text))), None),
        pattern => {
            let data_type = pattern.get_type(schema)?;
            let text = |text: &str| cast(Expr::Literal(ScalarValue::Utf8View(Some(text.to_owned())), None), data_type.clone());
            let begun = binary_expr(text("^(?:"), Operator::StringConcat, pattern);
            cast(binary_expr(begun, Operator::StringConcat, text(")$")), data_type.clone())
        }
    };
    let operator = if negated { Operator::RegexNotMatch } else { Operator::RegexMatch };
    Ok(binary_expr(*expr, operator, anchored))
}

/// A regular expression that matches where `pattern` matches a whole text.
fn whole(pattern: &str) -> String {
    let anchored = format!("^(?:{pattern})$");
    grouped(&anchored).unwrap_or(anchored)
}

/// How a group begins that the optimiser makes no LIKE of.
const GROUP: &str = "(?<whole>";

/// The same expression as a group, where it has a backslash to find; none: it may stay.
fn grouped(pattern: &str) -> Option<String> {
    let is_open = pattern.contains(r"\\") || pattern.to_lowercase().contains(r"\x5c");
    (is_open && !pattern.starts_with(GROUP)).then(|| format!("{GROUP}{pattern})"))
}

/// Whether the optimiser would make another condition of a regular expression that is a constant.
pub(crate) fn is_misread(expr: &Expr) -> bool {
    pattern_of(expr).is_some_and(|pattern| grouped(pattern).is_some())
}

/// The condition with its regular expression as a group.
pub(crate) fn well_read(mut expr: Expr) -> Expr {
    let Some(pattern) = pattern_of(&expr).and_then(grouped) else { return expr };
    let place = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { right, .. }) => Some(right.as_mut()),
        Expr::ScalarFunction(function) => function.args.get_mut(1),
        _ => None,
    };
    if let Some(Expr::Literal(ScalarValue::Utf8(text) | ScalarValue::LargeUtf8(text) | ScalarValue::Utf8View(text), _)) = place
    {
        *text = Some(pattern);
    }
    expr
}

/// The regular expression of a condition, if it is a constant.
fn pattern_of(expr: &Expr) -> Option<&str> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let pattern = match expr {
        Expr::BinaryExpr(BinaryExpr { op: RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch, right, .. }) => right,
        Expr::ScalarFunction(function) if function.func.name() == "regexp_like" => function.args.get(1)?,
        _ => return None,
    };
    match pattern {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::{EngineOptions, session_state};

    #[tokio::test]
    async fn texts_match_as_they_are_written() {
        let rows = r"(VALUES ('a\b'), ('ab'), ('a%'), ('abc')) AS t(s)";
        for (condition, expected) in [
            (r"s ~ 'a\\b'", 1),
            (r"s !~ 'a\\b'", 3),
            (r"s ~* 'A\\b'", 1),
            (r"s ~ 'a\\'", 1),
            (r"s ~ '^a\\b$'", 1),
            (r"regexp_like(s, 'a\\b')", 1),
            (r"s ~ 'a%'", 1),
            ("s SIMILAR TO 'b'", 0),
            ("s SIMILAR TO 'ab.?'", 2),
            ("s SIMILAR TO 'ab|a%'", 2),
            ("s NOT SIMILAR TO 'a.*c'", 3),
            (r"s SIMILAR TO 'a\\b'", 1),
            ("s SIMILAR TO left('abc', 2)", 1),
            ("s SIMILAR TO s", 3),
        ] {
            let context = SessionContext::new_with_state(session_state(&EngineOptions::default()));
            let found = context.sql(&format!("SELECT 1 FROM {rows} WHERE {condition}")).await.unwrap().collect().await;
            let found = found.unwrap_or_else(|error| panic!("{condition}: {error}"));
            assert_eq!(found.iter().map(|batch| batch.num_rows()).sum::<usize>(), expected, "{condition}");
        }
    }
}
