//! DuckDB's `struct_pack(a := 1, b := 'x')`, which is `named_struct('a', 1, 'b', 'x')`.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgOperator, FunctionArguments, Ident, Statement as Sql, Value,
};
use pithead_syntax::{any_expression, expressions_mut, walk_mut};

use super::macros::Naming;
use super::{call, normal};

const NAME: &str = "struct_pack";

/// Replaces such calls. Results that have no name of their own keep that of the call as it is written. A function of this name that a
/// user created is not touched; fields without a name are refused.
pub(super) fn expand(state: &SessionState, sql: &mut Sql) -> Result<(), &'static str> {
    if state.scalar_functions().contains_key(NAME) || !any_expression(sql, |expr| packed(expr).is_some()) {
        return Ok(());
    }
    let _ = walk_mut(sql, &mut Naming(&|expr| packed(expr).is_some()));
    // Inner calls come first.
    let replaced = expressions_mut(sql, |expr| {
        let Some(function) = packed(expr) else { return ControlFlow::Continue(()) };
        let Some(fields) = fields(function) else {
            return ControlFlow::Break("struct_pack expects a name for each field, as in struct_pack(a := 1, b := 'x')");
        };
        *expr = call("named_struct", fields);
        ControlFlow::Continue(())
    });
    replaced.break_value().map_or(Ok(()), Err)
}

/// The call, if an expression is one.
fn packed(expr: &Expr) -> Option<&Function> {
    let Expr::Function(function) = expr else { return None };
    let [name] = &function.name.0[..] else { return None };
    (normal(name.as_ident()?) == NAME).then_some(function)
}

/// Each field's name and value; none: one has no name, or the call has more than fields.
fn fields(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = list.clauses.is_empty() && list.duplicate_treatment.is_none() && !list.args.is_empty();
    if !is_plain || function.filter.is_some() || function.over.is_some() {
        return None;
    }
    let pairs = list.args.iter().map(|arg| field(arg).map(|(name, value)| [text(normal(name)), value.clone()]));
    Some(pairs.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

fn field(arg: &FunctionArg) -> Option<(&Ident, &Expr)> {
    let (name, value, operator) = match arg {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), operator } => (name, value, operator),
        FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(value), operator } => {
            (name, value, operator)
        }
        _ => return None,
    };
    // `a = 1` is a comparison.
    matches!(operator, FunctionArgOperator::Assignment | FunctionArgOperator::RightArrow).then_some((name, value))
}

fn text(name: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(name).into())
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn expanded(sql: &str) -> Result<String, &'static str> {
        let mut statement = Parser::parse_sql(&GenericDialect {}, sql).unwrap().remove(0);
        expand(&SessionContext::new().state(), &mut statement).map(|()| statement.to_string())
    }

    #[test]
    fn names_of_fields_become_arguments() {
        for (sql, expected) in [
            ("SELECT struct_pack(a := 1, \"B\" => 'x') AS s", "SELECT \"named_struct\"('a', 1, 'B', 'x') AS s"),
            (
                "SELECT STRUCT_PACK(A := struct_pack(b := x)) FROM t",
                "SELECT \"named_struct\"('a', \"named_struct\"('b', x)) AS \"STRUCT_PACK(A := struct_pack(b := x))\" FROM t",
            ),
            ("SELECT abs(1)", "SELECT abs(1)"),
        ] {
            assert_eq!(expanded(sql).as_deref(), Ok(expected), "{sql}");
        }
        for refused in ["struct_pack(1)", "struct_pack()", "struct_pack(a = 1)", "struct_pack(a := 1, 2)"] {
            assert!(expanded(&format!("SELECT {refused}")).is_err(), "{refused}");
        }
    }
}
