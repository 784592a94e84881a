//! Forms of single expressions that only PostgreSQL has.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, TimezoneInfo, Value, ValueWithSpan,
};

use crate::syntax::{called, folded, literal, parts};

/// Columns of the catalogue that hold functions. PostgreSQL has their numbers there and shows their names; here they are names, and a
/// dash where PostgreSQL has 0 and shows a dash.
const FUNCTION_COLUMNS: [&str; 9] =
    ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze", "typsubscript", "amhandler"];

fn text(value: impl Into<String>) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.into()).into())
}

pub(crate) fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// The last part of a column's name.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(folded(ident)),
        Expr::CompoundIdentifier(idents) => idents.last().map(folded),
        Expr::Nested(inner) => column(inner),
        _ => None,
    }
}

/// `typreceive <> 0`, with the dash that stands for 0.
pub(crate) fn function_number(left: &mut Expr, op: &BinaryOperator, right: &mut Expr) {
    let is_function = |expr: &Expr| column(expr).is_some_and(|name| FUNCTION_COLUMNS.contains(&name.as_str()));
    if !matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq) {
        return;
    }
    if is_function(left) && name_of_function(right) || is_function(right) && name_of_function(left) {
        return;
    }
    if is_function(left) && is_zero(right) {
        *right = text("-");
    } else if is_function(right) && is_zero(left) {
        *left = text("-");
    }
}

/// The number of a function becomes its name: `pg_proc.oid = typreceive`.
fn name_of_function(expr: &mut Expr) -> bool {
    let name = match expr {
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => match parts.last_mut() {
            Some(name) => name,
            None => return false,
        },
        _ => return false,
    };
    let is_number = folded(name) == "oid";
    if is_number {
        *name = Ident::new("proname");
    }
    is_number
}

