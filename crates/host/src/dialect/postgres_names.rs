//! Names of results that a SELECT does not name, as PostgreSQL gives them: `count` of `SELECT count(*)`, and `?column?` where there is
//! nothing to call a result after.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, DataType, ExactNumberInfo, Expr, Function, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, SetExpr, SetQuantifier, TimezoneInfo, TrimWhereField, TypedString,
};

use super::normal;

/// Where there is nothing to call a result after.
const NOTHING: &str = "?column?";

/// A name, and how much it says: that of a type or of CASE says less than that of what is cast.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Weak(String),
    Strong(String),
}

/// The name of an expression.
pub(crate) fn postgres_name(expr: &Expr) -> String {
    match known(expr) {
        Known::Nothing => NOTHING.to_owned(),
        Known::Weak(name) | Known::Strong(name) => name,
    }
}

/// The name of an item, whether it is given one or not; none: it is a wildcard.
pub(crate) fn item_name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(postgres_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(normal(alias)),
        _ => None,
    }
}

fn known(expr: &Expr) -> Known {
    let strong = |name: &str| Known::Strong(name.to_owned());
    match expr {
        Expr::Identifier(name) => Known::Strong(normal(name)),
        Expr::CompoundIdentifier(parts) => parts.last().map_or(Known::Nothing, |name| Known::Strong(normal(name))),
        Expr::CompoundFieldAccess { root, access_chain } => of_field(root, access_chain),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => known(inner),
        Expr::Function(Function { name, .. }) => last(name).map_or(Known::Nothing, Known::Strong),
        Expr::Cast { expr: inner, data_type, .. } => match known(inner) {
            Known::Strong(name) => Known::Strong(name),
            _ => Known::Weak(type_name(data_type)),
        },
        Expr::TypedString(TypedString { data_type, .. }) => Known::Weak(type_name(data_type)),
        Expr::Interval(_) => Known::Weak("interval".to_owned()),
        Expr::Case { else_result, .. } => match else_result.as_deref().map(known) {
            Some(Known::Strong(name)) => Known::Strong(name),
            _ => Known::Weak("case".to_owned()),
        },
        Expr::Exists { negated: false, .. } => strong("exists"),
        Expr::Subquery(query) => of_subquery(query),
        Expr::Array(_) => strong("array"),
        Expr::Tuple(_) | Expr::Struct { .. } => strong("row"),
        Expr::AtTimeZone { .. } => strong("timezone"),
        Expr::Extract { .. } => strong("extract"),
        Expr::Ceil { .. } => strong("ceil"),
        Expr::Floor { .. } => strong("floor"),
        Expr::Position { .. } => strong("position"),
        Expr::Substring { shorthand, .. } => strong(if *shorthand { "substr" } else { "substring" }),
        Expr::Overlay { .. } => strong("overlay"),
        Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            Some(TrimWhereField::Both) | None => "btrim",
        }),
        _ => Known::Nothing,
    }
}

/// The last field that is named; indexes of arrays name none.
fn of_field(root: &Expr, access_chain: &[AccessExpr]) -> Known {
    let field = access_chain.iter().rev().find_map(|access| match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(normal(name)),
        _ => None,
    });
    field.map_or_else(|| known(root), Known::Strong)
}

/// That of the one column of its rows.
fn of_subquery(query: &Query) -> Known {
    let item = first(&query.body).and_then(|select| select.projection.first());
    item.and_then(item_name).map_or(Known::Nothing, Known::Strong)
}

fn last(name: &ObjectName) -> Option<String> {
    name.0.last().and_then(ObjectNamePart::as_ident).map(normal)
}

