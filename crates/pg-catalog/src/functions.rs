//! Functions that queries of PostgreSQL's catalogue call.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListBuilder, StringArray, StringBuilder, new_empty_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::facts::Facts;
use crate::tables::{CALLER, CATALOG_SCHEMA, OWNER};
use crate::types::{by_name, formatted, pg_type};
use crate::{DATABASE, SERVER_VERSION};

/// All of them, over these facts.
pub fn functions(facts: &Arc<Facts>) -> Vec<ScalarUDF> {
    // Only those without arguments are constants of a statement. The others are called volatile, so that they stay at the host: drives
    // do not have them.
    let make = |&(name, body): &(&'static str, Body)| {
        let signature = match NULLARY.contains(&name) {
            true => Signature::nullary(Volatility::Stable),
            false => Signature::one_of(vec![TypeSignature::Nullary, TypeSignature::VariadicAny], Volatility::Volatile),
        };
        ScalarUDF::new_from_impl(PgFunction { name, body, facts: Arc::clone(facts), signature })
    };
    FUNCTIONS.iter().map(make).collect()
}

/// Functions that take no arguments, and are the same throughout a statement.
const NULLARY: [&str; 12] = [
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

/// What a function does with a row's arguments.
#[derive(Clone, Copy)]
enum Body {
    Text(fn(&Call, usize) -> Option<String>),
    Int(fn(&Call, usize) -> Option<i64>),
    Bool(fn(&Call, usize) -> Option<bool>),
    Texts(fn(&Call, usize) -> Vec<String>),
    /// Of rows that there never are: calling it is an error.
    Never(fn() -> DataType),
}

impl Body {
    fn data_type(self) -> DataType {
        match self {
            Body::Text(_) => DataType::Utf8,
            Body::Int(_) => DataType::Int64,
            Body::Bool(_) => DataType::Boolean,
            Body::Texts(_) => DataType::new_list(DataType::Utf8, true),
            Body::Never(data_type) => data_type(),
        }
    }
}

/// A call over a batch.
struct Call<'a> {
    facts: &'a Facts,
    config: &'a ConfigOptions,
    types: Vec<&'a Field>,
    arrays: &'a [ArrayRef],
    texts: Vec<Option<ArrayRef>>,
    ints: Vec<Option<ArrayRef>>,
}

impl Call<'_> {
    fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let array = self.texts.get(argument)?.as_ref()?.as_string::<i32>();
        array.is_valid(row).then(|| array.value(row))
    }

    fn int(&self, argument: usize, row: usize) -> Option<i64> {
        let array = self.ints.get(argument)?.as_ref()?.as_primitive::<Int64Type>();
        array.is_valid(row).then(|| array.value(row))
    }

    /// The items of an array, or of a text that is one: `{a,b}`.
    fn items(&self, argument: usize, row: usize) -> Vec<String> {
        let Some(list) = self.arrays.get(argument).and_then(|array| array.as_list_opt::<i32>()) else {
            let text = self.text(argument, row).and_then(|text| text.trim().strip_prefix('{')?.strip_suffix('}'));
            let items = text.unwrap_or_default().split(',').filter(|item| !item.is_empty());
            return items.map(|item| item.trim().trim_matches('"').to_owned()).collect();
        };
        let texts = list.is_valid(row).then(|| cast(&list.value(row), &DataType::Utf8).ok()).flatten();
        let texts = texts.unwrap_or_else(|| new_empty_array(&DataType::Utf8));
        texts.as_string::<i32>().iter().flatten().map(str::to_owned).collect()
    }

    fn schema(&self) -> &str {
        &self.config.catalog.default_schema
    }

    /// A table by its number or by its name.
    fn table(&self, row: usize) -> Option<&crate::Listed> {
        let numbered = self.facts.numbered();
        let oid = self.int(0, row).or_else(|| numbered.find(self.text(0, row)?, self.schema()))?;
        numbered.tables.iter().find(|(known, _)| *known == oid).map(|(_, table)| table)
    }
}

