//! Formats of moments, in the engine's letters.

use datafusion::sql::sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value};

/// Fractions of a second in a format that is written out: DuckDB's `%f`, `%g` and `%n` have six, three and nine digits.
pub(super) fn with_fractions(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(format)))) = list.args.get_mut(1) else { return };
    let Value::SingleQuotedString(format) = &mut format.value else { return };
    let mut engines = String::with_capacity(format.len());
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        engines.push(char);
        let letter = if char == '%' { chars.next() } else { None };
        match letter {
            Some('f') => engines.push_str("6f"),
            Some('g') => engines.push_str("3f"),
            Some('n') => engines.push_str("9f"),
            next => engines.extend(next),
        }
    }
    *format = engines;
}