/// What PostgreSQL calls a type within itself.
fn type_name(data_type: &DataType) -> String {
    const FEW_BITS: u64 = 24;
    use DataType as D;
    let name = match data_type {
        D::Int(_) | D::Integer(_) | D::Int4(_) => "int4",
        D::BigInt(_) | D::Int8(_) => "int8",
        D::SmallInt(_) | D::Int2(_) => "int2",
        D::Real | D::Float4 => "float4",
        D::Float(ExactNumberInfo::Precision(bits)) if *bits <= FEW_BITS => "float4",
        D::Float(_) | D::Float8 | D::Double(_) | D::DoublePrecision => "float8",
        D::Bool | D::Boolean => "bool",
        D::Varchar(_) | D::CharVarying(_) | D::CharacterVarying(_) => "varchar",
        D::Char(_) | D::Character(_) => "bpchar",
        D::Text | D::String(_) => "text",
        D::Numeric(_) | D::Decimal(_) | D::Dec(_) => "numeric",
        D::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timestamptz",
        D::Timestamp(..) => "timestamp",
        D::Time(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timetz",
        D::Time(..) => "time",
        D::Interval { .. } => "interval",
        D::Array(
            ArrayElemTypeDef::SquareBracket(item, _)
            | ArrayElemTypeDef::AngleBracket(item)
            | ArrayElemTypeDef::Parenthesis(item),
        ) => return type_name(item),
        D::Custom(name, _) => return last(name).unwrap_or_else(|| NOTHING.to_owned()),
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

/// The SELECT that names the columns of a query; none: several do.
pub(super) fn first(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::SetOperation { set_quantifier, .. } if is_by_name(*set_quantifier) => None,
        SetExpr::SetOperation { left, .. } => first(left),
        SetExpr::Query(query) => first(&query.body),
        _ => None,
    }
}

/// Whether the columns of two queries go by their names.
pub(super) fn is_by_name(quantifier: SetQuantifier) -> bool {
    matches!(quantifier, SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement as Sql;
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn results_are_called_as_postgresql_calls_them() {
        for (sql, expected) in [
            ("count(*), sum(a + 1), pg_catalog.Version(), \"My F\"(1)", "count sum version My F"),
            ("a, T.\"B\", (t.a), (a)::text, a COLLATE \"C\"", "a B a a a"),
            ("1, 'x', NULL, TRUE, -1, 1 + a, a || 'x', a = 1, NOT a, a IS NULL, a IN (1), $1", &["?column?"; 12].join(" ")),
            (
                "1::int, '1'::varchar(3), 1.5::numeric(3, 1), CAST(1 + 1 AS BIGINT), '{1}'::int[]",
                "int4 varchar numeric int8 int4",
            ),
            ("sum(a)::float, (1 + 1)::pg_catalog.text, 'x'::regclass", "sum text regclass"),
            ("DATE '2024-01-01', TIMESTAMP '2024-01-01', INTERVAL '1 day'", "date timestamp interval"),
            ("CASE WHEN a THEN 1 ELSE 2 END, CASE WHEN a THEN 1 ELSE b END, CASE WHEN a THEN 1 END::text", "case b text"),
            (
                "EXISTS (SELECT 1), NOT EXISTS (SELECT 1), coalesce(a, 1), nullif(a, 1), greatest(a, 1)",
                "exists ?column? coalesce nullif greatest",
            ),
            (
                "extract(year FROM a), current_date, current_user, a AT TIME ZONE 'UTC'",
                "extract current_date current_user timezone",
            ),
            ("substring(a FROM 1), trim(a), trim(LEADING 'x' FROM a), position('x' IN a)", "substring btrim ltrim position"),
            ("ARRAY[1], (1, 2), a[1], (a).b, (SELECT max(b) FROM t), (SELECT b AS c)", "array row a b max c"),
        ] {
            let statement = Parser::parse_sql(&GenericDialect {}, &format!("SELECT {sql}")).unwrap().remove(0);
            let Sql::Query(query) = statement else { panic!("{sql} is no query") };
            let SetExpr::Select(select) = *query.body else { panic!("{sql} is no SELECT") };
            let found: Vec<String> = select.projection.iter().map(|item| item_name(item).unwrap()).collect();
            assert_eq!(found.join(" "), expected, "{sql}");
        }
    }
}
