//! The functions that there are, by name.

use arrow::datatypes::{DataType, Field};

use crate::call::{Body, Call, of_no_table};
use crate::facts::{Facts, parts};
use crate::formatting::{format, quoted, quoted_literal};
use crate::identifiers::parse_ident;
use crate::tables::{CALLER, CATALOG_SCHEMA, OWNER, OWNER_NAME};
use crate::types::{by_name, formatted, number_named, pg_type};
use crate::{NO_SETTING, SERVER_VERSION, procedures, rights};

/// Functions that take no arguments, and are the same throughout a statement.
pub(crate) const NULLARY: [&str; 12] = [
    "version",
    "current_database",
    "current_catalog",
    "current_schema",
    "current_user",
    "session_user",
    "current_role",
    "user",
    "getdatabaseencoding",
    "pg_client_encoding",
    "pg_is_in_recovery",
    "pg_backend_pid",
];

/// Functions whose values hang on their arguments alone.
pub(crate) const OF_ARGUMENTS: [&str; 12] = [
    "format_type",
    "pg_typeof",
    "pg_size_pretty",
    "quote_ident",
    "quote_literal",
    "quote_nullable",
    "format",
    "parse_ident",
    "array_upper",
    "array_lower",
    "text_array",
    "like_escape",
];

/// Whether there is a function of this name that gives one value for a row.
pub(crate) fn is_known(name: &str) -> bool {
    FUNCTIONS.iter().any(|(known, _)| *known == name)
}

