//! Parts of SQL's syntax tree: read, and made.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Query, SelectItem, SetExpr, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The parts of a name, in small letters where they are not quoted.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect()
}

/// A name as it is looked up: in small letters unless it is quoted.
pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Whether it is a parameter.
pub(crate) fn is_placeholder(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::Placeholder(_)),
        Expr::Nested(inner) => is_placeholder(inner),
        _ => false,
    }
}

/// A text that is written out.
pub(crate) fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

/// A call of a function.
pub(crate) fn called(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: listed(arguments),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Arguments without names.
pub(crate) fn listed(arguments: Vec<Expr>) -> FunctionArguments {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).collect();
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() })
}

/// The query of one value.
pub(crate) fn selecting(expr: Expr) -> Option<Box<Query>> {
    let mut query =
        Parser::new(&GenericDialect {}).try_with_sql("SELECT 1").and_then(|mut parser| parser.parse_query()).ok()?;
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    select.projection = vec![SelectItem::UnnamedExpr(expr)];
    Some(query)
}