const FUNCTIONS: &[(&str, Body)] = &[
    (
        "version",
        Body::Text(|_, _| Some(format!("PostgreSQL {SERVER_VERSION}, as Pithead {} speaks it", env!("CARGO_PKG_VERSION")))),
    ),
    ("current_database", Body::Text(|_, _| Some(DATABASE.to_owned()))),
    ("current_catalog", Body::Text(|_, _| Some(DATABASE.to_owned()))),
    ("current_schema", Body::Text(|call, _| Some(call.schema().to_owned()))),
    (
        "current_schemas",
        Body::Texts(|call, row| match call.int(0, row) {
            Some(0) => vec![call.schema().to_owned()],
            _ => vec!["pg_catalog".to_owned(), call.schema().to_owned()],
        }),
    ),
    ("current_user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("session_user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("current_role", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("user", Body::Text(|call, _| Some(call.facts.user.clone()))),
    ("current_setting", Body::Text(|call, row| (call.facts.shown)(call.text(0, row)?))),
    // The value in force: SET changes settings, functions do not.
    ("set_config", Body::Text(|call, row| (call.facts.shown)(call.text(0, row)?))),
    ("getdatabaseencoding", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_encoding_to_char", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_client_encoding", Body::Text(|_, _| Some("UTF8".to_owned()))),
    ("pg_char_to_encoding", Body::Int(|_, _| Some(6))),
    // None: each statement sees the newest data. DuckDB's extension then takes none to its other connections.
    ("pg_export_snapshot", NOTHING),
    // Pools of connections give back what a connection may have locked. None can be locked.
    ("pg_advisory_unlock_all", NOTHING),
    ("pg_is_in_recovery", Body::Bool(|_, _| Some(false))),
    ("pg_backend_pid", Body::Int(|call, _| Some(call.facts.process))),
    ("pg_my_temp_schema", Body::Int(|_, _| Some(0))),
    ("pg_is_other_temp_schema", Body::Bool(|_, _| Some(false))),
    (
        "pg_get_userbyid",
        Body::Text(|call, row| {
            Some(match call.int(0, row)? {
                OWNER => DATABASE.to_owned(),
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
    ("pg_table_is_visible", Body::Bool(|call, row| Some(call.table(row)?.domain == call.schema()))),
    ("pg_type_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_function_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_operator_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_collation_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_conversion_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_ts_config_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_ts_dict_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_ts_parser_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_ts_template_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_opclass_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_statistics_obj_is_visible", Body::Bool(|_, _| Some(true))),
    ("pg_relation_is_publishable", Body::Bool(|_, _| Some(false))),
    // What may not be read is not listed.
    ("has_table_privilege", Body::Bool(|_, _| Some(true))),
    ("has_any_column_privilege", Body::Bool(|_, _| Some(true))),
    ("has_column_privilege", Body::Bool(|_, _| Some(true))),
    ("has_schema_privilege", Body::Bool(|_, _| Some(true))),
    ("has_database_privilege", Body::Bool(|_, _| Some(true))),
    ("has_function_privilege", Body::Bool(|_, _| Some(true))),
    ("has_tablespace_privilege", Body::Bool(|_, _| Some(true))),
    ("has_sequence_privilege", Body::Bool(|_, _| Some(true))),
    ("pg_has_role", Body::Bool(|_, _| Some(true))),
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
    ("pg_get_functiondef", NOTHING),
    ("pg_get_function_sqlbody", NOTHING),
    ("pg_get_function_arguments", NOTHING),
    ("pg_get_function_identity_arguments", NOTHING),
    ("pg_get_function_result", NOTHING),
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
    ("generate_subscripts", Body::Never(|| DataType::Int64)),
    ("array_upper", Body::Never(|| DataType::Int64)),
    ("array_lower", Body::Never(|| DataType::Int64)),
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
    ("to_regclass", TABLE_NUMBER),
    ("regclass_oid", TABLE_NUMBER),
    (
        "regclass_name",
        Body::Text(|call, row| match call.table(row) {
            Some(table) if table.domain == call.schema() => Some(quoted(&table.name)),
            Some(table) => Some(format!("{}.{}", quoted(&table.domain), quoted(&table.name))),
            None => call.text(0, row).map(str::to_owned),
        }),
    ),
    (
        "regtype_oid",
        Body::Int(|call, row| {
            let name = call.text(0, row)?;
            match name.trim().strip_suffix("[]") {
                Some(item) => by_name(item).map(|known| i64::from(known.array)),
                None => by_name(name).map(|known| i64::from(known.oid)),
            }
        }),
    ),
    ("to_regtype", Body::Int(|call, row| by_name(call.text(0, row)?).map(|known| i64::from(known.oid)))),
    ("regtype_name", Body::Text(|call, row| Some(formatted(u32::try_from(call.int(0, row)?).ok()?, -1)))),
    (
        "regnamespace_oid",
        Body::Int(|call, row| match call.text(0, row)? {
            "pg_catalog" => Some(CATALOG_SCHEMA),
            name => Some(call.facts.numbered().domain(name)).filter(|oid| *oid != 0),
        }),
    ),
    (
        "regnamespace_name",
        Body::Text(|call, row| {
            let oid = call.int(0, row)?;
            let found = call.facts.numbered().domains.iter().find(|(known, _)| *known == oid);
            found.map(|(_, name)| name.clone()).or_else(|| (oid == CATALOG_SCHEMA).then(|| "pg_catalog".to_owned()))
        }),
    ),
    ("regproc_name", Body::Text(|call, row| call.text(0, row).map(|name| name.trim_start_matches("pg_catalog.").to_owned()))),
    ("text_array", Body::Texts(|call, row| call.items(0, row))),
    ("like_escape", Body::Text(|call, row| crate::forms::escaped(call.text(0, row)?, call.text(1, row)?))),
];

const NOTHING: Body = Body::Text(|_, _| None);
const SIZE: Body = Body::Int(|call, row| call.table(row).map(|table| table.bytes as i64));
const TABLE_NUMBER: Body = Body::Int(|call, row| {
    let name = call.text(0, row)?;
    system_table(name).or_else(|| call.facts.numbered().find(name, call.schema()))
});

/// PostgreSQL's own numbers of the tables that others refer to by number.
fn system_table(name: &str) -> Option<i64> {
    const KNOWN: [(&str, i64); 8] = [
        ("pg_type", 1247),
        ("pg_attribute", 1249),
        ("pg_proc", 1255),
        ("pg_class", 1259),
        ("pg_authid", 1260),
        ("pg_database", 1262),
        ("pg_constraint", 2606),
        ("pg_namespace", 2615),
    ];
    let name = name.trim_start_matches("pg_catalog.");
    KNOWN.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
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

/// A name as SQL writes it: in quotes where it needs them.
fn quoted(name: &str) -> String {
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
    match name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_') && name.chars().all(plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[derive(Clone)]
struct PgFunction {
    name: &'static str,
    body: Body,
    facts: Arc<Facts>,
    signature: Signature,
}

impl std::fmt::Debug for PgFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for PgFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.facts, &other.facts)
    }
}

impl Eq for PgFunction {}

impl Hash for PgFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for PgFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.body.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let all_scalars = args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let wanted = if all_scalars { 1 } else { rows };
        let arrays = args.args.iter().map(|argument| argument.to_array(wanted)).collect::<Result<Vec<_>>>()?;
        let call = Call {
            facts: &self.facts,
            config: &args.config_options,
            types: args.arg_fields.iter().map(AsRef::as_ref).collect(),
            arrays: &arrays,
            texts: arrays.iter().map(|array| cast(array, &DataType::Utf8).ok()).collect(),
            ints: arrays.iter().map(|array| cast(array, &DataType::Int64).ok()).collect(),
        };
        let made: ArrayRef = match self.body {
            Body::Text(of) => Arc::new((0..wanted).map(|row| of(&call, row)).collect::<StringArray>()),
            Body::Int(of) => Arc::new((0..wanted).map(|row| of(&call, row)).collect::<Int64Array>()),
            Body::Bool(of) => Arc::new((0..wanted).map(|row| of(&call, row)).collect::<BooleanArray>()),
            Body::Texts(of) => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                (0..wanted).for_each(|row| lists.append_value(of(&call, row).iter().map(Some)));
                Arc::new(lists.finish())
            }
            Body::Never(_) if wanted > 0 => return not_impl_err!("the function {} over rows", self.name),
            Body::Never(data_type) => new_empty_array(&data_type()),
        };
        match all_scalars {
            true => Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::try_from_array(&made, 0)?)),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TYPES;

    #[test]
    fn names_are_quoted_where_they_have_to_be() {
        assert_eq!([quoted("a_1"), quoted("A"), quoted("1a"), quoted("a\"b")], ["a_1", "\"A\"", "\"1a\"", "\"a\"\"b\""]);
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
