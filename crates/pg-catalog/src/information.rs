//! The tables of `information_schema`.

use crate::facts::Facts;
use crate::procedures;
use crate::rows::{Cell, NULL, row};
use crate::tables::{OWNER_NAME, Table};
use crate::types::{TYPES, formatted, pg_type};

/// What the names of these tables begin with where they lie, in `pg_catalog`.
pub(crate) const PREFIX: &str = "information_schema_";

/// Whether there is a table of this name in `information_schema`.
pub(crate) fn is_table(name: &str) -> bool {
    TABLES.iter().any(|known| known.0.strip_prefix(PREFIX) == Some(name))
}

pub(crate) const TABLES: &[Table] = &[
    Table(
        "information_schema_schemata",
        "catalog_name:s schema_name:s schema_owner:s default_character_set_catalog:s default_character_set_schema:s \
         default_character_set_name:s sql_path:s",
        Some(|facts| {
            let own = ["pg_catalog".to_owned(), "information_schema".to_owned()];
            let all = own.into_iter().chain(facts.numbered().domains.iter().map(|(_, name)| name.clone()));
            all.map(|name| row![&facts.database, name, OWNER_NAME]).collect()
        }),
    ),
    Table(
        "information_schema_tables",
        "table_catalog:s table_schema:s table_name:s table_type:s self_referencing_column_name:s reference_generation:s \
         user_defined_type_catalog:s user_defined_type_schema:s user_defined_type_name:s is_insertable_into:s is_typed:s \
         commit_action:s",
        Some(|facts| {
            let one = |(_, table): &(i64, crate::Listed)| {
                let (kind, takes_rows) = if table.view.is_some() { ("VIEW", "NO") } else { ("BASE TABLE", "YES") };
                row![&facts.database, &table.domain, &table.name, kind, NULL, NULL, NULL, NULL, NULL, takes_rows, "NO"]
            };
            facts.numbered().tables.iter().map(one).collect()
        }),
    ),
    Table(
        "information_schema_columns",
        "table_catalog:s table_schema:s table_name:s column_name:s ordinal_position:i column_default:s is_nullable:s data_type:s \
         character_maximum_length:i character_octet_length:i numeric_precision:i numeric_precision_radix:i numeric_scale:i \
         datetime_precision:i interval_type:s interval_precision:i character_set_catalog:s character_set_schema:s \
         character_set_name:s collation_catalog:s collation_schema:s collation_name:s domain_catalog:s domain_schema:s \
         domain_name:s udt_catalog:s udt_schema:s udt_name:s scope_catalog:s scope_schema:s scope_name:s \
         maximum_cardinality:i dtd_identifier:s is_self_referencing:s is_identity:s identity_generation:s identity_start:s \
         identity_increment:s identity_maximum:s identity_minimum:s identity_cycle:s is_generated:s generation_expression:s \
         is_updatable:s",
        Some(columns),
    ),
    Table(
        "information_schema_views",
        "table_catalog:s table_schema:s table_name:s view_definition:s check_option:s is_updatable:s is_insertable_into:s",
        Some(|facts| {
            let one = |(_, table): &(i64, crate::Listed)| {
                let sql = table.view.as_ref()?;
                Some(row![&facts.database, &table.domain, &table.name, sql, "NONE", "NO", "NO"])
            };
            facts.numbered().tables.iter().filter_map(one).collect()
        }),
    ),
    Table(
        "information_schema_table_constraints",
        "constraint_catalog:s constraint_schema:s constraint_name:s table_catalog:s table_schema:s table_name:s constraint_type:s \
         is_deferrable:s initially_deferred:s enforced:s",
        None,
    ),
    Table(
        "information_schema_key_column_usage",
        "constraint_catalog:s constraint_schema:s constraint_name:s table_catalog:s table_schema:s table_name:s column_name:s \
         ordinal_position:i position_in_unique_constraint:i",
        None,
    ),
    Table(
        "information_schema_constraint_column_usage",
        "table_catalog:s table_schema:s table_name:s column_name:s constraint_catalog:s constraint_schema:s constraint_name:s",
        None,
    ),
    Table(
        "information_schema_referential_constraints",
        "constraint_catalog:s constraint_schema:s constraint_name:s unique_constraint_catalog:s unique_constraint_schema:s \
         unique_constraint_name:s match_option:s update_rule:s delete_rule:s",
        None,
    ),
    Table("information_schema_routines", procedures::ROUTINE_COLUMNS, Some(procedures::routines)),
    Table("information_schema_parameters", procedures::PARAMETER_COLUMNS, Some(procedures::parameters)),
    Table("information_schema_sequences", "sequence_catalog:s sequence_schema:s sequence_name:s data_type:s", None),
    Table("information_schema_triggers", "trigger_catalog:s trigger_schema:s trigger_name:s event_object_table:s", None),
    // Rights are of domains, and the access file has them: no statement grants any.
    Table("information_schema_table_privileges", TABLE_PRIVILEGES, None),
    Table("information_schema_role_table_grants", TABLE_PRIVILEGES, None),
    Table("information_schema_column_privileges", COLUMN_PRIVILEGES, None),
    Table("information_schema_role_column_grants", COLUMN_PRIVILEGES, None),
    Table("information_schema_role_routine_grants", ROUTINE_PRIVILEGES, None),
    Table("information_schema_information_schema_catalog_name", "catalog_name:s", Some(|facts| vec![row![&facts.database]])),
    Table(
        "information_schema_character_sets",
        "character_set_catalog:s character_set_schema:s character_set_name:s character_repertoire:s form_of_use:s \
         default_collate_catalog:s default_collate_schema:s default_collate_name:s",
        Some(|facts| vec![row![NULL, NULL, "UTF8", "UCS", "UTF8", &facts.database, "pg_catalog", "C.UTF-8"]]),
    ),
    Table("information_schema_enabled_roles", "role_name:s", Some(|facts| vec![row![&facts.user]])),
    Table("information_schema_applicable_roles", "grantee:s role_name:s is_grantable:s", None),
    Table("information_schema_administrable_role_authorizations", "grantee:s role_name:s is_grantable:s", None),
    Table(
        "information_schema_check_constraints",
        "constraint_catalog:s constraint_schema:s constraint_name:s check_clause:s",
        None,
    ),
    Table(
        "information_schema_constraint_table_usage",
        "table_catalog:s table_schema:s table_name:s constraint_catalog:s constraint_schema:s constraint_name:s",
        None,
    ),
    Table(
        "information_schema_domains",
        "domain_catalog:s domain_schema:s domain_name:s data_type:s character_maximum_length:i numeric_precision:i \
         numeric_scale:i domain_default:s udt_catalog:s udt_schema:s udt_name:s dtd_identifier:s",
        None,
    ),
    Table(
        "information_schema_domain_constraints",
        "constraint_catalog:s constraint_schema:s constraint_name:s domain_catalog:s domain_schema:s domain_name:s \
         is_deferrable:s initially_deferred:s",
        None,
    ),
    Table(
        "information_schema_element_types",
        "object_catalog:s object_schema:s object_name:s object_type:s collection_type_identifier:s data_type:s udt_catalog:s \
         udt_schema:s udt_name:s dtd_identifier:s",
        None,
    ),
    Table(
        "information_schema_user_defined_types",
        "user_defined_type_catalog:s user_defined_type_schema:s user_defined_type_name:s user_defined_type_category:s \
         is_instantiable:s is_final:s data_type:s",
        None,
    ),
    Table(
        "information_schema_attributes",
        "udt_catalog:s udt_schema:s udt_name:s attribute_name:s ordinal_position:i attribute_default:s is_nullable:s data_type:s",
        None,
    ),
    Table("information_schema_collations", "collation_catalog:s collation_schema:s collation_name:s pad_attribute:s", None),
    Table("information_schema_routine_privileges", ROUTINE_PRIVILEGES, None),
    Table(
        "information_schema_usage_privileges",
        "grantor:s grantee:s object_catalog:s object_schema:s object_name:s object_type:s privilege_type:s is_grantable:s",
        None,
    ),
    Table(
        "information_schema_view_table_usage",
        "view_catalog:s view_schema:s view_name:s table_catalog:s table_schema:s table_name:s",
        None,
    ),
    Table(
        "information_schema_view_column_usage",
        "view_catalog:s view_schema:s view_name:s table_catalog:s table_schema:s table_name:s column_name:s",
        None,
    ),
    Table(
        "information_schema_foreign_tables",
        "foreign_table_catalog:s foreign_table_schema:s foreign_table_name:s foreign_server_catalog:s foreign_server_name:s",
        None,
    ),
];

