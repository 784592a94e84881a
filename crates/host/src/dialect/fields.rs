//! `{'a': 1}.a` and `(info).city`: a field by its name after something that is no path of columns, which the planner takes in brackets.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Ident, Statement as Sql, Subscript, Value};
use pithead_syntax::{expressions_mut, walk_mut};

use super::macros::Naming;
use super::normal;

/// Puts the names of such fields in brackets. Results keep the names that they have.
pub(super) fn in_brackets(sql: &mut Sql) {
    let _ = walk_mut(sql, &mut Naming(&|expr| with_brackets(expr).is_some()));
    let _ = expressions_mut(sql, |expr| {
        if let Some(other) = with_brackets(expr) {
            *expr = other;
        }
        ControlFlow::<()>::Continue(())
    });
}

/// The same with brackets; none: it has no such field.
fn with_brackets(expr: &Expr) -> Option<Expr> {
    let Expr::CompoundFieldAccess { root, access_chain } = expr else { return None };
    // What is a part of the path that a column's name begins.
    let path = match root.as_ref() {
        Expr::Identifier(_) => access_chain.iter().take_while(|access| field(access).is_some()).count(),
        _ => 0,
    };
    if !access_chain[path..].iter().any(|access| field(access).is_some()) {
        return None;
    }
    let rest = access_chain[path..].iter().map(|access| match field(access) {
        Some(name) => {
            AccessExpr::Subscript(Subscript::Index { index: Expr::Value(Value::SingleQuotedString(normal(name)).into()) })
        }
        None => access.clone(),
    });
    let access_chain = access_chain[..path].iter().cloned().chain(rest).collect();
    Some(Expr::CompoundFieldAccess { root: root.clone(), access_chain })
}

fn field(access: &AccessExpr) -> Option<&Ident> {
    match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn names_after_values_are_in_brackets() {
        for (sql, expected) in [
            ("SELECT {'a': 1}.a AS a", "SELECT {'a': 1}['a'] AS a"),
            ("SELECT (info).City.\"Zip\" AS z FROM t", "SELECT (info)['city']['Zip'] AS z FROM t"),
            ("SELECT (info).city FROM t", "SELECT (info)['city'] AS \"(info).city\" FROM t"),
            ("SELECT t.a[1].b AS b FROM t", "SELECT t.a[1]['b'] AS b FROM t"),
            ("SELECT t.a.b, a[1] FROM t", "SELECT t.a.b, a[1] FROM t"),
        ] {
            let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
            in_brackets(&mut statement);
            assert_eq!(statement.to_string(), expected, "{sql}");
        }
    }
}
