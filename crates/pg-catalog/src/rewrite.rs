//! [`rewrite`]: forms of SQL that only PostgreSQL has, brought into those that the engine has.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, JoinOperator, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value,
    visit_expressions_mut, visit_relations_mut,
};

use crate::{PG_CATALOG, information, tables};

/// Rewrites a statement in place.
pub fn rewrite(statement: &mut Statement) {
    let Statement::Statement(statement) = statement else { return };
    let _ = visit_relations_mut(statement, |name| {
        relation(name);
        ControlFlow::<()>::Continue(())
    });
    let _ = visit_expressions_mut(statement, |expr| {
        expression(expr);
        ControlFlow::<()>::Continue(())
    });
}

/// Tables of the catalogue are found without their schema, as PostgreSQL finds them, and those of `information_schema` lie in the
/// same place.
fn relation(name: &mut ObjectName) {
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [table] if table.starts_with("pg_") && tables::is_table(table) => *name = qualified(table),
        [.., schema, table] if *schema == "information_schema" && information::is_table(table) => {
            *name = qualified(&format!("{}{table}", information::PREFIX));
        }
        [schema, function]
            if *schema == PG_CATALOG && !tables::is_table(function) && !function.starts_with(information::PREFIX) =>
        {
            // A function that gives rows.
            *name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(*function))]);
        }
        _ => {}
    }
}

fn qualified(table: &str) -> ObjectName {
    ObjectName([PG_CATALOG, table].map(|part| ObjectNamePart::Identifier(Ident::new(part))).into())
}

fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

fn expression(expr: &mut Expr) {
    match expr {
        Expr::Collate { expr: inner, collation } if is_plain(collation) => *expr = taken(inner),
        Expr::BinaryOp { op, .. } => operator(op),
        Expr::AnyOp { compare_op, right, .. } => {
            operator(compare_op);
            if let Some(list) = literal(right).as_deref().and_then(array) {
                **right = list;
            }
        }
        Expr::Function(function) => {
            call(function);
            if let Some(subquery) = of_subquery(function) {
                *expr = subquery;
            }
        }
        Expr::Subquery(query) if gives_nothing(query) => *expr = Expr::Value(Value::Null.into()),
        Expr::Cast { expr: inner, data_type, .. } => {
            if let Some(name) = type_name(data_type) {
                match cast(inner, &name) {
                    Cast::Type(other) => *data_type = other,
                    Cast::Call(function) => *expr = called(function, vec![taken(inner)]),
                    Cast::Kept => {}
                }
            }
        }
        Expr::Identifier(ident) if ident.quote_style.is_none() => {
            const WORDS: [&str; 5] = ["current_schema", "current_catalog", "current_user", "session_user", "current_role"];
            if let Some(word) = WORDS.iter().find(|word| ident.value.eq_ignore_ascii_case(word)) {
                *expr = called(word, Vec::new());
            }
        }
        _ => {}
    }
}

/// Whether texts are compared by it as they are without it.
fn is_plain(collation: &ObjectName) -> bool {
    let last = collation.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
    matches!(last.as_deref(), Some("default" | "c" | "posix" | "ucs_basic"))
}

/// `OPERATOR(pg_catalog.~)` is `~`.
fn operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(parts) = op else { return };
    *op = match parts.last().map(String::as_str) {
        Some("~") => BinaryOperator::PGRegexMatch,
        Some("~*") => BinaryOperator::PGRegexIMatch,
        Some("!~") => BinaryOperator::PGRegexNotMatch,
        Some("!~*") => BinaryOperator::PGRegexNotIMatch,
        Some("~~") => BinaryOperator::PGLikeMatch,
        Some("~~*") => BinaryOperator::PGILikeMatch,
        Some("!~~") => BinaryOperator::PGNotLikeMatch,
        Some("!~~*") => BinaryOperator::PGNotILikeMatch,
        Some("=") => BinaryOperator::Eq,
        Some("<>" | "!=") => BinaryOperator::NotEq,
        Some("<") => BinaryOperator::Lt,
        Some("<=") => BinaryOperator::LtEq,
        Some(">") => BinaryOperator::Gt,
        Some(">=") => BinaryOperator::GtEq,
        Some("+") => BinaryOperator::Plus,
        Some("-") => BinaryOperator::Minus,
        Some("||") => BinaryOperator::StringConcat,
        _ => return,
    };
}