const ROUTINE_PRIVILEGES: &str = "grantor:s grantee:s specific_catalog:s specific_schema:s specific_name:s routine_catalog:s \
     routine_schema:s routine_name:s privilege_type:s is_grantable:s";
const TABLE_PRIVILEGES: &str = "grantor:s grantee:s table_catalog:s table_schema:s table_name:s privilege_type:s is_grantable:s \
     with_hierarchy:s";
const COLUMN_PRIVILEGES: &str =
    "grantor:s grantee:s table_catalog:s table_schema:s table_name:s column_name:s privilege_type:s is_grantable:s";

fn columns(facts: &Facts) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for (_, table) in &facts.numbered().tables {
        for (place, field) in (1_i64..).zip(table.schema.fields()) {
            let oid = pg_type(field);
            let known = TYPES.iter().find(|known| known.oid == oid);
            let array = TYPES.iter().find(|known| known.array == oid);
            let (sql, udt) = match (known, array) {
                (Some(known), _) => (known.sql.to_owned(), known.name.to_owned()),
                (None, Some(item)) => ("ARRAY".to_owned(), format!("_{}", item.name)),
                (None, None) => (formatted(oid, -1), String::new()),
            };
            let (precision, radix, scale) = numbers(field.data_type(), oid);
            let moment =
                if [1082, 1083, 1114, 1184, 1186].contains(&oid) { Cell::Int(if oid == 1082 { 0 } else { 6 }) } else { NULL };
            let nullable = if field.is_nullable() { "YES" } else { "NO" };
            let mut cells = row![
                &facts.database,
                &table.domain,
                &table.name,
                field.name(),
                place,
                NULL,
                nullable,
                sql,
                NULL,
                NULL,
                precision,
                radix,
                scale,
                moment
            ];
            cells.extend(vec![NULL; 11]);
            cells.extend(row![&facts.database, "pg_catalog", udt, NULL, NULL, NULL, NULL, place.to_string(), "NO", "NO"]);
            cells.extend(vec![NULL; 5]);
            cells.extend(row!["NO", "NEVER", NULL, if table.view.is_some() { "NO" } else { "YES" }]);
            rows.push(cells);
        }
    }
    rows
}

/// Precision, radix and scale of a number.
fn numbers(data_type: &arrow::datatypes::DataType, oid: u32) -> (Cell, Cell, Cell) {
    use arrow::datatypes::DataType as D;
    let binary = |bits: i64, scale: Cell| (Cell::Int(bits), Cell::Int(2), scale);
    match (data_type, oid) {
        (D::Decimal32(p, s) | D::Decimal64(p, s) | D::Decimal128(p, s) | D::Decimal256(p, s), _) => {
            (Cell::Int(i64::from(*p)), Cell::Int(10), Cell::Int(i64::from(*s)))
        }
        (_, 21) => binary(16, Cell::Int(0)),
        (_, 23) => binary(32, Cell::Int(0)),
        (_, 20) => binary(64, Cell::Int(0)),
        (_, 700) => binary(24, NULL),
        (_, 701) => binary(53, NULL),
        _ => (NULL, NULL, NULL),
    }
}