/// `typtype = 'd'`: all types that there are, are base types, so this is known, and so is what hangs on it.
pub(crate) fn kind_of_type(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<bool> {
    const BASE: &str = "b";
    let wanted = literal(right).filter(|_| column(left).is_some_and(|name| name == "typtype"))?;
    match op {
        BinaryOperator::Eq => Some(wanted == BASE),
        BinaryOperator::NotEq => Some(wanted != BASE),
        _ => None,
    }
}

/// A CASE of which only the ELSE is left, since its conditions are known to be false: the engine would plan what never runs.
pub(crate) fn otherwise(conditions: &[CaseWhen], else_result: Option<&Expr>) -> Option<Expr> {
    let is_false = |case: &CaseWhen| matches!(&case.condition, Expr::Value(value) if value.value == Value::Boolean(false));
    // Clients give values for placeholders, so these have to stay.
    let kept = conditions.iter().any(|case| case.result.to_string().contains('$'));
    let never = conditions.iter().all(is_false) && !kept;
    never.then(|| else_result.cloned().unwrap_or_else(|| Expr::Value(Value::Null.into())))
}

/// Where every row lies, for clients that read a table by ranges of its pages: rows have no places here, so all of them are in the range
/// that has the first page's first row.
const PLACE: (u64, u64) = (0, 1);

/// `'(page,row)'::tid`.
fn place(expr: &Expr) -> Option<(u64, u64)> {
    let Expr::Cast { expr, data_type: DataType::Custom(name, _), .. } = expr else { return None };
    if parts(name).last()? != "tid" {
        return None;
    }
    let text = literal(expr)?;
    let (page, row) = text.trim().strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some((page.trim().parse().ok()?, row.trim().parse().ok()?))
}

fn is_place(expr: &Expr) -> bool {
    column(expr).is_some_and(|name| name == "ctid")
}

/// `ctid BETWEEN … AND …`, which is known without looking.
pub(crate) fn place_between(inner: &Expr, negated: bool, low: &Expr, high: &Expr) -> Option<Expr> {
    let (low, high) = (place(low)?, place(high)?);
    is_place(inner).then(|| boolean((low..=high).contains(&PLACE) != negated))
}

/// `ctid >= …` and the like. Two rows with one place would not be told apart by `=`, so that stays an error.
pub(crate) fn place_compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Option<Expr> {
    let (ours, bound, turned) = match is_place(left) {
        true => (left, place(right)?, false),
        false => (right, place(left)?, true),
    };
    let holds = match (op, turned) {
        (BinaryOperator::Lt, false) | (BinaryOperator::Gt, true) => PLACE < bound,
        (BinaryOperator::LtEq, false) | (BinaryOperator::GtEq, true) => PLACE <= bound,
        (BinaryOperator::Gt, false) | (BinaryOperator::Lt, true) => PLACE > bound,
        (BinaryOperator::GtEq, false) | (BinaryOperator::LtEq, true) => PLACE >= bound,
        _ => return None,
    };
    is_place(ours).then(|| boolean(holds))
}

/// `LIKE pattern ESCAPE sign` as `LIKE` of a pattern whose sign is the backslash, as PostgreSQL itself makes it.
pub(crate) fn like(pattern: &mut Expr, escape_char: &mut Option<ValueWithSpan>) {
    let Some(Value::SingleQuotedString(sign)) = escape_char.as_ref().map(|value| &value.value) else { return };
    if sign == "\\" {
        return;
    }
    *pattern = match literal(pattern).map(|text| escaped(&text, sign)) {
        Some(Some(known)) => text(known),
        _ => called("like_escape", vec![pattern.clone(), text(sign)]),
    };
    *escape_char = None;
}

/// A pattern whose sign is the backslash; none: the sign is more than one character.
pub(crate) fn escaped(pattern: &str, sign: &str) -> Option<String> {
    let mut signs = sign.chars();
    let (sign, None) = (signs.next(), signs.next()) else { return None };
    let (mut out, mut rest) = (String::with_capacity(pattern.len() + 4), pattern.chars());
    while let Some(character) = rest.next() {
        match character {
            character if Some(character) == sign => {
                out.push('\\');
                out.extend(rest.next());
            }
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
    }
    Some(out)
}

/// Functions that a cast to the name of something becomes, and those that a cast to its number becomes.
const NAMES_AND_NUMBERS: [(&str, &str); 4] = [
    ("regclass_name", "regclass_oid"),
    ("regtype_name", "regtype_oid"),
    ("regnamespace_name", "regnamespace_oid"),
    ("regproc_name", "regproc_oid"),
];

/// A cast to a text of what a cast before it made a number of: `'t'::regclass::text`.
pub(crate) fn names_of_numbers(inner: &mut Expr, data_type: &DataType) {
    let is_text = matches!(data_type, DataType::Text | DataType::Varchar(_));
    let name = match inner {
        Expr::Nested(inner) => return names_of_numbers(inner, data_type),
        Expr::Function(function) if is_text => parts(&function.name),
        _ => return,
    };
    if let Some((named, _)) = NAMES_AND_NUMBERS.iter().find(|(_, number)| name == [*number]) {
        *inner = called(named, vec![inner.clone()]);
    }
}

/// A cast to a number of what a cast before it made a name of: `a::regclass::oid`.
pub(crate) fn numbers_of_names(inner: &mut Expr, data_type: &DataType) {
    let is_number = match data_type {
        DataType::BigInt(_) | DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) | DataType::Int8(_) => true,
        DataType::Custom(name, _) => parts(name).last().is_some_and(|name| name == "oid"),
        _ => false,
    };
    let function = match inner {
        Expr::Nested(inner) => return numbers_of_names(inner, data_type),
        Expr::Function(function) if is_number => function,
        _ => return,
    };
    let name = parts(&function.name);
    if let Some((_, number)) = NAMES_AND_NUMBERS.iter().find(|(made, _)| name == [*made]) {
        function.name = ObjectName::from(vec![Ident::new(*number)]);
    }
}

/// A list of types or tables by name as their numbers, and one of their numbers as their names: `'{int4,text}'::regtype[]`, and
/// `proargtypes::regtype[]`. None: its items are something else.
pub(crate) fn numbered_list(inner: &mut Expr, of: &str) -> Option<Expr> {
    let (number, names) = match of {
        "regtype" => ("regtype_oid", "regtype_names"),
        "regclass" => ("regclass_oid", "regclass_names"),
        _ => return None,
    };
    if let Expr::Function(function) = inner
        && parts(&function.name) == ["make_array"]
        && let FunctionArguments::List(list) = &mut function.args
    {
        let numbered = list.args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(item)) => literal(item).map(|name| called(number, vec![text(name)])),
            _ => None,
        });
        if let Some(numbered) = numbered.collect::<Option<Vec<_>>>() {
            return Some(called("make_array", numbered));
        }
    }
    Some(called(names, vec![inner.clone()]))
}