/// Functions are found without `pg_catalog`, and those that are written without parentheses have none of arguments.
fn call(function: &mut Function) {
    if function.name.0.len() == 2 && function.name.0[0].as_ident().is_some_and(|schema| folded(schema) == PG_CATALOG) {
        function.name.0.remove(0);
    }
    if matches!(function.args, FunctionArguments::None) {
        function.args = listed(Vec::new());
    }
}

/// `ARRAY(SELECT a FROM …)` as an aggregate over the same rows; none of them is an empty array.
fn of_subquery(function: &mut Function) -> Option<Expr> {
    if !function.name.to_string().eq_ignore_ascii_case("array") {
        return None;
    }
    let FunctionArguments::Subquery(query) = &function.args else { return None };
    if is_of_no_row(&query.to_string()) {
        // Never seen, so that only its type matters.
        return Some(called("make_array", vec![Expr::Value(Value::SingleQuotedString(String::new()).into())]));
    }
    if gives_nothing(query) {
        return Some(called("make_array", Vec::new()));
    }
    let mut query: Query = (**query).clone();
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] = select.projection.as_mut_slice()
    else {
        return None;
    };
    // The order is that of the items, in every query that asks so.
    query.order_by = None;
    *item = called("array_agg", vec![item.clone()]);
    let subquery = Expr::Subquery(Box::new(query));
    Some(called("coalesce", vec![subquery, called("make_array", Vec::new())]))
}

/// Whether a subquery has no rows for certain, since it reads a table of the catalogue that never has any, or is for the rows of one. The
/// engine cannot run all of these, correlated as they are.
fn gives_nothing(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let text = query.to_string();
    if text.to_lowercase().contains("count(") {
        return false;
    }
    is_of_no_row(&text) || select.from.iter().any(joins_nothing)
}

/// Whether psql asks so for columns of tables that never have rows, or that are always NULL.
fn is_of_no_row(query: &str) -> bool {
    let of_policy = query.contains("polroles") && query.contains("pg_catalog.pg_roles");
    let of_publication = query.contains("prattrs") && query.contains("pg_catalog.pg_attribute");
    of_policy || of_publication || query.contains("unnest(tc.reloptions)")
}

fn joins_nothing(from: &TableWithJoins) -> bool {
    use JoinOperator::{CrossJoin, Inner, Join, Left, LeftOuter};
    let known = |join: &ast::Join| matches!(join.join_operator, Join(_) | Inner(_) | CrossJoin(_) | Left(_) | LeftOuter(_));
    let keeps_none =
        |join: &ast::Join| matches!(join.join_operator, Join(_) | Inner(_) | CrossJoin(_)) && is_empty(&join.relation);
    from.joins.iter().all(known) && (is_empty(&from.relation) || from.joins.iter().any(keeps_none))
}

/// Whether it is a table of the catalogue that never has rows; names were qualified before.
fn is_empty(factor: &TableFactor) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    matches!(parts.as_slice(), [schema, table] if schema == PG_CATALOG && tables::is_empty(table))
}

/// What becomes of a cast.
enum Cast {
    Type(DataType),
    Call(&'static str),
    Kept,
}

fn cast(inner: &Expr, name: &str) -> Cast {
    let by_name =
        literal(inner).is_some() || matches!(inner, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)));
    let either = |of_name, of_number| Cast::Call(if by_name { of_name } else { of_number });
    match name {
        "regclass" => either("regclass_oid", "regclass_name"),
        "regtype" => either("regtype_oid", "regtype_name"),
        "regnamespace" => either("regnamespace_oid", "regnamespace_name"),
        "regproc" | "regprocedure" | "regoper" | "regoperator" => Cast::Call("regproc_name"),
        "text"
        | "name"
        | "char"
        | "bpchar"
        | "varchar"
        | "cstring"
        | "unknown"
        | "json"
        | "jsonb"
        | "information_schema.sql_identifier" => Cast::Type(DataType::Text),
        "oid" | "int8" | "xid" | "bigint" => Cast::Type(DataType::BigInt(None)),
        "int4" | "int" | "integer" => Cast::Type(DataType::Int(None)),
        "int2" | "smallint" => Cast::Type(DataType::SmallInt(None)),
        "float8" => Cast::Type(DataType::DoublePrecision),
        "float4" => Cast::Type(DataType::Real),
        "bool" => Cast::Type(DataType::Boolean),
        _ => Cast::Kept,
    }
}

