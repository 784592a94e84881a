//! Functions that users have made, as `pg_proc` and `information_schema` tell of them.

use crate::call::Call;
use crate::facts::{Facts, ListedFunction};
use crate::formatting::{quoted, quoted_literal};
use crate::identifiers::parse_ident;
use crate::rows::{Cell, NULL, row, row_of};
use crate::tables::{OWNER, Table};
use crate::types::{by_oid, formatted, type_named};

/// The number of the language that all of them are in.
const WASM: i64 = 13_001;
/// The name of that language.
const LANGUAGE: &str = "wasm";
/// PostgreSQL's own number of the table of languages.
const LANGUAGES: i64 = 2_612;
/// How many rows a function is said to give that gives any number of them.
const SET_ROWS: f64 = 1_000.0;

pub(crate) const TABLES: &[Table] = &[
    Table("pg_proc", PROCEDURE_COLUMNS, Some(procedures)),
    Table(
        "pg_language",
        "oid:o tableoid:o lanname:s lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o lanacl:S",
        Some(|_| vec![row![WASM, LANGUAGES, LANGUAGE, OWNER, false, true, 0, 0, 0]]),
    ),
];

const PROCEDURE_COLUMNS: &str = "oid:o proname:s pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o \
     prosupport:s prokind:s prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:s proparallel:s pronargs:h \
     pronargdefaults:h prorettype:o proargtypes:O proallargtypes:O proargmodes:S proargnames:S proargdefaults:s protrftypes:O \
     prosrc:s probin:s prosqlbody:s proconfig:S proacl:S";

/// The columns of `information_schema.routines`.
pub(crate) const ROUTINE_COLUMNS: &str = "specific_catalog:s specific_schema:s specific_name:s routine_catalog:s \
     routine_schema:s routine_name:s routine_type:s module_catalog:s module_schema:s module_name:s udt_catalog:s \
     udt_schema:s udt_name:s data_type:s character_maximum_length:i character_octet_length:i character_set_catalog:s \
     character_set_schema:s character_set_name:s collation_catalog:s collation_schema:s collation_name:s \
     numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:s \
     interval_precision:i type_udt_catalog:s type_udt_schema:s type_udt_name:s scope_catalog:s scope_schema:s scope_name:s \
     maximum_cardinality:i dtd_identifier:s routine_body:s routine_definition:s external_name:s external_language:s \
     parameter_style:s is_deterministic:s sql_data_access:s is_null_call:s sql_path:s schema_level_routine:s \
     max_dynamic_result_sets:i is_user_defined_cast:s is_implicitly_invocable:s security_type:s to_sql_specific_catalog:s \
     to_sql_specific_schema:s to_sql_specific_name:s as_locator:s created:t last_altered:t new_savepoint_level:s \
     is_udt_dependent:s";

/// The columns of `information_schema.parameters`.
pub(crate) const PARAMETER_COLUMNS: &str = "specific_catalog:s specific_schema:s specific_name:s ordinal_position:i \
     parameter_mode:s is_result:s as_locator:s parameter_name:s data_type:s character_maximum_length:i \
     character_octet_length:i character_set_catalog:s character_set_schema:s character_set_name:s collation_catalog:s \
     collation_schema:s collation_name:s numeric_precision:i numeric_precision_radix:i numeric_scale:i datetime_precision:i \
     interval_type:s interval_precision:i udt_catalog:s udt_schema:s udt_name:s scope_catalog:s scope_schema:s scope_name:s \
     maximum_cardinality:i dtd_identifier:s parameter_default:s";