/// The members of a list that is written out, each of them a constant or a parameter. None: it is another list, or has no members.
pub(crate) fn members(list: &Expr) -> Option<Vec<Expr>> {
    fn is_constant(member: &Expr) -> bool {
        match member {
            Expr::Value(_) => true,
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } | Expr::Cast { expr: inner, .. } => is_constant(inner),
            _ => false,
        }
    }
    let members: Vec<Expr> = match list {
        Expr::Nested(inner) => return members(inner),
        Expr::Array(array) => array.elem.clone(),
        Expr::Function(function) if parts(&function.name) == ["make_array"] => {
            arguments(function)?.into_iter().cloned().collect()
        }
        _ => return None,
    };
    (!members.is_empty() && members.iter().all(is_constant)).then_some(members)
}

/// The arguments of a call, which have no names.
fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let arguments = list.args.iter().map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    arguments.collect()
}

/// A list that is cast to identifiers, with a cast at each of its members instead: the engine casts no lists of texts so. None: it is
/// empty, or its members are not written out.
pub(crate) fn uuids(list: &Expr) -> Option<Expr> {
    let cast = |member: &Expr| Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(member.clone()),
        data_type: DataType::Uuid,
        array: false,
        format: None,
    };
    match list {
        Expr::Nested(inner) => uuids(inner),
        Expr::Array(array) if !array.elem.is_empty() && !array.elem.iter().any(|member| matches!(member, Expr::Array(_))) => {
            Some(Expr::Array(Array { elem: array.elem.iter().map(cast).collect(), named: array.named }))
        }
        Expr::Function(function) if parts(&function.name) == ["make_array"] => {
            let members = arguments(function).filter(|members| !members.is_empty())?;
            Some(called("make_array", members.into_iter().map(cast).collect()))
        }
        _ => None,
    }
}

/// Whether it is the number of the table that a row of the catalogue is in.
pub(crate) fn is_number_of_table(expr: &Expr) -> bool {
    column(expr).is_some_and(|name| name == "tableoid")
}

/// What such a number is here: clients look up comments by it, and there are none.
pub(crate) fn no_number() -> Expr {
    let null = Box::new(Expr::Value(Value::Null.into()));
    let data_type = DataType::BigInt(None);
    Expr::Cast { kind: CastKind::DoubleColon, expr: null, data_type, array: false, format: None }
}

/// A function that the engine has by another name, or with another result.
pub(crate) fn own_function(function: &Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match (parts(&function.name).as_slice(), list.args.as_slice()) {
        ([name], []) if name == "gen_random_uuid" => {
            let expr = Box::new(called("uuid", Vec::new()));
            Some(Expr::Cast { kind: CastKind::DoubleColon, expr, data_type: DataType::Uuid, array: false, format: None })
        }
        ([name], []) => moment(name),
        // A text of PostgreSQL's has no zero byte.
        ([name], [FunctionArg::Unnamed(FunctionArgExpr::Expr(code))]) if name == "chr" && is_zero(code) => {
            Some(called("null_chr", Vec::new()))
        }
        _ => None,
    }
}

/// The time now, which a statement has one of, by PostgreSQL's other names for it.
fn moment(name: &str) -> Option<Expr> {
    let now = called("now", Vec::new());
    let data_type = match name {
        "transaction_timestamp" | "statement_timestamp" | "clock_timestamp" => return Some(now),
        "localtimestamp" => DataType::Timestamp(None, TimezoneInfo::None),
        "localtime" => DataType::Time(None, TimezoneInfo::None),
        _ => return None,
    };
    Some(Expr::Cast { kind: CastKind::DoubleColon, expr: Box::new(now), data_type, array: false, format: None })
}

