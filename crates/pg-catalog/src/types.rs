//! Types: which of PostgreSQL's a column of ours is.

use arrow::datatypes::{DataType, Field, IntervalUnit};

/// A type of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgType {
    /// Its number.
    pub oid: u32,
    /// Its name in `pg_type`.
    pub name: &'static str,
    /// Its name in SQL.
    pub sql: &'static str,
    /// Bytes of a value; -1: they differ.
    pub length: i16,
    /// Its category in `pg_type`.
    pub category: char,
    /// The number of the type of its arrays; 0: there is none.
    pub array: u32,
}

const fn of(oid: u32, name: &'static str, sql: &'static str, length: i16, category: char, array: u32) -> PgType {
    PgType { oid, name, sql, length, category, array }
}

/// Every type that is known by number.
pub static TYPES: [PgType; 25] = [
    of(16, "bool", "boolean", 1, 'B', 1000),
    of(17, "bytea", "bytea", -1, 'U', 1001),
    of(18, "char", "\"char\"", 1, 'Z', 1002),
    of(19, "name", "name", 64, 'S', 1003),
    of(20, "int8", "bigint", 8, 'N', 1016),
    of(21, "int2", "smallint", 2, 'N', 1005),
    of(23, "int4", "integer", 4, 'N', 1007),
    of(25, "text", "text", -1, 'S', 1009),
    of(26, "oid", "oid", 4, 'N', 1028),
    of(114, "json", "json", -1, 'U', 199),
    of(700, "float4", "real", 4, 'N', 1021),
    of(701, "float8", "double precision", 8, 'N', 1022),
    of(705, "unknown", "unknown", -2, 'X', 0),
    of(1042, "bpchar", "character", -1, 'S', 1014),
    of(1043, "varchar", "character varying", -1, 'S', 1015),
    of(1082, "date", "date", 4, 'D', 1182),
    of(1083, "time", "time without time zone", 8, 'D', 1183),
    of(1114, "timestamp", "timestamp without time zone", 8, 'D', 1115),
    of(1184, "timestamptz", "timestamp with time zone", 8, 'D', 1185),
    of(1186, "interval", "interval", 16, 'T', 1187),
    of(1700, "numeric", "numeric", -1, 'N', 1231),
    of(2205, "regclass", "regclass", 4, 'N', 2210),
    of(2206, "regtype", "regtype", 4, 'N', 2211),
    of(2950, "uuid", "uuid", 16, 'U', 2951),
    of(3802, "jsonb", "jsonb", -1, 'U', 3807),
];

/// The type of this number.
pub(crate) fn by_oid(oid: u32) -> Option<&'static PgType> {
    TYPES.iter().find(|known| known.oid == oid)
}

/// The number of the type of this name, which may be one of arrays: `integer`, `int4[]`, `varchar(10)`.
pub fn type_named(name: &str) -> Option<u32> {
    let (name, is_array) = name.trim().strip_suffix("[]").map_or((name, false), |item| (item, true));
    let bare = name.find('(').map_or(name, |at| &name[..at]);
    let bare = bare.trim().to_ascii_lowercase();
    let known = by_name(match bare.as_str() {
        "int" => "int4",
        "decimal" => "numeric",
        "float" => "float8",
        other => other,
    });
    known.map(|known| if is_array { known.array } else { known.oid }).filter(|oid| *oid != 0)
}

/// The type of this name, as `pg_type` or SQL has it.
pub(crate) fn by_name(name: &str) -> Option<&'static PgType> {
    let name = name.trim().trim_start_matches("pg_catalog.").trim_matches('"').to_ascii_lowercase();
    TYPES.iter().find(|known| known.name == name || known.sql == name)
}

/// The number of the type of this name, as [`by_name`] finds it, or of that of triggers, which is a type of no value.
pub(crate) fn number_named(name: &str) -> Option<u32> {
    const TRIGGER: (&str, u32) = ("trigger", 2279);
    let known = by_name(name).map(|known| known.oid);
    known.or_else(|| (name.trim().trim_start_matches("pg_catalog.") == TRIGGER.0).then_some(TRIGGER.1))
}

/// The number of the type that a column is sent as: structs and what else PostgreSQL has no type for are JSON.
pub fn pg_type(field: &Field) -> u32 {
    let uuid = field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "arrow.uuid");
    match field.data_type() {
        DataType::FixedSizeBinary(16) if uuid => 2950,
        other => of_type(other),
    }
}

fn of_type(data_type: &DataType) -> u32 {
    use DataType as D;
    match data_type {
        D::Boolean => 16,
        D::Int8 | D::UInt8 | D::Int16 => 21,
        D::UInt16 | D::Int32 => 23,
        D::UInt32 | D::Int64 => 20,
        D::UInt64 | D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => 1700,
        D::Float16 | D::Float32 => 700,
        D::Float64 => 701,
        D::Null | D::Utf8 | D::LargeUtf8 | D::Utf8View => 25,
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => 17,
        D::Date32 | D::Date64 => 1082,
        D::Time32(_) | D::Time64(_) => 1083,
        D::Timestamp(_, None) => 1114,
        D::Timestamp(_, Some(_)) => 1184,
        D::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano) | D::Duration(_) => 1186,
        D::Dictionary(_, values) => of_type(values),
        D::RunEndEncoded(_, values) => pg_type(values),
        D::List(item) | D::LargeList(item) | D::ListView(item) | D::LargeListView(item) | D::FixedSizeList(item, _) => {
            let item = pg_type(item);
            by_oid(item).filter(|known| known.array != 0 && known.oid != 114).map_or(114, |known| known.array)
        }
        D::Struct(_) | D::Map(..) | D::Union(..) => 114,
    }
}

/// `atttypmod`: precision and scale of a decimal; -1: there is nothing to say.
pub fn modifier(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            ((i32::from(*p) << 16) | (i32::from(*s) & 0x7ff)) + 4
        }
        _ => -1,
    }
}

/// What `format_type` says of a type.
pub(crate) fn formatted(oid: u32, modifier: i64) -> String {
    if let Some(item) = TYPES.iter().find(|known| known.array == oid && oid != 0) {
        return format!("{}[]", item.sql);
    }
    match by_oid(oid) {
        Some(numeric) if numeric.oid == 1700 && modifier >= 4 => {
            let bits = modifier - 4;
            format!("numeric({},{})", bits >> 16, bits & 0x7ff)
        }
        Some(known) => known.sql.to_owned(),
        None if oid == 0 => "-".to_owned(),
        None => "???".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_types_that_clients_know() {
        let oid = |data_type| pg_type(&Field::new("c", data_type, true));
        assert_eq!(oid(DataType::Utf8View), 25);
        assert_eq!(oid(DataType::new_list(DataType::Int32, true)), 1007);
        assert_eq!(oid(DataType::new_list(DataType::new_list(DataType::Int32, true), true)), 114);
        assert_eq!(oid(DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))), 25);
        assert_eq!(formatted(1700, i64::from(modifier(&DataType::Decimal128(15, 2)))), "numeric(15,2)");
        assert_eq!((formatted(1007, -1), formatted(1184, -1)), ("integer[]".into(), "timestamp with time zone".into()));
        assert_eq!(by_name("pg_catalog.int4"), by_name("INTEGER"));
        assert_eq!(["pg_catalog.trigger", "integer", "nothing"].map(number_named), [Some(2279), Some(23), None]);
        let named = ["int", "INTEGER", "text[]", "varchar(10)", "numeric (10, 2)", "nothing"].map(type_named);
        assert_eq!(named, [Some(23), Some(23), Some(1009), Some(1043), Some(1700), None]);
    }
}
