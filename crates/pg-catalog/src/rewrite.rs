//! [`rewrite`]: forms of SQL that only PostgreSQL has, brought into those that the engine has.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, DataType, ExactNumberInfo, Expr, Function, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Statement as Sql, Value,
};
use pithead_syntax::{expressions_mut, relations_mut, walk_mut};

use crate::factors::Factors;
use crate::facts::ConnectionFacts;
use crate::interval_texts::interval_in_units;
use crate::sets::Sets;
use crate::subqueries::{alone, of_path, of_subquery, without_rows};
use crate::syntax::{called, is_placeholder, listed, literal, parts};
use crate::{PG_CATALOG, forms, information, names, row_values, tables};

/// Rewrites a statement of a connection in place.
pub fn rewrite(statement: &mut Statement, connection: &dyn ConnectionFacts) {
    let Statement::Statement(statement) = statement else { return };
    let (database, path) = (connection.database(), connection.path());
    let mut of_catalog = false;
    let _ = relations_mut(statement, |name| {
        names::without_database(name, &database);
        relation(name);
        of_catalog |= parts(name).first().is_some_and(|schema| schema == PG_CATALOG);
        ControlFlow::<()>::Continue(())
    });
    names::qualify(statement, &path.elsewhere);
    let _ = walk_mut(statement, &mut Factors { names_columns: connection.names_results() });
    let _ = walk_mut(statement, &mut Sets);
    let known = Known { of_catalog, schemas: path.domains.len().max(1), connection };
    if let Sql::CreateTable(create) = statement.as_mut() {
        create.columns.iter_mut().for_each(|column| floats(&mut column.data_type));
    }
    let _ = expressions_mut(statement, |expr| {
        expression(expr, known);
        ControlFlow::<()>::Continue(())
    });
}

/// What is known of a statement.
#[derive(Clone, Copy)]
struct Known<'a> {
    /// It asks the catalogue.
    of_catalog: bool,
    /// How many domains its bare names are looked up in.
    schemas: usize,
    /// Tells the path of these.
    connection: &'a dyn ConnectionFacts,
}