fn is_zero(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(&value.value, Value::Number(number, _) if number == "0"))
}

/// `(row).field`.
pub(crate) fn field(root: &Expr, access_chain: &[AccessExpr]) -> Option<Expr> {
    let (Expr::Nested(inner), [AccessExpr::Dot(Expr::Identifier(name))]) = (root, access_chain) else { return None };
    Some(called("get_field", vec![(**inner).clone(), text(folded(name))]))
}

/// `array_upper(current_schemas(…), 1)`: how many schemas there are in a search path is known, and where it bounds a function that gives
/// rows it has to be. `schemas`: those of the path, PostgreSQL's own aside.
pub(crate) fn schemas_counted(function: &Function, schemas: usize) -> Option<Expr> {
    fn argument(function: &Function) -> Option<&Expr> {
        let FunctionArguments::List(list) = &function.args else { return None };
        match list.args.first()? {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        }
    }
    let name = |function: &Function, wanted: &str| parts(&function.name).last().is_some_and(|name| name == wanted);
    let Expr::Function(inner) = argument(function)? else { return None };
    if !name(function, "array_upper") || !name(inner, "current_schemas") {
        return None;
    }
    let Expr::Value(ValueWithSpan { value: Value::Boolean(implicit), .. }) = argument(inner)? else { return None };
    let count = schemas + usize::from(*implicit);
    Some(Expr::Value(Value::Number(count.to_string(), false).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::rewritten;

    #[test]
    fn forms_become_ours() {
        for (sql, expected) in [
            ("SELECT a LIKE 'x/_y\\%' ESCAPE '/' FROM t", "SELECT a LIKE 'x\\_y\\\\%' FROM t"),
            ("SELECT a LIKE $1 || '%' ESCAPE '/' FROM t", "SELECT a LIKE like_escape($1 || '%', '/') FROM t"),
            ("SELECT a FROM t WHERE ctid BETWEEN '(0,0)'::tid AND '(4294967295,0)'::tid", "SELECT a FROM t WHERE true"),
            ("SELECT a FROM t WHERE t.ctid BETWEEN '(1000,0)'::tid AND '(2000,0)'::tid", "SELECT a FROM t WHERE false"),
            ("SELECT a FROM t WHERE ctid >= '(0,1)'::tid AND ctid < '(1,0)'::tid", "SELECT a FROM t WHERE true AND true"),
            (
                "SELECT oid FROM pg_catalog.pg_type WHERE typsend <> 0",
                "SELECT oid FROM pg_catalog.pg_type WHERE typsend <> '-'",
            ),
            ("SELECT a FROM t WHERE typreceive <> 0", "SELECT a FROM t WHERE typreceive <> 0"),
            ("SELECT (k.keys).x FROM k", "SELECT get_field(k.keys, 'x') FROM k"),
            ("SELECT array_upper(current_schemas(false), 1)", "SELECT 1"),
            ("SELECT pg_catalog.clock_timestamp(), statement_timestamp()", "SELECT now(), now()"),
            (
                "SELECT LOCALTIMESTAMP, localtime, \"localtime\" FROM t",
                "SELECT now()::TIMESTAMP, now()::TIME, \"localtime\" FROM t",
            ),
            (
                "SELECT CASE WHEN t.typtype = 'd' THEN (SELECT 1) ELSE NULL END FROM pg_catalog.pg_type AS t WHERE t.typtype <> 'r'",
                "SELECT NULL FROM pg_catalog.pg_type AS t WHERE true",
            ),
        ] {
            assert_eq!(rewritten(sql), expected);
        }
    }

    #[test]
    fn signs_of_patterns_become_backslashes() {
        let of = |pattern: &str, sign: &str| escaped(pattern, sign);
        assert_eq!(of("a//b/%\\", "/").as_deref(), Some("a\\/b\\%\\\\"));
        assert_eq!((of("a\\%", "").as_deref(), of("a", "xy")), (Some("a\\\\%"), None));
    }
}