pub(crate) const FUNCTIONS: &[(&str, Body)] = &[
    (
        "version",
        Body::Text(|_, _| Some(format!("PostgreSQL {SERVER_VERSION}, as Pithead {} speaks it", env!("CARGO_PKG_VERSION")))),
    ),
    ("current_database", Body::Text(|call, _| Some(call.facts.database.clone()))),
    ("current_catalog", Body::Text(|call, _| Some(call.facts.database.clone()))),
    ("current_schema", Body::Text(|call, _| Some(call.schema().to_owned()))),
    (
        "current_schemas",
        Body::Texts(|call, row| match call.bool(0, row) {
            Some(false) => call.path(),
            _ => ["pg_catalog".to_owned()].into_iter().chain(call.path()).collect(),
        }),
    ),
    ("current_user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("session_user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("current_role", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("current_setting", Body::TextOrWrong(current_setting)),
    ("set_config", Body::TextOrWrong(set_config)),
    ("getdatabaseencoding", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_encoding_to_char", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_client_encoding", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_char_to_encoding", Body::Int(|_, _| Some(6))),
    // None: each statement sees the newest data. DuckDB's extension then takes none to its other connections.
    ("pg_export_snapshot", NOTHING),
    // Pools of connections give back what a connection may have locked. None can be locked.
    ("pg_advisory_unlock_all", NOTHING),
    ("pg_is_in_recovery", Body::Bool(|_, _| Some(false))),
    ("pg_is_wal_replay_paused", Body::Bool(|_, _| Some(false))),
    // Where a connection comes from is not told.
    ("inet_client_addr", NOTHING),
    ("inet_client_port", Body::Int(|_, _| None)),
    ("inet_server_addr", NOTHING),
    ("inet_server_port", Body::Int(|_, _| None)),
    ("pg_backend_pid", Body::Int(|call, _| Some(call.facts.process))),
    ("pg_cancel_backend", Body::BoolOrWrong(|call, row| end(call, row, false))),
    ("pg_terminate_backend", Body::BoolOrWrong(|call, row| end(call, row, true))),
    // Rights are those of the access file, and no lists of the catalogue's.
    ("acldefault", Body::TextsOrWrong(|_, _| Ok(None))),
    ("pg_my_temp_schema", Body::Int(|_, _| Some(0))),
    ("pg_is_other_temp_schema", Body::Bool(|_, _| Some(false))),
    (
        "pg_get_userbyid",
        Body::Text(|call, row| {
            Some(match call.int(0, row)? {
                OWNER => OWNER_NAME.to_owned(),
                CALLER => call.facts.user.clone(),
                other => format!("unknown (OID={other})"),
            })
        }),
    ),
    (
        "format_type",
        Body::Text(|call, row| Some(formatted(u32::try_from(call.int(0, row)?).ok()?, call.int(1, row).unwrap_or(-1)))),
    ),
    ("pg_typeof", Body::Text(|call, _| call.types.first().map(|field| formatted(pg_type(field), -1)))),
    ("pg_table_is_visible", Body::Bool(|call, row| Some(call.is_visible(call.table(row)?)))),
    ("pg_type_is_visible", YES),
    ("pg_function_is_visible", Body::Bool(|call, row| Some(call.is_called_bare(call.function(row)?)))),
    ("pg_operator_is_visible", YES),
    ("pg_collation_is_visible", YES),
    ("pg_conversion_is_visible", YES),
    ("pg_ts_config_is_visible", YES),
    ("pg_ts_dict_is_visible", YES),
    ("pg_ts_parser_is_visible", YES),
    ("pg_ts_template_is_visible", YES),
    ("pg_opclass_is_visible", YES),
    ("pg_opfamily_is_visible", YES),
    ("pg_statistics_obj_is_visible", YES),
    ("pg_relation_is_publishable", Body::Bool(|_, _| Some(false))),
    ("has_table_privilege", Body::BoolOrWrong(rights::of_table)),
    ("has_any_column_privilege", Body::BoolOrWrong(rights::of_table)),
    ("has_column_privilege", Body::BoolOrWrong(rights::of_column)),
    ("has_schema_privilege", Body::Bool(rights::of_schema)),
    ("has_database_privilege", Body::Bool(rights::of_database)),
    ("has_function_privilege", YES),
    ("has_tablespace_privilege", YES),
    ("has_sequence_privilege", YES),
    ("pg_has_role", Body::Bool(rights::of_role)),
    // There are no defaults, constraints, indexes, rules, triggers and comments.
    ("pg_get_expr", NOTHING),
    ("pg_get_constraintdef", NOTHING),
    ("pg_get_indexdef", NOTHING),
    ("pg_get_viewdef", Body::Text(|call, row| call.table(row)?.view.clone())),
    ("pg_get_ruledef", NOTHING),
    ("pg_get_triggerdef", NOTHING),
    ("pg_get_partkeydef", NOTHING),
    ("pg_get_statisticsobjdef_columns", NOTHING),
    ("pg_get_serial_sequence", NOTHING),
    ("pg_get_functiondef", Body::Text(|call, row| call.function(row).map(procedures::definition))),
    ("pg_get_function_sqlbody", NOTHING),
    ("pg_get_function_arguments", Body::Text(|call, row| call.function(row).map(procedures::arguments))),
    ("pg_get_function_identity_arguments", Body::Text(|call, row| call.function(row).map(procedures::arguments))),
    ("pg_get_function_result", Body::Text(|call, row| call.function(row).map(procedures::result))),
    ("obj_description", NOTHING),
    ("col_description", NOTHING),
    ("shobj_description", NOTHING),
    ("pg_tablespace_location", Body::Text(|_, _| Some(String::new()))),
    ("pg_relation_size", SIZE),
    ("pg_table_size", SIZE),
    ("pg_total_relation_size", SIZE),
    ("pg_tablespace_size", Body::Int(|_, _| None)),
    ("pg_indexes_size", Body::Int(|_, _| Some(0))),
    // Of indexes, of which there are none.
    ("pg_stat_get_numscans", Body::Int(|_, _| None)),
    (
        "pg_database_size",
        Body::Int(|call, _| Some(call.facts.numbered().tables.iter().map(|(_, table)| table.bytes as i64).sum())),
    ),
    ("pg_size_pretty", Body::Text(|call, row| Some(pretty(call.int(0, row)?)))),
    ("quote_ident", Body::Text(|call, row| call.text(0, row).map(quoted))),
    ("quote_literal", Body::Text(|call, row| call.text(0, row).map(quoted_literal))),
    ("quote_nullable", Body::Text(|call, row| Some(call.text(0, row).map_or_else(|| "NULL".to_owned(), quoted_literal)))),
    (
        "format",
        Body::TextOrWrong(|call, row| {
            let given = |place: usize| (place < call.count()).then(|| call.text(place, row));
            call.text(0, row).map(|text| format(text, given)).transpose()
        }),
    ),
    (
        "parse_ident",
        Body::TextsOrWrong(|call, row| {
            let is_strict = call.bool(1, row).unwrap_or(true);
            call.text(0, row).map(|text| parse_ident(text, is_strict)).transpose()
        }),
    ),
    ("array_upper", Body::Int(|call, row| call.length(0, call.int(1, row)?, row))),
    ("array_lower", Body::Int(|call, row| call.length(0, call.int(1, row)?, row).map(|_| 1))),
    ("generate_subscripts", Body::Never(|| DataType::Int64)),
    ("json_build_object", Body::Never(|| DataType::Utf8)),
    (
        "_pg_expandarray",
        Body::Never(|| {
            let fields = ["x", "n"].map(|name| Field::new(name, DataType::Int64, true));
            DataType::Struct(fields.to_vec().into())
        }),
    ),
    ("pg_get_index_column", Body::Never(|| DataType::Utf8)),
    ("pg_index_column_has_property", Body::Never(|| DataType::Boolean)),
    ("pg_options_to_table", Body::Never(|| DataType::Utf8)),
    ("to_regclass", Body::Int(table_number)),
    (
        "regclass_oid",
        Body::IntOrWrong(|call, row| match (table_number(call, row), call.text(0, row)) {
            (None, Some(name)) => of_no_table(name),
            (number, _) => Ok(number),
        }),
    ),
    (
        "regclass_name",
        Body::Text(|call, row| match (call.table(row), call.int(0, row).and_then(system_name)) {
            (Some(table), _) => Some(call.name_of(table)),
            (None, Some(name)) => Some(name.to_owned()),
            (None, None) => call.text(0, row).map(str::to_owned),
        }),
    ),
    (
        "regtype_oid",
        Body::Int(|call, row| {
            let name = call.text(0, row)?;
            call.int(0, row).or_else(|| match name.trim().strip_suffix("[]") {
                Some(item) => by_name(item).map(|known| i64::from(known.array)),
                None => number_named(name).map(i64::from),
            })
        }),
    ),
    ("to_regtype", Body::Int(|call, row| by_name(call.text(0, row)?).map(|known| i64::from(known.oid)))),
    ("regtype_name", Body::Text(|call, row| Some(formatted(u32::try_from(call.int(0, row)?).ok()?, -1)))),
    (
        "regtype_names",
        Body::Texts(|call, row| {
            let names = call.items(0, row).into_iter();
            names.map(|item| item.parse().map_or(item, |oid| formatted(oid, -1))).collect()
        }),
    ),
    (
        "regclass_names",
        Body::Texts(|call, row| {
            let names = call.items(0, row).into_iter();
            names
                .map(|item| {
                    item.parse().ok().and_then(|oid| call.table_numbered(oid)).map_or(item, |table| call.name_of(table))
                })
                .collect()
        }),
    ),
    ("regnamespace_oid", Body::Int(|call, row| call.int(0, row).or_else(|| domain_number(call.facts, call.text(0, row)?)))),
    (
        "regnamespace_name",
        Body::Text(|call, row| {
            let oid = call.int(0, row)?;
            let found = call.facts.numbered().domains.iter().find(|(known, _)| *known == oid);
            found.map(|(_, name)| quoted(name)).or_else(|| (oid == CATALOG_SCHEMA).then(|| "pg_catalog".to_owned()))
        }),
    ),
    ("regproc_name", Body::Text(|call, row| call.text(0, row).map(|name| name.trim_start_matches("pg_catalog.").to_owned()))),
    ("regproc_oid", Body::IntOrWrong(procedures::number)),
    ("null_chr", Body::TextOrWrong(|_, _| Err("null character not permitted".to_owned()))),
    ("text_array", Body::Texts(|call, row| call.items(0, row))),
    ("like_escape", Body::Text(|call, row| crate::forms::escaped(call.text(0, row)?, call.text(1, row)?))),
];

const NOTHING: Body = Body::Text(|_, _| None);
const YES: Body = Body::Bool(|_, _| Some(true));
const SIZE: Body = Body::IntOrWrong(|call, row| match (call.table(row), call.int(0, row), call.text(0, row)) {
    (None, None, Some(name)) => of_no_table(name),
    (table, ..) => Ok(table.map(|table| table.bytes as i64)),
});

/// The number of the table that the first argument is, by its number or by its name.
fn table_number(call: &Call, row: usize) -> Option<i64> {
    let name = call.text(0, row)?;
    call.int(0, row).or_else(|| system_table(name)).or_else(|| call.number_of(name))
}

/// `current_setting(name, missing_ok)`. Those of the host are not told here.
fn current_setting(call: &Call, row: usize) -> Result<Option<String>, String> {
    let Some(name) = call.text(0, row) else { return Ok(None) };
    let shown = call.facts.shown.show(name);
    let may_be_missing = call.bool(1, row).unwrap_or(false) || name.to_lowercase().starts_with("pithead.");
    match shown.is_none() && !may_be_missing {
        true => Err(format!("{NO_SETTING} {name:?}")),
        false => Ok(shown),
    }
}

/// `set_config(name, value, is_local)`: the value, which is set once the statement has ended. NULL is the default.
fn set_config(call: &Call, row: usize) -> Result<Option<String>, String> {
    let Some(name) = call.text(0, row) else { return Err("a setting has no name".to_owned()) };
    let value = call.text(1, row).unwrap_or("default");
    call.facts.shown.set(name, value, call.bool(2, row).unwrap_or(false)).map(Some)
}

/// Ends what runs over the connection of a number, or that connection with it. Whether there is one.
fn end(call: &Call, row: usize, with_connection: bool) -> Result<Option<bool>, String> {
    call.int(0, row).map(|process| call.facts.shown.end(process, with_connection)).transpose()
}

fn domain_number(facts: &Facts, name: &str) -> Option<i64> {
    match name {
        "pg_catalog" => Some(CATALOG_SCHEMA),
        name => match parts(name).as_slice() {
            [name] => Some(facts.numbered().domain(name)).filter(|oid| *oid != 0),
            _ => None,
        },
    }
}

/// PostgreSQL's own numbers of the tables that others refer to by number.
const SYSTEM_TABLES: [(&str, i64); 8] = [
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_authid", 1260),
    ("pg_database", 1262),
    ("pg_constraint", 2606),
    ("pg_namespace", 2615),
];

fn system_table(name: &str) -> Option<i64> {
    let name = name.trim_start_matches("pg_catalog.");
    SYSTEM_TABLES.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
}

fn system_name(oid: i64) -> Option<&'static str> {
    SYSTEM_TABLES.iter().find(|(_, known)| *known == oid).map(|(name, _)| *name)
}

/// Bytes in units that a person reads.
fn pretty(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value.abs() >= 10 * 1024 && unit + 1 < UNITS.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TYPES;

    #[test]
    fn sizes_are_read_by_people() {
        assert_eq!((pretty(100), pretty(10_240), pretty(1 << 30)), ("100 bytes".into(), "10 kB".into(), "1024 MB".into()));
    }

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<_> = FUNCTIONS.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), FUNCTIONS.len());
        assert!(TYPES.iter().all(|known| by_name(known.sql).is_some()));
    }
}