/// Tables of the catalogue are found without their schema, as PostgreSQL finds them, and those of `information_schema` lie in the
/// same place.
fn relation(name: &mut ObjectName) {
    match parts(name).iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
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

fn expression(expr: &mut Expr, known: Known<'_>) {
    let of_catalog = known.of_catalog;
    match expr {
        Expr::Collate { expr: inner, collation } if is_plain(collation) => *expr = taken(inner),
        Expr::BinaryOp { left, op, right } => {
            operator(op);
            if of_catalog {
                forms::function_number(left, op, right);
            }
            let kind = of_catalog.then(|| forms::kind_of_type(left, op, right)).flatten();
            let known = kind.map(forms::boolean).or_else(|| forms::place_compared(left, op, right));
            if let Some(value) = known.or_else(|| row_values::compared(left, op, right)) {
                *expr = value;
            }
        }
        Expr::InList { expr: inner, list, negated } => {
            if let Some(value) = row_values::among(inner, list, *negated) {
                *expr = value;
            }
        }
        Expr::Between { expr: inner, negated, low, high } => {
            if let Some(value) = forms::place_between(inner, *negated, low, high) {
                *expr = value;
            }
        }
        Expr::Like { pattern, escape_char, .. } | Expr::ILike { pattern, escape_char, .. } => {
            forms::like(pattern, escape_char);
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let Some(field) = forms::field(root, access_chain) {
                *expr = field;
            }
        }
        Expr::AnyOp { .. } | Expr::AllOp { .. } => with_list(expr, of_catalog),
        Expr::Function(function) => {
            if let Some(other) = meant(function, known) {
                *expr = other;
            }
        }
        Expr::InSubquery { expr: inner, subquery, negated } => {
            if let Some(list) = of_path(subquery, known.connection) {
                *expr = Expr::InList { expr: Box::new(taken(inner)), list, negated: *negated };
            }
        }
        Expr::Subquery(query) => match without_rows(query) {
            Some(nothing) => *expr = nothing,
            None => alone(query),
        },
        Expr::Case { operand: None, conditions, else_result, .. } if of_catalog => {
            if let Some(left) = forms::otherwise(conditions, else_result.as_deref()) {
                *expr = left;
            }
        }
        Expr::Cast { .. } => casted(expr),
        Expr::Interval(interval) if interval.leading_field.is_none() => in_units(&mut interval.value),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) if of_catalog && forms::is_number_of_table(expr) => {
            *expr = forms::no_number();
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

/// A comparison with the values of a list. `= ANY` and `<> ALL` of one that is written out are IN and NOT IN.
fn with_list(expr: &mut Expr, of_catalog: bool) {
    let (Expr::AnyOp { left, compare_op, right, .. } | Expr::AllOp { left, compare_op, right }) = expr else { return };
    operator(compare_op);
    if let Some(list) = literal(right).as_deref().and_then(array) {
        **right = list;
    } else if of_catalog && is_placeholder(right) {
        // Its type is not told, and a client may give it as text.
        **right = called("text_array", vec![taken(right)]);
    }
    let (left, op, members) = (taken(left), compare_op.clone(), forms::members(right));
    match (&mut *expr, op, members) {
        (Expr::AnyOp { .. }, BinaryOperator::Eq, Some(list)) => {
            *expr = Expr::InList { expr: Box::new(left), list, negated: false };
        }
        (Expr::AllOp { .. }, BinaryOperator::NotEq, Some(list)) => {
            *expr = Expr::InList { expr: Box::new(left), list, negated: true };
        }
        (Expr::AnyOp { left: place, .. } | Expr::AllOp { left: place, .. }, ..) => **place = left,
        _ => {}
    }
}

fn casted(expr: &mut Expr) {
    match expr {
        Expr::Cast { expr: inner, data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)), .. } => {
            if let Some(list) = literal(inner).as_deref().and_then(array) {
                **inner = list;
            }
            if let Some(list) = forms::uuids(inner).filter(|_| **item == DataType::Uuid) {
                *expr = list;
                return;
            }
            if let Some(names) = type_name(item).and_then(|name| forms::numbered_list(inner, &name)) {
                *expr = names;
                return;
            }
            if let Some(Cast::Type(known)) = type_name(item).map(|name| cast(&Expr::Value(Value::Null.into()), &name)) {
                **item = known;
            }
        }
        Expr::Cast { expr: inner, data_type: DataType::Interval { .. }, .. } => in_units(inner),
        Expr::Cast { expr: inner, data_type, .. } => {
            floats(data_type);
            forms::numbers_of_names(inner, data_type);
            forms::names_of_numbers(inner, data_type);
            if let Some(name) = type_name(data_type) {
                match cast(inner, &name) {
                    Cast::Type(other) => *data_type = other,
                    Cast::Call(function) => *expr = called(function, vec![taken(inner)]),
                    Cast::Kept => {}
                }
            }
        }
        _ => {}
    }
}

/// The text of an interval, in a form that the engine has, too.
fn in_units(text: &mut Expr) {
    if let Some(units) = literal(text).as_deref().and_then(interval_in_units) {
        *text = Expr::Value(Value::SingleQuotedString(units).into());
    }
}

/// FLOAT has eight bytes, unless it is one of few bits.
pub fn floats(data_type: &mut DataType) {
    const FEW_BITS: u64 = 24;
    if let DataType::Float(ExactNumberInfo::None) = data_type {
        *data_type = DataType::DoublePrecision;
    } else if let DataType::Float(ExactNumberInfo::Precision(bits)) = data_type {
        *data_type = if *bits > FEW_BITS { DataType::DoublePrecision } else { DataType::Real };
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

/// What a call is in the engine's words, where that is something else than a call of the function.
fn meant(function: &mut Function, known: Known<'_>) -> Option<Expr> {
    call(function);
    let counted = forms::schemas_counted(function, known.schemas);
    of_subquery(function, known.of_catalog).or(counted).or_else(|| forms::own_function(function))
}

/// Functions are found without their schema, and those that are written without parentheses have none of arguments.
fn call(function: &mut Function) {
    if let [schema, _] = parts(&function.name).as_slice()
        && (schema == PG_CATALOG || schema == "information_schema")
    {
        function.name.0.remove(0);
    }
    if matches!(function.args, FunctionArguments::None) {
        function.args = listed(Vec::new());
    }
}

/// What becomes of a cast.
enum Cast {
    Type(DataType),
    Call(&'static str),
    Kept,
}

fn cast(inner: &Expr, name: &str) -> Cast {
    let by_name = literal(inner).is_some() || is_placeholder(inner);
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
        DataType::Custom(name, _) => Some(parts(name).join(".").trim_start_matches("pg_catalog.").to_owned()),
        DataType::Regclass => Some("regclass".to_owned()),
        DataType::JSON | DataType::JSONB => Some("json".to_owned()),
        _ => None,
    }
}

/// `'{a,"b,c",NULL}'` as an array of texts; none: it is none, or one of arrays.
fn array(text: &str) -> Option<Expr> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let (mut item, mut is_quoted, mut was_quoted) = (String::new(), false, false);
    let mut end = |item: &mut String, was_quoted: &mut bool| {
        let text = std::mem::take(item);
        let text = if *was_quoted { text } else { text.trim().to_owned() };
        items.push(match !std::mem::take(was_quoted) && text.eq_ignore_ascii_case("null") {
            true => Value::Null,
            false => Value::SingleQuotedString(text),
        });
    };
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => item.push(characters.next()?),
            '"' => (is_quoted, was_quoted) = (!is_quoted, true),
            '{' | '}' if !is_quoted => return None,
            ',' if !is_quoted => end(&mut item, &mut was_quoted),
            ' ' if !is_quoted && was_quoted => {}
            other => item.push(other),
        }
    }
    if !inner.trim().is_empty() {
        end(&mut item, &mut was_quoted);
    }
    (!is_quoted).then(|| called("make_array", items.into_iter().map(|item| Expr::Value(item.into())).collect()))
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

/// What becomes of a statement.
#[cfg(test)]
pub(crate) fn rewritten(sql: &str) -> String {
    let mut statement = datafusion::sql::parser::DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
    rewrite(&mut statement, &Named);
    statement.to_string()
}

/// A connection of tests that wants PostgreSQL's names.
#[cfg(test)]
struct Named;

#[cfg(test)]
impl ConnectionFacts for Named {
    fn show(&self, name: &str) -> Option<String> {
        (name == "search_path").then(|| "main, \"My D\"".to_owned())
    }

    fn names_results(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (
                "SELECT 't'::regclass::text, ('int4'::regtype)::varchar, a::regclass::text FROM c",
                "SELECT regclass_name(regclass_oid('t'))::TEXT, (regtype_name(regtype_oid('int4')))::VARCHAR, \
                 regclass_name(a)::TEXT FROM c",
            ),
            ("SELECT pg_catalog.version(), current_user", "SELECT version(), current_user()"),
            (
                "SELECT a::pg_catalog.text FROM information_schema.tables",
                "SELECT a::TEXT FROM pg_catalog.information_schema_tables",
            ),
            ("SELECT a = ANY('{\"a,b\", c ,NULL,\"d\\\"e\"}') FROM t", "SELECT a IN ('a,b', 'c', NULL, 'd\"e') FROM t"),
            ("SELECT a = ANY('{1,2}'::int[]) FROM t", "SELECT a = ANY(make_array('1', '2')::INT[]) FROM t"),
            ("SELECT a::float, b::float(10) FROM t", "SELECT a::DOUBLE PRECISION, b::REAL FROM t"),
            ("CREATE TABLE t (a FLOAT, b FLOAT(53))", "CREATE TABLE t (a DOUBLE PRECISION, b DOUBLE PRECISION)"),
            ("SELECT a = ANY('{r,v}'), a < ANY('{r}') FROM t", "SELECT a IN ('r', 'v'), a < ANY(make_array('r')) FROM t"),
            ("SELECT a = ANY($1::oid[]) FROM t", "SELECT a = ANY($1::BIGINT[]) FROM t"),
            (
                "SELECT a = ANY('{b,c}'::uuid[]), a = ANY('{}') FROM t",
                "SELECT a IN ('b'::UUID, 'c'::UUID), a = ANY(make_array()) FROM t",
            ),
            (
                "SELECT a = ANY(ARRAY['b'::uuid, 'c', $1, b]), a = ANY(ARRAY[-1, $1]) FROM t",
                "SELECT a = ANY(ARRAY['b'::UUID, 'c', $1, b]), a IN (-1, $1) FROM t",
            ),
            ("SELECT ARRAY[a, $1]::uuid[], $1::uuid[] FROM t", "SELECT ARRAY[a::UUID, $1::UUID], $1::UUID[] FROM t"),
            ("SELECT INTERVAL 'P1DT2H', '1-2'::interval", "SELECT INTERVAL '1 days 2 hours', '1 years 2 months'::INTERVAL"),
            ("SELECT INTERVAL '1 day', INTERVAL '3' DAY", "SELECT INTERVAL '1 day', INTERVAL '3' DAY"),
            ("SELECT a <> ALL ('{r}') FROM t", "SELECT a NOT IN ('r') FROM t"),
            (
                "SELECT oid FROM pg_class WHERE relkind = ANY($1)",
                "SELECT oid FROM pg_catalog.pg_class WHERE relkind = ANY(text_array($1))",
            ),
            ("SELECT a FROM t WHERE a = ANY($1)", "SELECT a FROM t WHERE a = ANY($1)"),
            (
                "SELECT a FROM t ORDER BY a NOT IN (SELECT s[i] FROM generate_series(array_lower(string_to_array(current_setting( \
                 'search_path'),','),1), 2) AS i, string_to_array(current_setting('search_path'), ',') s)",
                "SELECT a FROM t ORDER BY a NOT IN ('main', '\"My D\"')",
            ),
            ("SELECT word FROM pg_catalog.pg_get_keywords()", "SELECT word FROM pg_catalog.pg_get_keywords"),
            ("SELECT a::int, b::date FROM t", "SELECT a::INT, b::DATE FROM t"),
            (
                "SELECT '{int4,text}'::regtype[], proargtypes::regtype[] FROM pg_proc",
                "SELECT make_array(regtype_oid('int4'), regtype_oid('text')), regtype_names(proargtypes) FROM pg_catalog.pg_proc",
            ),
            (
                "SELECT 'abs'::regproc::oid, 'abs(int)'::regprocedure",
                "SELECT regproc_oid('abs')::BIGINT, regproc_name('abs(int)')",
            ),
            ("SELECT gen_random_uuid(), chr(0), chr(65)", "SELECT uuid()::UUID, null_chr(), chr(65)"),
            ("SELECT c.tableoid, tableoid FROM pg_class c", "SELECT NULL::BIGINT, NULL::BIGINT FROM pg_catalog.pg_class c"),
            ("SELECT tableoid FROM t", "SELECT tableoid FROM t"),
            ("SELECT * FROM pithead.main.t, pithead.pg_catalog.pg_class", "SELECT * FROM main.t, pg_catalog.pg_class"),
            (
                "SELECT CAST(CAST(format('%I', a) AS REGCLASS) AS OID), b::regclass::bigint FROM t",
                "SELECT CAST(regclass_oid(format('%I', a)) AS BIGINT), regclass_oid(b)::BIGINT FROM t",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }
}