/// The name of a type that only PostgreSQL has, or that is written with its schema.
fn type_name(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Custom(name, _) => {
            let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
            Some(parts.join(".").trim_start_matches("pg_catalog.").to_owned())
        }
        DataType::Regclass => Some("regclass".to_owned()),
        DataType::JSON | DataType::JSONB => Some("json".to_owned()),
        _ => None,
    }
}

/// A text that is written out.
fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

/// `'{a,b}'` as an array of texts.
fn array(text: &str) -> Option<Expr> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let items = inner.split(',').filter(|item| !item.is_empty());
    let value = |item: &str| Expr::Value(Value::SingleQuotedString(item.trim().trim_matches('"').to_owned()).into());
    Some(called("make_array", items.map(value).collect()))
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

fn called(name: &str, arguments: Vec<Expr>) -> Expr {
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

fn listed(arguments: Vec<Expr>) -> FunctionArguments {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))).collect();
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() })
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn rewritten(sql: &str) -> String {
        let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        rewrite(&mut statement);
        statement.to_string()
    }

    #[test]
    fn forms_of_postgresql_become_ours() {
        for (sql, expected) in [
            (
                "SELECT c.oid FROM pg_class c WHERE c.relname OPERATOR(pg_catalog.~) '^(t)$' COLLATE pg_catalog.default",
                "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.relname ~ '^(t)$'",
            ),
            (
                "SELECT 't'::regclass, c.oid::pg_catalog.regclass FROM c",
                "SELECT regclass_oid('t'), regclass_name(c.oid) FROM c",
            ),
            ("SELECT pg_catalog.version(), current_user", "SELECT version(), current_user()"),
            (
                "SELECT a::pg_catalog.text FROM information_schema.tables",
                "SELECT a::TEXT FROM pg_catalog.information_schema_tables",
            ),
            ("SELECT a = ANY('{r,v}') FROM t", "SELECT a = ANY(make_array('r', 'v')) FROM t"),
            ("SELECT a::int, b::date FROM t", "SELECT a::INT, b::DATE FROM t"),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn subqueries_over_tables_without_rows_are_not_run() {
        let sql = "SELECT (SELECT d.adbin FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND a.atthasdef) FROM a";
        assert_eq!(rewritten(sql), "SELECT NULL FROM a");
        let sql = "SELECT ARRAY(SELECT b.rolname FROM pg_auth_members m JOIN pg_roles b ON m.roleid = b.oid WHERE m.member = r.oid) FROM r";
        assert_eq!(rewritten(sql), "SELECT make_array() FROM r");
        for kept in [
            "SELECT (SELECT count(*) FROM pg_catalog.pg_attrdef) FROM a",
            "SELECT (SELECT a.x FROM a LEFT JOIN pg_catalog.pg_attrdef AS d ON a.x = d.oid) FROM b",
            "SELECT (SELECT lab.x FROM lab.pg_attrdef AS lab) FROM a",
        ] {
            assert_eq!(rewritten(kept), kept);
        }
    }

    #[test]
    fn arrays_of_subqueries_become_aggregates() {
        let sql = "SELECT ARRAY(SELECT b.rolname FROM pg_roles b WHERE b.oid = r.oid ORDER BY 1) FROM r";
        let expected = "SELECT coalesce((SELECT array_agg(b.rolname) FROM pg_catalog.pg_roles b WHERE b.oid = r.oid), make_array()) FROM r";
        assert_eq!(rewritten(sql), expected);
    }
}