/// What a function takes, as CREATE FUNCTION says it.
pub(crate) fn arguments(function: &ListedFunction) -> String {
    let one = |(name, of): &(Option<String>, u32)| match name {
        Some(name) => format!("{} {}", quoted(name), formatted(*of, -1)),
        None => formatted(*of, -1),
    };
    function.arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What a function gives, as CREATE FUNCTION says it.
pub(crate) fn result(function: &ListedFunction) -> String {
    let of = formatted(function.returns, -1);
    if function.returns_set { format!("SETOF {of}") } else { of }
}

/// The number of the function that the first argument is, by its number or by its name, and where it has them the types of its arguments:
/// `luhn`, `main.luhn(text, integer)`.
pub(crate) fn number(call: &Call, row: usize) -> Result<Option<i64>, String> {
    let Some(written) = call.text(0, row) else { return Ok(None) };
    if let Some(oid) = call.int(0, row) {
        return Ok(Some(oid));
    }
    let (name, types) = match written.split_once('(') {
        Some((name, types)) => (name, Some(types.trim_end().trim_end_matches(')'))),
        None => (written, None),
    };
    let takes = types.map(|types| types.split(',').filter(|of| !of.trim().is_empty()).map(type_named).collect::<Vec<_>>());
    let name = parse_ident(name.trim(), true)?;
    let is_meant = |function: &ListedFunction| match name.as_slice() {
        [name] => function.name == *name && call.is_called_bare(function),
        [domain, name] => function.name == *name && function.domain == *domain,
        _ => false,
    };
    let takes_those = |function: &ListedFunction| {
        takes.as_ref().is_none_or(|takes| function.arguments.iter().map(|(_, of)| Some(*of)).eq(takes.iter().copied()))
    };
    let mut found = call.facts.numbered().functions.iter().filter(|(_, function)| is_meant(function) && takes_those(function));
    match (found.next(), found.next()) {
        (Some((oid, _)), None) => Ok(Some(*oid)),
        (Some(_), Some(_)) => Err(format!("more than one function is named \"{written}\"")),
        // By these words, whoever carries the error to a client knows it as being about a function.
        (None, _) => Err(format!("function \"{written}\" does not exist, or is one of the engine's own")),
    }
}

/// The statement that makes a function again, with the name of its module where its bytes would be.
pub(crate) fn definition(function: &ListedFunction) -> String {
    let (domain, name) = (quoted(&function.domain), quoted(&function.name));
    let volatility = match function.volatility {
        'i' => "IMMUTABLE",
        's' => "STABLE",
        _ => "VOLATILE",
    };
    let nulls = if function.called_on_null { "CALLED ON NULL INPUT" } else { "STRICT" };
    format!(
        "CREATE OR REPLACE FUNCTION {domain}.{name}({})\n RETURNS {}\n LANGUAGE {LANGUAGE}\n {volatility} {nulls}\nAS {}, {}\n",
        arguments(function),
        result(function),
        quoted_literal(&function.module),
        quoted_literal(&function.export)
    )
}

fn procedures(facts: &Facts) -> Vec<Vec<Cell>> {
    let numbered = facts.numbered();
    let one = |(oid, function): &(i64, ListedFunction)| procedure(*oid, numbered.domain(&function.domain), function);
    numbered.functions.iter().map(one).collect()
}

fn procedure(oid: i64, schema: i64, function: &ListedFunction) -> Vec<Cell> {
    let types: Vec<i64> = function.arguments.iter().map(|(_, of)| i64::from(*of)).collect();
    let is_named = function.arguments.iter().any(|(name, _)| name.is_some());
    let names = function.arguments.iter().map(|(name, _)| name.clone().unwrap_or_default()).collect::<Vec<String>>();
    // Those that give another value at each call run at the host alone.
    let parallel = if function.volatility == 'v' { "r" } else { "s" };
    row_of(
        PROCEDURE_COLUMNS,
        vec![
            ("oid", oid.into()),
            ("proname", (&function.name).into()),
            ("pronamespace", schema.into()),
            ("proowner", OWNER.into()),
            ("prolang", WASM.into()),
            ("procost", Cell::Float(1.0)),
            ("prorows", Cell::Float(if function.returns_set { SET_ROWS } else { 0.0 })),
            ("provariadic", Cell::Int(0)),
            ("prosupport", "-".into()),
            ("prokind", Cell::from(if function.is_aggregate { "a" } else { "f" })),
            ("prosecdef", false.into()),
            ("proleakproof", false.into()),
            ("proisstrict", (!function.called_on_null).into()),
            ("proretset", function.returns_set.into()),
            ("provolatile", function.volatility.to_string().into()),
            ("proparallel", parallel.into()),
            ("pronargs", (types.len() as i64).into()),
            ("pronargdefaults", Cell::Int(0)),
            ("prorettype", i64::from(function.returns).into()),
            ("proargtypes", types.into()),
            ("proargnames", if is_named { names.into() } else { NULL }),
            ("prosrc", (&function.export).into()),
            ("probin", (&function.module).into()),
        ],
    )
}

/// The rows of `information_schema.routines`.
pub(crate) fn routines(facts: &Facts) -> Vec<Vec<Cell>> {
    facts.numbered().functions.iter().map(|(oid, function)| routine(&facts.database, *oid, function)).collect()
}

fn routine(database: &str, oid: i64, function: &ListedFunction) -> Vec<Cell> {
    let yes_or_no = |is_so: bool| Cell::from(if is_so { "YES" } else { "NO" });
    row_of(
        ROUTINE_COLUMNS,
        vec![
            ("specific_catalog", database.into()),
            ("specific_schema", (&function.domain).into()),
            ("specific_name", specific_name(oid, function).into()),
            ("routine_catalog", database.into()),
            ("routine_schema", (&function.domain).into()),
            ("routine_name", (&function.name).into()),
            // PostgreSQL says nothing here of aggregates.
            ("routine_type", if function.is_aggregate { NULL } else { "FUNCTION".into() }),
            ("data_type", formatted(function.returns, -1).into()),
            ("type_udt_catalog", database.into()),
            ("type_udt_schema", "pg_catalog".into()),
            ("type_udt_name", type_name(function.returns)),
            ("dtd_identifier", "0".into()),
            ("routine_body", "EXTERNAL".into()),
            ("routine_definition", (&function.export).into()),
            ("external_name", (&function.export).into()),
            ("external_language", LANGUAGE.to_uppercase().into()),
            ("parameter_style", "GENERAL".into()),
            ("is_deterministic", yes_or_no(function.volatility == 'i')),
            ("sql_data_access", "NO SQL".into()),
            // Whether NULL is its result for NULL, without a call.
            ("is_null_call", yes_or_no(!function.called_on_null)),
            ("schema_level_routine", "YES".into()),
            ("max_dynamic_result_sets", Cell::Int(0)),
            ("security_type", "INVOKER".into()),
            ("as_locator", "NO".into()),
            ("is_udt_dependent", "NO".into()),
        ],
    )
}

/// The rows of `information_schema.parameters`: arguments alone, as PostgreSQL has it.
pub(crate) fn parameters(facts: &Facts) -> Vec<Vec<Cell>> {
    let of = |(oid, function): &(i64, ListedFunction)| {
        let arguments = (1_i64..).zip(&function.arguments);
        arguments.map(|(place, argument)| parameter(&facts.database, *oid, function, place, argument)).collect::<Vec<_>>()
    };
    facts.numbered().functions.iter().flat_map(of).collect()
}

fn parameter(database: &str, oid: i64, function: &ListedFunction, place: i64, (name, of): &(Option<String>, u32)) -> Vec<Cell> {
    row_of(
        PARAMETER_COLUMNS,
        vec![
            ("specific_catalog", database.into()),
            ("specific_schema", (&function.domain).into()),
            ("specific_name", specific_name(oid, function).into()),
            ("ordinal_position", place.into()),
            ("parameter_mode", "IN".into()),
            ("is_result", "NO".into()),
            ("as_locator", "NO".into()),
            ("parameter_name", name.as_ref().map_or(NULL, Cell::from)),
            ("data_type", formatted(*of, -1).into()),
            ("udt_catalog", database.into()),
            ("udt_schema", "pg_catalog".into()),
            ("udt_name", type_name(*of)),
            ("dtd_identifier", place.to_string().into()),
        ],
    )
}

/// What tells a function from others of its name, which PostgreSQL has.
fn specific_name(oid: i64, function: &ListedFunction) -> String {
    format!("{}_{oid}", function.name)
}

fn type_name(oid: u32) -> Cell {
    by_oid(oid).map_or(NULL, |known| known.name.into())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::facts::facts_of_tests;
    use crate::tables::table;

    fn column(batch: &RecordBatch, name: &str) -> ArrayRef {
        ArrayRef::clone(batch.column_by_name(name).unwrap_or_else(|| panic!("{name}")))
    }

    fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
        column(batch, name).as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect()
    }

    fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
        texts.map(|text| Some(text.to_owned()))
    }

    #[test]
    fn functions_are_listed_in_pg_proc() {
        let facts = facts_of_tests();
        let found = table("pg_proc", &facts).unwrap();
        assert_eq!(texts(&found, "proname"), some(["words", "luhn", "mean"]));
        assert_eq!(texts(&found, "prokind"), some(["f", "f", "a"]));
        assert_eq!(texts(&found, "provolatile"), some(["v", "i", "i"]));
        assert_eq!(texts(&found, "proparallel"), some(["r", "s", "s"]));
        assert_eq!(texts(&found, "prosrc"), some(["words", "checked", "mean"]));
        let types = column(&found, "proargtypes");
        let types = types.as_list::<i32>();
        assert_eq!(types.value(1).as_primitive::<Int64Type>().values().to_vec(), [25, 23]);
        let names = column(&found, "proargnames");
        let names = names.as_list::<i32>();
        assert!(names.is_null(0), "none of its arguments has a name");
        assert_eq!(names.value(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["digits", ""]);
        let languages = table("pg_language", &facts).unwrap();
        assert_eq!(texts(&languages, "lanname"), some(["wasm"]));
        let [language, number] = [column(&found, "prolang"), column(&languages, "oid")];
        assert_eq!(language.as_primitive::<Int64Type>().value(0), number.as_primitive::<Int64Type>().value(0));
        let schemas = table("pg_namespace", &facts).unwrap();
        let known = column(&schemas, "oid");
        let schema = column(&found, "pronamespace").as_primitive::<Int64Type>().value(0);
        assert!(known.as_primitive::<Int64Type>().iter().any(|oid| oid == Some(schema)));
    }

    #[test]
    fn functions_are_listed_in_information_schema() {
        let facts = facts_of_tests();
        let found = table("information_schema_routines", &facts).unwrap();
        assert_eq!(texts(&found, "routine_schema"), some(["lab", "main", "main"]));
        assert_eq!(texts(&found, "routine_type"), [Some("FUNCTION".to_owned()), Some("FUNCTION".to_owned()), None]);
        assert_eq!(texts(&found, "data_type"), some(["text", "boolean", "double precision"]));
        assert_eq!(texts(&found, "external_name"), some(["words", "checked", "mean"]));
        assert_eq!(texts(&found, "external_language"), some(["WASM"; 3]));
        assert_eq!(texts(&found, "is_deterministic"), some(["NO", "YES", "YES"]));
        assert_eq!(texts(&found, "is_null_call"), some(["NO", "YES", "YES"]));
        let (oid, _) = facts.numbered().functions[1];
        assert_eq!(texts(&found, "specific_name")[1], Some(format!("luhn_{oid}")));
        let found = table("information_schema_parameters", &facts).unwrap();
        assert_eq!(texts(&found, "specific_schema"), some(["lab", "main", "main", "main"]));
        assert_eq!(texts(&found, "parameter_name"), [None, Some("digits".to_owned()), None, Some("order".to_owned())]);
        assert_eq!(texts(&found, "udt_name"), some(["text", "text", "int4", "float8"]));
        assert_eq!(texts(&found, "dtd_identifier"), some(["1", "1", "2", "1"]));
    }

    #[test]
    fn a_definition_makes_the_function_again() {
        let facts = facts_of_tests();
        let told: Vec<_> = facts.numbered().functions.iter().map(|(_, function)| definition(function)).collect();
        let module = &facts.numbered().functions[1].1.module;
        assert_eq!(
            told[1],
            format!(
                "CREATE OR REPLACE FUNCTION main.luhn(digits text, integer)\n RETURNS boolean\n LANGUAGE wasm\n \
                 IMMUTABLE STRICT\nAS '{module}', 'checked'\n"
            )
        );
        assert!(told[0].contains("RETURNS SETOF text") && told[0].contains("VOLATILE CALLED ON NULL INPUT"), "{}", told[0]);
    }

    /// A misspelt name of a column would be a NULL.
    #[test]
    fn cells_have_columns() {
        let facts = facts_of_tests();
        let (oid, function) = &facts.numbered().functions[1];
        for (row, told) in [
            (procedure(*oid, 1, function), 23),
            (routine("d", *oid, function), 25),
            (parameter("d", *oid, function, 1, &function.arguments[0]), 13),
        ] {
            assert_eq!(row.iter().filter(|cell| !matches!(cell, Cell::Null)).count(), told);
        }
    }
}
